//! The frame: one append as it stands in a segment, and the few kinds of frames that carry no record.
//!
//! ```text
//!  0 u32 header_crc      CRC-32 of bytes 4..32, seeded by log, segment and position
//!  4 u8  kind            0 blank · 1 data · 2 mark · 3 pad · 4 seal · 5 close · else unknown
//!  5 u8  flags           0; others are for codecs to come
//!  6 u16 count           data: records in the frame, 1..=65535; else 0
//!  8 u32 payload_len     stored bytes, without padding
//! 12 u32 durable_lag     base_offset minus the durable end when the header was built, saturating
//! 16 u64 base_offset     of the first record; control frames: of the next record
//! 24 u64 payload_digest  XXH3-64 of the payload
//! 32 …   payload, then zeros to a multiple of 8
//! ```
//!
//! A data payload with `count == 1` is the record. With more it is `count` lengths (u32), then the records back to back. So
//! a batch is one frame, whole or not there, by one digest; there are no first, middle and last parts to tell apart.
//!
//! **Two checks.** The digest is free of place and computed by the caller's thread before any lock is taken. The header's CRC
//! binds it, and everything else, to log, segment and position. It also makes the length trustworthy, so that a reader can step over a
//! bad payload and recovery can believe what later headers say of the durable end.
//!
//! **XXH3 for payloads, not CRC-32.** A record that ends in its own CRC-32 has the same CRC-32 as any other such record of
//! its length, whatever the seed, so one could stand in for another unnoticed. A digest of another family has no such blind spot, misses
//! a change with a chance of 2⁻⁶⁴ instead of 2⁻³², and costs no more on small records.
//!
//! **The durable lag** is a statement: everything below `base_offset - durable_lag` was covered by a completed sync before this
//! frame was written. It is how damage is told from a torn write (after Pebble's `SyncOffset`).

use twox_hash::XxHash3_64;

use super::{LogId, crc32, put, u16_at, u32_at, u64_at};
use crate::error::FrameError;
use crate::offset::Offset;

/// Bytes of a frame header.
pub(crate) const HEADER_LEN: usize = 32;
/// Frames start at multiples of this.
pub(crate) const ALIGN: u64 = 8;
/// Most records in one frame.
pub(crate) const RECORDS_MAX: usize = u16::MAX as usize;
/// Most payload bytes in one frame, by the format. Options can only ask for less.
pub(crate) const PAYLOAD_MAX: usize = 1 << 30;
/// Payload of a mark and of a close: the time in milliseconds since the Unix epoch.
pub(crate) const STAMP_LEN: usize = 8;
/// A whole close frame.
pub(crate) const CLOSE_LEN: u64 = (HEADER_LEN + STAMP_LEN) as u64;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records.
    Data,
    /// The time, and a later statement of the durable end.
    Mark,
    /// Nothing: fills up to a sector border.
    Pad,
    /// The last frame of a full segment: the time, and the sparse index.
    Seal,
    /// The last frame of a log closed in order: the time.
    Close,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Data,
            2 => Self::Mark,
            3 => Self::Pad,
            4 => Self::Seal,
            5 => Self::Close,
            _ => return None,
        })
    }

    fn byte(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Mark => 2,
            Self::Pad => 3,
            Self::Seal => 4,
            Self::Close => 5,
        }
    }
}

/// Seeds the header checksums of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(u32);

impl Seed {
    /// For a given log a bijection of the generation (mod 2³²): the same bytes at the same position of another
    /// segment fail for certain.
    pub(crate) fn new(log: &LogId, generation: u64) -> Self {
        let mut bytes = [0; 24];
        put(&mut bytes, 0, log);
        put(&mut bytes, 16, &generation.to_le_bytes());
        Self(crc32(0, &bytes))
    }

    /// For a given segment a bijection of the position, which is a multiple of 8 below 32 GiB.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "positions stay below 32 GiB; wrapping would still be a seed"
    )]
    fn at(self, pos: u64) -> u32 {
        self.0 ^ (pos >> 3) as u32
    }
}

/// A decoded frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) count: u16,
    pub(crate) payload_len: u32,
    /// One past the last record that was known to be durable when the header was built.
    pub(crate) durable_end: Offset,
    pub(crate) base_offset: Offset,
    pub(crate) digest: u64,
    pub(crate) crc: u32,
}

impl Header {
    /// Bytes of the whole frame, padding included.
    pub(crate) fn frame_len(&self) -> u64 {
        frame_len(self.payload_len as usize)
    }

    /// One past the last record of this frame.
    pub(crate) fn end_offset(&self) -> Offset {
        self.base_offset + u64::from(self.count)
    }
}

/// Bytes of a frame with `payload_len` bytes of payload, padding included.
pub(crate) fn frame_len(payload_len: usize) -> u64 {
    ((HEADER_LEN + payload_len) as u64).next_multiple_of(ALIGN)
}

/// Bytes of the records of a data frame, without a batch's table of lengths.
pub(crate) fn record_bytes(header: &Header) -> u64 {
    let table = if header.count > 1 {
        u64::from(header.count) * 4
    } else {
        0
    };
    u64::from(header.payload_len) - table
}

/// The digest of a payload.
pub(crate) fn digest(payload: &[u8]) -> u64 {
    XxHash3_64::oneshot(payload)
}

/// What goes into a header.
pub(crate) struct HeaderFields {
    pub(crate) kind: Kind,
    pub(crate) count: u16,
    pub(crate) payload_len: u32,
    pub(crate) digest: u64,
    pub(crate) base_offset: Offset,
    pub(crate) durable_end: Offset,
}

/// Encodes a header for position `pos` of the segment with `seed`. Returns the bytes and their CRC.
pub(crate) fn encode_header(fields: &HeaderFields, seed: Seed, pos: u64) -> ([u8; HEADER_LEN], u32) {
    debug_assert!(pos.is_multiple_of(ALIGN) && fields.durable_end <= fields.base_offset);
    let lag = u32::try_from(fields.base_offset - fields.durable_end).unwrap_or(u32::MAX);
    let mut bytes = [0; HEADER_LEN];
    bytes[4] = fields.kind.byte();
    put(&mut bytes, 6, &fields.count.to_le_bytes());
    put(&mut bytes, 8, &fields.payload_len.to_le_bytes());
    put(&mut bytes, 12, &lag.to_le_bytes());
    put(&mut bytes, 16, &fields.base_offset.to_le_bytes());
    put(&mut bytes, 24, &fields.digest.to_le_bytes());
    let crc = crc32(seed.at(pos), &bytes[4..]);
    put(&mut bytes, 0, &crc.to_le_bytes());
    (bytes, crc)
}

/// Appends a control frame for position `pos` to `out`. Returns the CRC of its header.
pub(crate) fn encode_control(
    out: &mut Vec<u8>,
    kind: Kind,
    payload: &[u8],
    base_offset: Offset,
    durable_end: Offset,
    seed: Seed,
    pos: u64,
) -> u32 {
    let fields = HeaderFields {
        kind,
        count: 0,
        payload_len: u32::try_from(payload.len()).expect("control payloads are bounded by the segment"),
        digest: digest(payload),
        base_offset,
        durable_end,
    };
    let (header, crc) = encode_header(&fields, seed, pos);
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
    pad(out, payload.len());
    crc
}

/// Appends the zeros that follow a payload of `payload_len` bytes.
pub(crate) fn pad(out: &mut Vec<u8>, payload_len: usize) {
    const ZEROS: [u8; 8] = [0; 8];
    let padding = (HEADER_LEN + payload_len).next_multiple_of(ZEROS.len()) - HEADER_LEN - payload_len;
    out.extend_from_slice(&ZEROS[..padding]);
}

/// Decodes the header at `pos`. `room` is how many bytes the segment has from `pos` on: a frame that does not fit is refused
/// before anything of its size is allocated.
pub(crate) fn decode_header(bytes: &[u8], seed: Seed, pos: u64, room: u64) -> Result<Header, FrameError> {
    let Some(bytes) = bytes.get(..HEADER_LEN) else {
        return Err(FrameError::Truncated);
    };
    // Blank space is told by its kind before any checksum is asked: some seed maps zeros to CRC 0.
    if bytes[4] == 0 {
        return Err(if bytes.iter().all(|b| *b == 0) {
            FrameError::Blank
        } else {
            FrameError::Header
        });
    }
    let stored = u32_at(bytes, 0);
    let computed = crc32(seed.at(pos), &bytes[4..]);
    if stored != computed {
        return Err(FrameError::HeaderChecksum { stored, computed });
    }
    let kind = Kind::from_byte(bytes[4]).ok_or(FrameError::UnknownKind(bytes[4]))?;
    let count = u16_at(bytes, 6);
    let payload_len = u32_at(bytes, 8);
    let lag = u64::from(u32_at(bytes, 12));
    let base_offset = u64_at(bytes, 16);
    if bytes[5] != 0
        || (kind == Kind::Data) != (count > 0)
        || payload_len as usize > PAYLOAD_MAX
        || lag > base_offset
        || crate::offset::advance(base_offset, usize::from(count)).is_none()
    {
        return Err(FrameError::Header);
    }
    if frame_len(payload_len as usize) > room {
        return Err(FrameError::Truncated);
    }
    Ok(Header {
        kind,
        count,
        payload_len,
        durable_end: base_offset - lag,
        base_offset,
        digest: u64_at(bytes, 24),
        crc: stored,
    })
}

/// Checks a payload against its header: the digest, and for a batch that the lengths fill it exactly.
pub(crate) fn check_payload(header: &Header, payload: &[u8]) -> Result<(), FrameError> {
    let computed = digest(payload);
    if computed != header.digest {
        return Err(FrameError::PayloadChecksum {
            stored: header.digest,
            computed,
        });
    }
    if header.count > 1 {
        let table = usize::from(header.count) * 4;
        let Some(lengths) = payload.get(..table) else {
            return Err(FrameError::BatchLengths);
        };
        let bodies: u64 = lengths.chunks_exact(4).map(|l| u64::from(u32_at(l, 0))).sum();
        if bodies != (payload.len() - table) as u64 {
            return Err(FrameError::BatchLengths);
        }
    }
    Ok(())
}

/// The record with number `n` of a checked payload, and where the next one begins. `cursor` is that place, 0 for the first.
pub(crate) fn record(count: u16, payload: &[u8], n: u16, cursor: usize) -> (&[u8], usize) {
    if count == 1 {
        return (payload, payload.len());
    }
    let table = usize::from(count) * 4;
    let len = u32_at(payload, usize::from(n) * 4) as usize;
    let start = table + cursor;
    (&payload[start..start + len], cursor + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogId = [7; 16];

    fn data(payload: &[u8], base: Offset, durable: Offset, seed: Seed, pos: u64) -> Vec<u8> {
        let fields = HeaderFields {
            kind: Kind::Data,
            count: 1,
            payload_len: payload.len() as u32,
            digest: digest(payload),
            base_offset: base,
            durable_end: durable,
        };
        let mut out = encode_header(&fields, seed, pos).0.to_vec();
        out.extend_from_slice(payload);
        pad(&mut out, payload.len());
        out
    }

    #[test]
    fn what_is_encoded_decodes_to_the_same() {
        let seed = Seed::new(&LOG, 3);
        let bytes = data(b"hello", 42, 40, seed, 4096);
        assert_eq!(bytes.len() as u64, frame_len(5));
        let h = decode_header(&bytes, seed, 4096, bytes.len() as u64).unwrap();
        assert_eq!((h.kind, h.count, h.base_offset, h.durable_end), (Kind::Data, 1, 42, 40));
        check_payload(&h, &bytes[32..37]).unwrap();
    }

    #[test]
    fn every_flipped_bit_of_header_and_payload_is_seen() {
        let seed = Seed::new(&LOG, 3);
        let good = data(b"hello", 42, 40, seed, 4096);
        for bit in 0..(HEADER_LEN + 5) * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let seen = match decode_header(&bad, seed, 4096, 1 << 20) {
                Err(_) => true,
                Ok(h) => check_payload(&h, &bad[32..37]).is_err(),
            };
            assert!(seen, "bit {bit}");
        }
    }

    #[test]
    fn a_frame_is_bound_to_log_segment_and_position() {
        let seed = Seed::new(&LOG, 3);
        let bytes = data(b"hello", 42, 40, seed, 4096);
        assert!(decode_header(&bytes, seed, 4104, 1 << 20).is_err());
        assert!(decode_header(&bytes, Seed::new(&LOG, 4), 4096, 1 << 20).is_err());
        assert!(decode_header(&bytes, Seed::new(&[8; 16], 3), 4096, 1 << 20).is_err());
    }

    #[test]
    fn payloads_that_end_in_their_own_crc_cannot_stand_in_for_each_other() {
        let sealed = |text: &[u8]| {
            let mut v = text.to_vec();
            v.extend_from_slice(&crc32fast::hash(text).to_le_bytes());
            v
        };
        let (a, b) = (sealed(b"transfer 10 to Ann"), sealed(b"transfer 99 to Bob"));
        assert_eq!(crc32fast::hash(&a), crc32fast::hash(&b), "a plain CRC-32 is blind here");
        assert_ne!(digest(&a), digest(&b));
    }

    #[test]
    fn zeros_are_blank_and_never_a_record() {
        for generation in 0..1000 {
            let got = decode_header(&[0; 64], Seed::new(&LOG, generation), 4096, 1 << 20);
            assert_eq!(got, Err(FrameError::Blank));
        }
    }

    #[test]
    fn every_kind_is_read_as_what_was_written() {
        let seed = Seed::new(&LOG, 3);
        for kind in [Kind::Mark, Kind::Pad, Kind::Seal, Kind::Close] {
            let mut bytes = Vec::new();
            encode_control(&mut bytes, kind, &[9; 8], 42, 40, seed, 4096);
            let header = decode_header(&bytes, seed, 4096, 1 << 20).unwrap();
            assert_eq!((header.kind, header.count, header.payload_len), (kind, 0, 8));
            assert_eq!(header.frame_len(), bytes.len() as u64);
        }
    }

    #[test]
    fn headers_whose_sums_are_right_and_whose_values_are_not() {
        let seed = Seed::new(&LOG, 3);
        let good = data(b"hello", 42, 40, seed, 4096);
        let long = u32::try_from(PAYLOAD_MAX).unwrap();
        let spoiled: [(usize, &[u8], FrameError); 8] = [
            (5, &[1], FrameError::Header),
            // Data without records, and records in what is none.
            (6, &[0, 0], FrameError::Header),
            (4, &[2], FrameError::Header),
            (4, &[9], FrameError::UnknownKind(9)),
            (8, &(long + 1).to_le_bytes(), FrameError::Header),
            (8, &long.to_le_bytes(), FrameError::Truncated),
            (12, &43u32.to_le_bytes(), FrameError::Header),
            (16, &(u64::MAX - 1).to_le_bytes(), FrameError::Header),
        ];
        for (at, value, expected) in spoiled {
            let mut bytes = good.clone();
            put(&mut bytes, at, value);
            let crc = crc32(seed.at(4096), &bytes[4..HEADER_LEN]);
            put(&mut bytes, 0, &crc.to_le_bytes());
            assert_eq!(
                decode_header(&bytes, seed, 4096, 1 << 20),
                Err(expected),
                "{value:?} at {at}"
            );
        }
    }

    #[test]
    fn a_batch_s_records_are_its_payload_without_the_lengths() {
        let seed = Seed::new(&LOG, 3);
        let one = decode_header(&data(b"hello", 1, 0, seed, 8), seed, 8, 1 << 20).unwrap();
        assert_eq!(record_bytes(&one), 5);
        let batch = Header {
            count: 3,
            payload_len: 3 * 4 + 70,
            ..one
        };
        assert_eq!(record_bytes(&batch), 70);
    }

    #[test]
    fn a_length_beyond_the_room_is_refused() {
        let seed = Seed::new(&LOG, 1);
        let bytes = data(&[1; 100], 0, 0, seed, 4096);
        assert_eq!(decode_header(&bytes, seed, 4096, 100), Err(FrameError::Truncated));
    }
}
