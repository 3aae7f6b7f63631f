//! A small value that is replaced again and again, in a file of two slots written in turn.
//!
//! A replacement is one write and one data sync; replacing a whole small file takes two syncs and a rename, about four times
//! as long. The value with the higher sequence number counts. Each slot holds its value twice, in sectors of their own: a
//! crash in the middle of a write leaves the other slot, and one damaged sector leaves the other copy. So damage to a single place never
//! brings an old value back; only a torn write does, of a value that nobody was told of.
//!
//! ```text
//!    0  slot 0, value with an even sequence number     4096  slot 1, odd
//! 2048  its second copy                                6144  its second copy
//! ```

use super::{HeaderError, newest, put};

/// Length of the file.
pub(crate) const FILE_LEN: usize = 8192;
/// Slots lie in different pages.
const SLOT_STRIDE: usize = 4096;
const COPY_AT: usize = 2048;

/// The slot that a sequence number belongs to.
pub(crate) fn slot_of(seq: u64) -> usize {
    usize::from(!seq.is_multiple_of(2))
}

/// Where, and what, to write to replace the value: both copies in one write.
pub(crate) fn encode(seq: u64, value: &[u8]) -> (u64, Vec<u8>) {
    debug_assert!(value.len() <= COPY_AT);
    let mut bytes = vec![0; COPY_AT + value.len()];
    put(&mut bytes, 0, value);
    put(&mut bytes, COPY_AT, value);
    ((slot_of(seq) * SLOT_STRIDE) as u64, bytes)
}

/// A whole file that holds this value alone.
pub(crate) fn encode_file(seq: u64, value: &[u8]) -> Vec<u8> {
    let mut file = vec![0; FILE_LEN];
    let (_, bytes) = encode(seq, value);
    put(&mut file, slot_of(seq) * SLOT_STRIDE, &bytes);
    file
}

/// The newest value of a file, as read by `decode` from the bytes of a copy and the number of its slot. Also tells whether a copy
/// that was once written is bad.
pub(crate) fn decode_file<T>(
    file: &[u8],
    decode: impl Fn(&[u8], usize) -> Result<T, HeaderError>,
    seq: impl Fn(&T) -> u64,
) -> Result<(T, bool), HeaderError> {
    let mut best = Err(HeaderError::Blank);
    let mut one_bad = false;
    for (slot, copy) in [(0, 0), (0, COPY_AT), (1, 0), (1, COPY_AT)] {
        let value = decode(file.get(slot * SLOT_STRIDE + copy..).unwrap_or_default(), slot);
        // A slot that says it belongs elsewhere was copied there.
        let value = value.and_then(|v| {
            if slot_of(seq(&v)) == slot {
                Ok(v)
            } else {
                Err(HeaderError::Damaged)
            }
        });
        one_bad |= matches!(
            value,
            Err(HeaderError::Damaged | HeaderError::Version { sure: false, .. })
        );
        best = newest(best, value, &seq);
    }
    best.map(|value| (value, one_bad))
}

/// Positions that hold something although no value of `len` bytes lies there.
pub(crate) fn stray_bytes(file: &[u8], len: usize) -> Option<usize> {
    let inside = |at: usize| at < FILE_LEN && at % COPY_AT < len;
    file.iter().enumerate().position(|(at, byte)| *byte != 0 && !inside(at))
}
