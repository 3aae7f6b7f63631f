//! A small value that is replaced again and again, in a file of two slots written in turn.
//!
//! A replacement is one write and one data sync; replacing a whole small file takes two syncs and a rename, about four times
//! as long. The value with the higher sequence number counts. Each slot holds its value twice, in sectors of their own: a
//! crash in the middle of a write leaves the other slot, and one damaged sector leaves the other copy. Both slots are filled from the start,
//! and a crash spoils at most one copy. So where a slot has no copy left it is told, since the newest value may be what is gone. Only a torn
//! write brings an old one back unnoticed, in place of a value that nobody was told of.
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

/// A whole file that holds one value, in both slots: `value` gives it its sequence number, from 1.
pub(crate) fn encode_file(seq: u64, value: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let mut file = vec![0; FILE_LEN];
    for seq in [seq - 1, seq] {
        let (_, bytes) = encode(seq, &value(seq));
        put(&mut file, slot_of(seq) * SLOT_STRIDE, &bytes);
    }
    file
}

/// How much of a file can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    Sound,
    /// A copy is damaged, or torn by a crash, or the file is too short; the value is the newest all the same.
    CopyLost,
    /// No copy of one of the slots is left. No crash does that, and the value may be an old one.
    SlotLost,
}

/// The newest value of a file, as read by `decode` from the bytes of a copy and the number of its slot.
pub(crate) fn decode_file<T>(
    file: &[u8],
    decode: impl Fn(&[u8], usize) -> Result<T, HeaderError>,
    seq: impl Fn(&T) -> u64,
) -> Result<(T, Health), HeaderError> {
    let copy = |slot: usize, at: usize| {
        let value = decode(file.get(slot * SLOT_STRIDE + at..).unwrap_or_default(), slot)?;
        // A slot that says it belongs elsewhere was copied there.
        if slot_of(seq(&value)) == slot {
            Ok(value)
        } else {
            Err(HeaderError::Damaged)
        }
    };
    let mut best = Err(HeaderError::Blank);
    let mut health = if file.len() < FILE_LEN {
        Health::CopyLost
    } else {
        Health::Sound
    };
    for slot in [0, 1] {
        let copies = [copy(slot, 0), copy(slot, COPY_AT)];
        health = health.max(match copies.iter().filter(|c| c.is_err()).count() {
            0 => Health::Sound,
            1 => Health::CopyLost,
            _ => Health::SlotLost,
        });
        for copy in copies {
            best = newest(best, copy, &seq);
        }
    }
    best.map(|value| (value, health))
}

/// Positions that hold something although no value of `len` bytes lies there.
pub(crate) fn stray_bytes(file: &[u8], len: usize) -> Option<usize> {
    let inside = |at: usize| at < FILE_LEN && at % COPY_AT < len;
    file.iter().enumerate().position(|(at, byte)| *byte != 0 && !inside(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stray_bytes_are_those_where_no_copy_lies() {
        let value = [7; 100];
        let file = encode_file(1, |_| value.to_vec());
        assert_eq!(stray_bytes(&file, value.len()), None);
        for at in 0..FILE_LEN {
            let mut file = file.clone();
            file[at] ^= 1;
            let inside = at % COPY_AT < value.len();
            assert_eq!(stray_bytes(&file, value.len()), (!inside).then_some(at), "byte {at}");
        }
        let mut longer = file;
        longer.extend([0, 1]);
        assert_eq!(stray_bytes(&longer, value.len()), Some(FILE_LEN + 1));
    }
}
