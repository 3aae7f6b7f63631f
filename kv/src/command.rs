//! The bytes of a write, as one record of the log.
//!
//! ```text
//! 0 u8  encoding   1: bincode 1.3, little-endian, variable-length integers
//! 1 …   Command    namespace, then the operations in order
//! ```
//!
//! A write holds absolute effects only: what a key is to be, never a condition. This is the only module that knows bincode; golden bytes below pin
//! what it writes.

use bincode::Options as _;
use serde::{Deserialize, Serialize};

/// The encoding that this code writes.
const ENCODING: u8 = 1;

/// A write: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Command<'a> {
    /// Room for more than one map in one log. Always 0 so far.
    pub(crate) namespace: u32,
    #[serde(borrow)]
    pub(crate) ops: Vec<Op<'a>>,
}

/// One absolute effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op<'a> {
    Put {
        #[serde(with = "serde_bytes", borrow)]
        key: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        value: &'a [u8],
    },
    Delete {
        #[serde(with = "serde_bytes", borrow)]
        key: &'a [u8],
    },
}

impl<'a> Op<'a> {
    pub(crate) fn key(&self) -> &'a [u8] {
        match *self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    /// What the key is afterwards.
    pub(crate) fn value(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Put { value, .. } => Some(value),
            Self::Delete { .. } => None,
        }
    }
}

fn codec() -> impl bincode::Options {
    bincode::DefaultOptions::new()
        .with_little_endian()
        .with_varint_encoding()
}

/// The record of a write.
pub(crate) fn encode(command: &Command<'_>) -> Vec<u8> {
    let bytes: usize = command
        .ops
        .iter()
        .map(|op| op.key().len() + op.value().map_or(0, <[u8]>::len) + 8)
        .sum();
    let mut out = Vec::with_capacity(bytes + 8);
    out.push(ENCODING);
    codec()
        .serialize_into(&mut out, command)
        .expect("plain data into memory");
    out
}

/// The write in a record. Memory is bounded by the record: lengths that promise more than it holds are refused.
pub(crate) fn decode(record: &[u8]) -> Result<Command<'_>, String> {
    let (encoding, body) = record.split_first().ok_or("it is empty")?;
    if *encoding != ENCODING {
        return Err(format!("its encoding is {encoding}, this version knows {ENCODING}"));
    }
    let command: Command<'_> = codec()
        .reject_trailing_bytes()
        .deserialize(body)
        .map_err(|e| e.to_string())?;
    if command.namespace != 0 {
        return Err(format!("its namespace is {}, this version knows 0", command.namespace));
    }
    Ok(command)
}

/// The bytes of a typed value.
pub(crate) fn encode_value<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    let mut out = vec![ENCODING];
    codec().serialize_into(&mut out, value).map_err(|e| e.to_string())?;
    Ok(out)
}

/// The typed value in bytes.
pub(crate) fn decode_value<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let (encoding, body) = bytes.split_first().ok_or("it is empty")?;
    if *encoding != ENCODING {
        return Err(format!("its encoding is {encoding}, this version knows {ENCODING}"));
    }
    let limit = body.len() as u64;
    codec()
        .with_limit(limit)
        .reject_trailing_bytes()
        .deserialize(body)
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Command<'static> {
        Command {
            namespace: 0,
            ops: vec![
                Op::Put {
                    key: b"k",
                    value: b"value",
                },
                Op::Delete { key: b"" },
                Op::Put { key: b"\0", value: b"" },
            ],
        }
    }

    #[test]
    fn l13_the_bytes_of_a_write_never_change() {
        let golden = [
            1, // encoding
            0, // namespace
            3, // operations
            0, 1, b'k', 5, b'v', b'a', b'l', b'u', b'e', // put
            1, 0, // delete
            0, 1, 0, 0, // put of an empty value
        ];
        assert_eq!(encode(&sample()), golden);
        assert_eq!(decode(&golden).unwrap(), sample());
    }

    #[test]
    fn what_is_cut_or_longer_or_newer_is_refused() {
        let bytes = encode(&sample());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(decode(&longer).is_err());
        let mut newer = bytes.clone();
        newer[0] = 2;
        assert!(decode(&newer).unwrap_err().contains("encoding is 2"));
        let mut elsewhere = bytes;
        elsewhere[1] = 1;
        assert!(decode(&elsewhere).unwrap_err().contains("namespace"));
    }

    #[test]
    fn l7_a_length_that_lies_takes_no_memory() {
        let huge = [1, 0, 253, 255, 255, 255, 255, 255, 255, 255, 127];
        assert!(decode(&huge).is_err());
        let huge_key = [1, 0, 1, 0, 253, 255, 255, 255, 255, 255, 255, 255, 127, 0];
        assert!(decode(&huge_key).is_err());
    }
}
