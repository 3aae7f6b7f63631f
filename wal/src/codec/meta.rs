//! `log.meta`: what must be known about a log besides its segments.
//!
//! A value of 128 bytes in a file of [`slots`].
//!
//! ```text
//!   0  8   magic "WALMETA1"         40 u64 created, ms since 1970
//!   8 u16  version                  48 u64 start generation   older segments are left-overs
//!  10 u16  0                        56 u64 start offset       base of that segment
//!  12 u32  128                      64 u64 newest generation  recorded before its first acknowledgement; 0: none yet
//!  16 16   log id                   72 u64 durable end        a lower bound, as known when this was written
//!  32 u64  sequence number          80 …   zeros, then at 124 u32 CRC-32 of 0..124, seeded by the slot
//! ```

use super::{HeaderError, LogId, array_at, check_counters, check_header, finish_header, put, slots, u64_at};
use crate::offset::Offset;

pub(crate) const FILE_NAME: &str = "log.meta";
/// Length of the value.
pub(crate) const LEN: usize = 128;
const MAGIC: &[u8; 8] = b"WALMETA1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) log: LogId,
    pub(crate) seq: u64,
    pub(crate) created_ms: u64,
    pub(crate) start_gen: u64,
    pub(crate) start_offset: Offset,
    pub(crate) newest_gen: u64,
    pub(crate) durable_end: Offset,
}

impl Meta {
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
        put(&mut bytes, 40, &self.created_ms.to_le_bytes());
        put(&mut bytes, 48, &self.start_gen.to_le_bytes());
        put(&mut bytes, 56, &self.start_offset.to_le_bytes());
        put(&mut bytes, 64, &self.newest_gen.to_le_bytes());
        put(&mut bytes, 72, &self.durable_end.to_le_bytes());
        finish_header(&mut bytes, MAGIC, u32::from(slots::slot_of(seq) == 1));
        bytes
    }

    /// The newest value of a file. Also tells how much of it can be read.
    pub(crate) fn decode_file(file: &[u8]) -> Result<(Self, slots::Health), HeaderError> {
        let decode = |bytes: &[u8], slot| {
            check_header(bytes, LEN, MAGIC, u32::from(slot == 1))?;
            let meta = Self {
                log: array_at(bytes, 16),
                seq: u64_at(bytes, 32),
                created_ms: u64_at(bytes, 40),
                start_gen: u64_at(bytes, 48),
                start_offset: u64_at(bytes, 56),
                newest_gen: u64_at(bytes, 64),
                durable_end: u64_at(bytes, 72),
            };
            check_counters(&[meta.seq, meta.start_gen, meta.newest_gen])?;
            // Nothing is removed before there is a segment.
            let unborn = meta.newest_gen == 0;
            if meta.start_gen == 0 || unborn && (meta.start_gen, meta.start_offset) != (1, 0) {
                return Err(HeaderError::Damaged);
            }
            Ok(meta)
        };
        slots::decode_file(file, decode, |meta| meta.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::slots::Health;
    use super::*;

    fn meta(seq: u64) -> Meta {
        Meta {
            log: [1; 16],
            seq,
            created_ms: 5,
            start_gen: 2,
            start_offset: 100,
            newest_gen: 9,
            durable_end: 1234,
        }
    }

    #[test]
    fn the_newest_value_counts_and_damage_to_one_place_does_not_bring_back_an_old_one() {
        let mut file = meta(4).encode_file();
        let (at, slot) = meta(5).encode();
        put(&mut file, at as usize, &slot);
        assert_eq!(Meta::decode_file(&file), Ok((meta(5), Health::Sound)));
        file[at as usize + 40] ^= 1;
        assert_eq!(Meta::decode_file(&file), Ok((meta(5), Health::CopyLost)));
        file[at as usize + 2048 + 40] ^= 1;
        assert_eq!(Meta::decode_file(&file), Ok((meta(4), Health::SlotLost)));
    }

    #[test]
    fn values_that_no_writer_counts_up_to_are_damage() {
        let spoiled: [fn(&mut Meta); 5] = [
            |meta| meta.seq = u64::MAX,
            |meta| meta.start_gen = u64::MAX,
            |meta| meta.newest_gen = u64::MAX,
            |meta| meta.start_gen = 0,
            |meta| meta.newest_gen = 0,
        ];
        for spoil in spoiled {
            let mut meta = meta(5);
            spoil(&mut meta);
            assert_eq!(
                Meta::decode_file(&meta.encode_file()),
                Err(HeaderError::Damaged),
                "{meta:?}"
            );
        }
    }

    #[test]
    fn a_slot_copied_over_the_other_is_not_believed() {
        let mut file = meta(4).encode_file();
        let slot = meta(4).encode().1;
        let mut first = file.clone();
        put(&mut first, 4096, &slot[..LEN]);
        assert_eq!(Meta::decode_file(&first), Ok((meta(4), Health::CopyLost)));
        put(&mut file, 4096, &slot);
        assert_eq!(Meta::decode_file(&file), Ok((meta(4), Health::SlotLost)));
    }

    #[test]
    fn a_lost_slot_is_told_from_a_lost_copy() {
        let file = meta(4).encode_file();
        let health = |file: &[u8]| Meta::decode_file(file).map(|(_, health)| health);
        assert_eq!(health(&file), Ok(Health::Sound));
        for len in 128..file.len() {
            let expected = if len < 4096 + 128 {
                Health::SlotLost
            } else {
                Health::CopyLost
            };
            assert_eq!(health(&file[..len]), Ok(expected), "{len}");
        }
        for page in [0, 4096] {
            let mut file = file.clone();
            file[page..page + 4096].fill(0);
            assert_eq!(health(&file), Ok(Health::SlotLost), "{page}");
        }
        for copy in [0, 2048, 4096, 6144] {
            let mut file = file.clone();
            file[copy..copy + 512].fill(0);
            assert_eq!(health(&file), Ok(Health::CopyLost), "{copy}");
        }
    }

    #[test]
    fn a_newer_version_is_told_from_a_damaged_version_field() {
        let mut file = meta(4).encode_file();
        file[8] = 9;
        assert_eq!(Meta::decode_file(&file), Ok((meta(4), Health::CopyLost)));
        let mut value = file[2048..2048 + LEN].to_vec();
        put(&mut value, 8, &9u16.to_le_bytes());
        let crc = crate::codec::crc32(0, &value[..LEN - 4]);
        put(&mut value, LEN - 4, &crc.to_le_bytes());
        put(&mut file, 0, &value);
        assert_eq!(
            Meta::decode_file(&file),
            Err(HeaderError::Version { found: 9, sure: true })
        );
    }
}
