//! Every byte format of this crate: slices in, values out. No I/O, no places but those handed in.
//!
//! All integers are little-endian. `docs/format.md` tells the same story byte by byte.

pub(crate) mod cursor;
pub(crate) mod frame;
pub(crate) mod meta;
pub(crate) mod registry;
pub(crate) mod segment_header;
pub(crate) mod slots;

/// The format version that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u16 = 1;

/// Identifies a log: drawn at random when it is created, and part of the seed of every checksum.
pub(crate) type LogId = [u8; 16];

/// Why a fixed-size header (of a segment, the meta file, a cursor) could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Nothing but zeros, or too short to hold one: never written.
    Blank,
    /// Written by a newer version of this format.
    Version {
        /// Its version.
        found: u16,
        /// Whether the checksum says so too. If not, it may be damage to the version itself.
        sure: bool,
    },
    /// Neither blank nor whole.
    Damaged,
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// The `N` bytes at `at`. The caller has checked the length: a slice that is too short is a bug of ours.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Reads the part that all fixed-size headers share in every version of the format: magic, version, length, and a CRC-32 in the last four
/// bytes of that length.
///
/// The version is looked at even where the CRC fails, so that a newer layout is called newer and not damaged.
pub(crate) fn check_header(all: &[u8], len: usize, magic: &[u8; 8], seed: u32) -> Result<(), HeaderError> {
    let Some(bytes) = all.get(..len) else {
        return Err(if all.iter().all(|b| *b == 0) {
            HeaderError::Blank
        } else {
            HeaderError::Damaged
        });
    };
    if bytes.iter().all(|b| *b == 0) {
        return Err(HeaderError::Blank);
    }
    if bytes[..8] != magic[..] {
        return Err(HeaderError::Damaged);
    }
    let version = u16_at(bytes, 8);
    if version > FORMAT_VERSION {
        let stated = bytes_of(all, u32_at(bytes, 12));
        let sure = stated.is_some_and(|b| u32_at(b, b.len() - 4) == crc32(seed, &b[..b.len() - 4]));
        return Err(HeaderError::Version { found: version, sure });
    }
    if version == 0 || u32_at(bytes, len - 4) != crc32(seed, &bytes[..len - 4]) {
        return Err(HeaderError::Damaged);
    }
    Ok(())
}

/// Most that a sequence number or a generation can be. Nothing that counts up comes so far; a value beyond is no honest one, and adding one to
/// it must not overflow.
const COUNTER_MAX: u64 = u64::MAX / 2;

/// Refuses values that no writer of ours has counted up to.
pub(crate) fn check_counters(counters: &[u64]) -> Result<(), HeaderError> {
    if counters.iter().any(|n| *n > COUNTER_MAX) {
        return Err(HeaderError::Damaged);
    }
    Ok(())
}

/// The first `len` bytes, where that is a length that a header can have.
fn bytes_of(all: &[u8], len: u32) -> Option<&[u8]> {
    let len = usize::try_from(len).ok().filter(|len| *len >= 16)?;
    all.get(..len)
}

/// Fills in the part that [`check_header`] reads, after the fields are in place.
pub(crate) fn finish_header(bytes: &mut [u8], magic: &[u8; 8], seed: u32) {
    put(bytes, 0, magic);
    put(bytes, 8, &FORMAT_VERSION.to_le_bytes());
    let len = u32::try_from(bytes.len()).expect("headers are small");
    put(bytes, 12, &len.to_le_bytes());
    let at = bytes.len() - 4;
    let crc = crc32(seed, &bytes[..at]);
    put(bytes, at, &crc.to_le_bytes());
}

/// CRC-32 (IEEE) of `bytes`, started from `seed`. For given bytes it is a bijection of the seed: bytes that move to a
/// place with another seed fail for certain, not just probably.
pub(crate) fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// The better of two copies, each with its sequence number: the newest that could be read. A copy that is for certain of a newer
/// version of the format beats one that could be read. Where neither could, the error that says most: a newer version before
/// damage, damage before blank.
pub(crate) fn newest<T>(
    a: Result<T, HeaderError>,
    b: Result<T, HeaderError>,
    seq: impl Fn(&T) -> u64,
) -> Result<T, HeaderError> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok(if seq(&a) >= seq(&b) { a } else { b }),
        (Err(e @ HeaderError::Version { sure: true, .. }), _)
        | (_, Err(e @ HeaderError::Version { sure: true, .. })) => Err(e),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(e @ HeaderError::Version { .. }), Err(_)) | (Err(_), Err(e @ HeaderError::Version { .. })) => Err(e),
        (Err(HeaderError::Blank), Err(HeaderError::Blank)) => Err(HeaderError::Blank),
        (Err(_), Err(_)) => Err(HeaderError::Damaged),
    }
}
