//! `consumers.list`: which consumers there are, by the names of their files. It is what tells a consumer whose file was lost from one
//! that never was, whose position would then be taken for the beginning.
//!
//! Replaced whole whenever a consumer is made or removed.
//!
//! ```text
//!  0  8   magic "WALREGI1"
//!  8 u16  version
//! 10 u16  0
//! 12 u32  length of the file
//! 16 16   log id
//! 32 …    for each consumer: u8 length, then the name of its file
//!    u32  CRC-32 of all before it
//! ```

use super::{HeaderError, LogId, array_at, check_header, finish_header, put};

pub(crate) const FILE_NAME: &str = "consumers.list";
const MAGIC: &[u8; 8] = b"WALREGI1";
const HEADER_LEN: usize = 32;
/// Most bytes that are read: some hundred thousand consumers.
pub(crate) const LEN_MAX: usize = 16 << 20;

pub(crate) fn encode<'a>(log: &LogId, files: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    put(&mut bytes, 16, log);
    for file in files {
        bytes.push(u8::try_from(file.len()).expect("names of files are short"));
        bytes.extend_from_slice(file.as_bytes());
    }
    bytes.extend_from_slice(&[0; 4]);
    finish_header(&mut bytes, MAGIC, 0);
    bytes
}

/// The log that the list belongs to, and the names in it.
pub(crate) fn decode(bytes: &[u8]) -> Result<(LogId, Vec<String>), HeaderError> {
    check_header(bytes, bytes.len().max(HEADER_LEN + 4), MAGIC, 0)?;
    let mut rest = &bytes[HEADER_LEN..bytes.len() - 4];
    let mut files = Vec::new();
    while let Some((len, more)) = rest.split_first() {
        let (name, more) = more.split_at_checked(usize::from(*len)).ok_or(HeaderError::Damaged)?;
        files.push(String::from_utf8(name.to_vec()).map_err(|_| HeaderError::Damaged)?);
        rest = more;
    }
    Ok((array_at(bytes, 16), files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_short_is_damage_whatever_its_sums_say() {
        for len in 20..HEADER_LEN + 4 {
            let mut bytes = vec![0; len];
            finish_header(&mut bytes, MAGIC, 0);
            assert_eq!(decode(&bytes), Err(HeaderError::Damaged), "{len} bytes");
        }
    }

    #[test]
    fn round_trip_and_no_change_goes_unnoticed() {
        for files in [vec![], vec!["consumer-a-0.offset"], vec!["a", "b", ""]] {
            let bytes = encode(&[7; 16], files.iter().copied());
            let (log, names) = decode(&bytes).unwrap();
            assert_eq!((log, names), ([7; 16], files.iter().map(|f| (*f).to_owned()).collect()));
            for at in 0..bytes.len() {
                let mut hurt = bytes.clone();
                hurt[at] ^= 4;
                assert!(decode(&hurt).is_err(), "byte {at}");
                assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
            }
        }
    }
}
