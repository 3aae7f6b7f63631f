//! One entry: key and value in one allocation, shared by reference count.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The key's length, as four bytes, then key and value.
#[derive(Clone)]
pub(crate) struct Entry(Arc<[u8]>);

const LEN: usize = 4;

impl Entry {
    pub(crate) fn new(key: &[u8], value: &[u8]) -> Self {
        let len = u32::try_from(key.len())
            .expect("keys have a limit far below 4 GiB")
            .to_le_bytes();
        // From an iterator whose length is known, the allocation is made once and filled in place.
        let total = LEN + key.len() + value.len();
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, total).collect();
        let out = Arc::get_mut(&mut bytes).expect("just made");
        out[..LEN].copy_from_slice(&len);
        out[LEN..LEN + key.len()].copy_from_slice(key);
        out[LEN + key.len()..].copy_from_slice(value);
        Self(bytes)
    }

    fn value_at(&self) -> usize {
        let mut len = [0; LEN];
        len.copy_from_slice(&self.0[..LEN]);
        LEN + u32::from_le_bytes(len) as usize
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0[LEN..self.value_at()]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.0[self.value_at()..]
    }

    /// Bytes of key and value.
    pub(crate) fn size(&self) -> u64 {
        (self.0.len() - LEN) as u64
    }

    pub(crate) fn to_value(&self) -> Value {
        Value(self.clone())
    }

    pub(crate) fn to_key(&self) -> Key {
        Key(self.clone())
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key().escape_ascii(), self.value().escape_ascii())
    }
}

/// A value of the store, shared and not copied. Dereferences to its bytes.
///
/// It keeps its entry in memory for as long as it is held; what is to be kept long is better copied out.
#[derive(Clone)]
pub struct Value(Entry);

/// A key of the store, shared and not copied. Dereferences to its bytes.
#[derive(Clone)]
pub struct Key(Entry);

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.value()
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.key()
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(Entry::new(b"", bytes))
    }
}

macro_rules! bytes_like {
    ($($name:ident),*) => {$(
        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                self
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                **self == **other
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                (**self).cmp(other)
            }
        }

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                (**self).hash(state);
            }
        }

        impl PartialEq<[u8]> for $name {
            fn eq(&self, other: &[u8]) -> bool {
                **self == *other
            }
        }

        impl PartialEq<&[u8]> for $name {
            fn eq(&self, other: &&[u8]) -> bool {
                **self == **other
            }
        }

        impl<const N: usize> PartialEq<[u8; N]> for $name {
            fn eq(&self, other: &[u8; N]) -> bool {
                **self == *other
            }
        }

        impl<const N: usize> PartialEq<&[u8; N]> for $name {
            fn eq(&self, other: &&[u8; N]) -> bool {
                **self == **other
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{}\"", self.escape_ascii())
            }
        }
    )*};
}

bytes_like!(Key, Value);
