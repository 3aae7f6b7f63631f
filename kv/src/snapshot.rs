//! One instant of the store.

use std::ops::{Bound, RangeBounds};

use wal::Offset;

use crate::map::{Entries, Value};
use crate::state::State;

/// The store after the records `[0, offset)`, for as long as it is kept. Blocks nobody; holds on to what it shows.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) state: State,
}

impl Snapshot {
    /// The offset of the first record that is not in it.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.state.applied
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.state.map.get(key.as_ref())
    }

    /// Whether `key` is there.
    #[must_use]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.state.map.contains(key.as_ref())
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.map.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state.map.bytes()
    }

    /// All entries, by key.
    #[must_use]
    pub fn iter(&self) -> Entries {
        self.range::<&[u8]>(..)
    }

    /// The entries whose keys are in `range`, by key, from either end. Empty where the bounds cross.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Entries {
        let bound = |b: Bound<&K>| match b {
            Bound::Included(k) => Bound::Included(k.as_ref().to_vec()),
            Bound::Excluded(k) => Bound::Excluded(k.as_ref().to_vec()),
            Bound::Unbounded => Bound::Unbounded,
        };
        self.state
            .map
            .entries(&bound(range.start_bound()), &bound(range.end_bound()))
    }

    /// The entries whose keys begin with `prefix`, by key.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Entries {
        let prefix = prefix.as_ref();
        let end = match after_prefix(prefix) {
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        self.state.map.entries(&Bound::Included(prefix.to_vec()), &end)
    }
}

impl IntoIterator for &Snapshot {
    type Item = (crate::Key, Value);
    type IntoIter = Entries;

    fn into_iter(self) -> Entries {
        self.iter()
    }
}

/// The first key behind all keys with the prefix; `None` where there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_right_at_the_edges() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
