//! The header of a segment: who it is, where it begins, and where the segment before it ends.
//!
//! It fills the first 4096 bytes of the file: one copy of 128 bytes at 0, a second at 2048, zeros between.
//!
//! ```text
//!   0  8   magic "WALSEG1\n"        56 u64 prev_gen        0: there is none
//!   8 u16  version                  64 u64 prev_end_pos    one past its last valid byte
//!  10 u16  0                        72 u64 prev_last_pos   of its last frame, 0: it has none
//!  12 u32  128                      80 u32 prev_last_crc   of that frame's header
//!  16 16   log id                   84 u32 flags           bit 0: the one before was cut by recovery
//!  32 u64  generation, from 1       88 u64 reserved        length that the file was made with; 0: not stated
//!  40 u64  base offset              96 …   zeros
//!  48 u64  created, ms since 1970  124 u32 CRC-32 of 0..124
//! ```

use super::{HeaderError, LogId, array_at, check_counters, check_header, finish_header, newest, put, u32_at, u64_at};
use crate::offset::Offset;

/// Bytes before the first frame.
pub(crate) const BLOCK_LEN: u64 = BLOCK as u64;
/// The same, as a length in memory.
pub(crate) const BLOCK: usize = 4096;
const COPY_AT: usize = 2048;
const LEN: usize = 128;
const MAGIC: &[u8; 8] = b"WALSEG1\n";
const CUT: u32 = 1;

/// Where a segment ends, as its successor remembers it. Bytes behind `end_pos` are not part of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pin {
    pub(crate) generation: u64,
    pub(crate) end_pos: u64,
    /// Position and header CRC of the last frame; both 0 where there is none.
    pub(crate) last_pos: u64,
    pub(crate) last_crc: u32,
    /// Whether recovery cut the segment, rather than a rotation sealed it.
    pub(crate) cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) log: LogId,
    pub(crate) generation: u64,
    pub(crate) base_offset: Offset,
    pub(crate) created_ms: u64,
    pub(crate) prev: Option<Pin>,
    /// Length of the file when it got its name, durably. Only a seal or a close makes it shorter.
    pub(crate) reserved: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut copy = [0; LEN];
        put(&mut copy, 16, &self.log);
        put(&mut copy, 32, &self.generation.to_le_bytes());
        put(&mut copy, 40, &self.base_offset.to_le_bytes());
        put(&mut copy, 48, &self.created_ms.to_le_bytes());
        if let Some(prev) = self.prev {
            put(&mut copy, 56, &prev.generation.to_le_bytes());
            put(&mut copy, 64, &prev.end_pos.to_le_bytes());
            put(&mut copy, 72, &prev.last_pos.to_le_bytes());
            put(&mut copy, 80, &prev.last_crc.to_le_bytes());
            put(&mut copy, 84, &u32::from(prev.cut).to_le_bytes());
        }
        put(&mut copy, 88, &self.reserved.to_le_bytes());
        finish_header(&mut copy, MAGIC, 0);
        let mut block = vec![0; BLOCK];
        put(&mut block, 0, &copy);
        put(&mut block, COPY_AT, &copy);
        block
    }

    /// Decodes the first block of a file, which may be shorter. Also tells whether one of the copies was bad.
    pub(crate) fn decode(block: &[u8]) -> Result<(Self, bool), HeaderError> {
        let first = Self::decode_copy(block);
        let second = Self::decode_copy(block.get(COPY_AT..).unwrap_or_default());
        let one_bad = first != second;
        newest(first, second, |_| 0).map(|header| (header, one_bad))
    }

    fn decode_copy(bytes: &[u8]) -> Result<Self, HeaderError> {
        check_header(bytes, LEN, MAGIC, 0)?;
        let generation = u64_at(bytes, 32);
        check_counters(&[generation])?;
        let flags = u32_at(bytes, 84);
        if generation == 0 || flags & !CUT != 0 {
            return Err(HeaderError::Damaged);
        }
        let prev_gen = u64_at(bytes, 56);
        Ok(Self {
            log: array_at(bytes, 16),
            generation,
            base_offset: u64_at(bytes, 40),
            created_ms: u64_at(bytes, 48),
            prev: (prev_gen != 0).then(|| Pin {
                generation: prev_gen,
                end_pos: u64_at(bytes, 64),
                last_pos: u64_at(bytes, 72),
                last_crc: u32_at(bytes, 80),
                cut: flags & CUT != 0,
            }),
            reserved: u64_at(bytes, 88),
        })
    }
}

/// A position in the first block that holds something although neither copy of the header lies there.
pub(crate) fn stray_bytes(block: &[u8]) -> Option<usize> {
    block
        .iter()
        .enumerate()
        .position(|(at, byte)| *byte != 0 && at % COPY_AT >= LEN)
}

/// The name of a segment's file: base offset in 20 decimal digits, so that names sort, and the generation in 16 hexadecimal ones,
/// so that two segments with one base offset differ.
pub(crate) fn file_name(base_offset: Offset, generation: u64) -> String {
    format!("{base_offset:020}-{generation:016x}.wal")
}

/// Base offset and generation out of a segment's file name; `None` for any other name.
pub(crate) fn parse_file_name(name: &str) -> Option<(Offset, u64)> {
    let (base, generation) = name.strip_suffix(".wal")?.split_once('-')?;
    let parsed = (base.parse().ok()?, u64::from_str_radix(generation, 16).ok()?);
    (file_name(parsed.0, parsed.1) == name).then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            log: [9; 16],
            generation: 5,
            base_offset: 1000,
            created_ms: 123,
            prev: Some(Pin {
                generation: 4,
                end_pos: 8192,
                last_pos: 8000,
                last_crc: 77,
                cut: true,
            }),
            reserved: 36 << 10,
        }
    }

    #[test]
    fn round_trip_and_one_bad_copy_is_survived_and_told() {
        let block = header().encode();
        assert_eq!(SegmentHeader::decode(&block), Ok((header(), false)));
        for byte in 0..LEN {
            for place in [0, COPY_AT] {
                let mut bad = block.clone();
                bad[place + byte] ^= 1;
                assert_eq!(
                    SegmentHeader::decode(&bad),
                    Ok((header(), true)),
                    "byte {byte} at {place}"
                );
            }
        }
    }

    #[test]
    fn sums_that_are_right_over_values_that_are_not() {
        for (at, bytes) in [
            (32, [0; 8]),
            (32, [0xff; 8]),
            (84, [3, 0, 0, 0, 0, 0, 0, 0]),
            (84, [2, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let mut copy = header().encode()[..LEN].to_vec();
            put(&mut copy, at, &bytes);
            finish_header(&mut copy, MAGIC, 0);
            assert_eq!(
                SegmentHeader::decode_copy(&copy),
                Err(HeaderError::Damaged),
                "{bytes:?} at {at}"
            );
        }
        for cut in [false, true] {
            let mut header = header();
            if let Some(prev) = &mut header.prev {
                prev.cut = cut;
            }
            assert_eq!(SegmentHeader::decode(&header.encode()), Ok((header, false)));
        }
    }

    #[test]
    fn a_newer_version_is_not_called_damage() {
        let mut block = header().encode();
        block[8] = 2;
        block[COPY_AT + 8] = 2;
        assert_eq!(
            SegmentHeader::decode(&block),
            Err(HeaderError::Version { found: 2, sure: false })
        );
    }

    #[test]
    fn names_parse_back_and_others_do_not() {
        assert_eq!(parse_file_name(&file_name(7, 11)), Some((7, 11)));
        assert_eq!(
            parse_file_name(&file_name(u64::MAX, u64::MAX)),
            Some((u64::MAX, u64::MAX))
        );
        for bad in [
            "log.meta",
            "7-b.wal",
            "00000000000000000007-000000000000000b.wal.tmp",
            "-.wal",
        ] {
            assert_eq!(parse_file_name(bad), None, "{bad}");
        }
    }
}
