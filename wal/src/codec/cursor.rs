//! The file of a named consumer: its committed offset, durable, and bound to this log.
//!
//! A value of 512 bytes, one sector, in a file of [`slots`].
//!
//! ```text
//!   0  8   magic "WALCURS1"         64 u64 anchor position
//!   8 u16  version                  72 u32 anchor CRC         of the header of the frame that holds record committed - 1
//!  10 u16  0                        76 u8  delivery           1 at least once, 2 at most once
//!  12 u32  512                      77 u8  reset rule         0 fail, 1 earliest, 2 latest
//!  16 16   log id                   78 u8  flags              bit 0: never expired by a bound on lag
//!  32 u64  sequence number          79 u8  name length, 1..=128
//!  40 u64  committed offset         80 128 name, UTF-8, zeros behind
//!  48 u64  committed, ms since 1970
//!  56 u64  anchor generation, 0: no anchor        508 u32 CRC-32 of 0..508, seeded by the slot
//! ```

use super::{HeaderError, LogId, array_at, check_counters, check_header, finish_header, put, slots, u32_at, u64_at};

use crate::offset::Offset;
use crate::options::{Delivery, Reset};

/// Length of the value.
pub(crate) const LEN: usize = 512;
const MAGIC: &[u8; 8] = b"WALCURS1";
/// Most bytes of a consumer's name.
pub(crate) const NAME_MAX: usize = 128;

/// The record just below a committed offset, recognisable: a log that holds another one there is told from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) generation: u64,
    pub(crate) pos: u64,
    pub(crate) crc: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) log: LogId,
    pub(crate) seq: u64,
    pub(crate) committed: Offset,
    pub(crate) committed_ms: u64,
    pub(crate) anchor: Option<Anchor>,
    pub(crate) delivery: Delivery,
    pub(crate) reset: Reset,
    pub(crate) protected: bool,
    pub(crate) name: String,
}

impl Cursor {
    /// Where, and what, to write: see [`slots`].
    pub(crate) fn encode(&self) -> (u64, Vec<u8>) {
        slots::encode(self.seq, &self.value(self.seq))
    }

    /// A whole file that holds this value.
    pub(crate) fn encode_file(&self) -> Vec<u8> {
        slots::encode_file(self.seq, |seq| self.value(seq))
    }

    fn value(&self, seq: u64) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        put(&mut bytes, 16, &self.log);
        put(&mut bytes, 32, &seq.to_le_bytes());
        put(&mut bytes, 40, &self.committed.to_le_bytes());
        put(&mut bytes, 48, &self.committed_ms.to_le_bytes());
        if let Some(anchor) = self.anchor {
            put(&mut bytes, 56, &anchor.generation.to_le_bytes());
            put(&mut bytes, 64, &anchor.pos.to_le_bytes());
            put(&mut bytes, 72, &anchor.crc.to_le_bytes());
        }
        bytes[76] = match self.delivery {
            Delivery::AtLeastOnce => 1,
            Delivery::AtMostOnce => 2,
        };
        bytes[77] = match self.reset {
            Reset::Fail => 0,
            Reset::Earliest => 1,
            Reset::Latest => 2,
        };
        bytes[78] = u8::from(self.protected);
        bytes[79] = u8::try_from(self.name.len()).expect("names are checked when a consumer is made");
        put(&mut bytes, 80, self.name.as_bytes());
        finish_header(&mut bytes, MAGIC, u32::from(slots::slot_of(seq) == 1));
        bytes
    }

    /// The newest value of a file. Also tells how much of it can be read.
    pub(crate) fn decode_file(file: &[u8]) -> Result<(Self, slots::Health), HeaderError> {
        slots::decode_file(file, Self::decode_slot, |cursor| cursor.seq)
    }

    fn decode_slot(bytes: &[u8], slot: usize) -> Result<Self, HeaderError> {
        check_header(bytes, LEN, MAGIC, u32::from(slot == 1))?;
        let name = bytes[80..].get(..usize::from(bytes[79]));
        let name = name.and_then(|n| std::str::from_utf8(n).ok()).unwrap_or_default();
        let delivery = match bytes[76] {
            1 => Delivery::AtLeastOnce,
            2 => Delivery::AtMostOnce,
            _ => return Err(HeaderError::Damaged),
        };
        let reset = match bytes[77] {
            0 => Reset::Fail,
            1 => Reset::Earliest,
            2 => Reset::Latest,
            _ => return Err(HeaderError::Damaged),
        };
        if name.is_empty() || name.len() > NAME_MAX || bytes[78] > 1 {
            return Err(HeaderError::Damaged);
        }
        check_counters(&[u64_at(bytes, 32)])?;
        let generation = u64_at(bytes, 56);
        Ok(Self {
            log: array_at(bytes, 16),
            seq: u64_at(bytes, 32),
            committed: u64_at(bytes, 40),
            committed_ms: u64_at(bytes, 48),
            anchor: (generation != 0).then(|| Anchor {
                generation,
                pos: u64_at(bytes, 64),
                crc: u32_at(bytes, 72),
            }),
            delivery,
            reset,
            protected: bytes[78] == 1,
            name: name.to_owned(),
        })
    }
}

/// The file of the consumer `name`: what of the name any file system takes, for people, and its digest, for uniqueness. The full
/// name is inside, under the checksum.
pub(crate) fn file_name(name: &str) -> String {
    let readable: String = name
        .chars()
        .take(40)
        .map(|c| match c {
            'a'..='z' | '0'..='9' | '-' | '_' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '_',
        })
        .collect();
    format!(
        "consumer-{readable}-{:016x}.offset",
        super::frame::digest(name.as_bytes())
    )
}

/// Whether a file name is that of a consumer.
pub(crate) fn is_file_name(name: &str) -> bool {
    name.starts_with("consumer-") && name.ends_with(".offset")
}

#[cfg(test)]
mod tests {
    use super::slots::Health;
    use super::*;

    fn cursor(seq: u64) -> Cursor {
        Cursor {
            log: [3; 16],
            seq,
            committed: 77,
            committed_ms: 9,
            anchor: Some(Anchor {
                generation: 2,
                pos: 4096,
                crc: 5,
            }),
            delivery: Delivery::AtMostOnce,
            reset: Reset::Earliest,
            protected: true,
            name: "Ünï/código".to_owned(),
        }
    }

    #[test]
    fn round_trip_and_a_torn_slot_leaves_the_other() {
        let mut file = cursor(1).encode_file();
        assert_eq!(Cursor::decode_file(&file), Ok((cursor(1), Health::Sound)));
        let (at, slot) = cursor(2).encode();
        put(&mut file, at as usize, &slot);
        assert_eq!(Cursor::decode_file(&file), Ok((cursor(2), Health::Sound)));
        file[100] ^= 4;
        assert_eq!(Cursor::decode_file(&file), Ok((cursor(2), Health::CopyLost)));
        file[2048 + 100] ^= 4;
        assert_eq!(Cursor::decode_file(&file), Ok((cursor(1), Health::SlotLost)));
    }

    #[test]
    fn every_rule_is_kept_and_no_other_is_believed() {
        for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
            for reset in [Reset::Fail, Reset::Earliest, Reset::Latest] {
                for protected in [false, true] {
                    let cursor = Cursor {
                        delivery,
                        reset,
                        protected,
                        ..cursor(7)
                    };
                    assert_eq!(Cursor::decode_file(&cursor.encode_file()), Ok((cursor, Health::Sound)));
                }
            }
        }
        // Sums that are right over values that are not.
        let spoiled: [(usize, &[u8]); 7] = [
            (76, &[0]),
            (76, &[3]),
            (77, &[3]),
            (78, &[2]),
            (79, &[0]),
            (79, &[129]),
            (32, &[0xff; 8]),
        ];
        for (at, bytes) in spoiled {
            let mut value = cursor(7).value(7);
            put(&mut value, at, bytes);
            finish_header(&mut value, MAGIC, 1);
            assert_eq!(
                Cursor::decode_slot(&value, 1),
                Err(HeaderError::Damaged),
                "{bytes:?} at {at}"
            );
        }
        let mut longest = cursor(7);
        longest.name = "n".repeat(NAME_MAX);
        assert_eq!(Cursor::decode_file(&longest.encode_file()).map(|c| c.0), Ok(longest));
    }

    #[test]
    fn a_name_can_be_read_in_the_name_of_its_file() {
        assert!(file_name("Billing_2-eu/x é").starts_with("consumer-billing_2-eu_x__-"));
    }

    #[test]
    fn names_of_any_kind_give_short_distinct_file_names() {
        let long = "é".repeat(64);
        let names = ["a", "A", "a/b", "a_b", "..", &long, "consumer"];
        let files: std::collections::BTreeSet<_> = names.iter().map(|n| file_name(n)).collect();
        assert_eq!(files.len(), names.len());
        assert!(
            files
                .iter()
                .all(|f| f.len() < 100 && f.is_ascii() && is_file_name(f) && !f.contains('/'))
        );
    }
}
