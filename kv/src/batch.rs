//! Writes that belong together.

use crate::command::Op;

/// Changes that are made together or not at all. Later ones of the same key win.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    ops: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Batch {
    /// A batch without changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.ops.push((key.as_ref().to_vec(), Some(value.as_ref().to_vec())));
        self
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.ops.push((key.as_ref().to_vec(), None));
        self
    }

    /// How many changes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(crate) fn ops(&self) -> impl Iterator<Item = Op<'_>> {
        self.ops.iter().map(|(key, value)| match value {
            Some(value) => Op::Put { key, value },
            None => Op::Delete { key },
        })
    }
}
