//! The change feed: what the log's records say about keys.

use std::time::Duration;

use wal::{Offset, Tail};

use crate::command;
use crate::error::{Error, Result};

/// What one write did, all of it at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The offset of the write.
    pub offset: Offset,
    /// Its changes, in the order in which they were asked for.
    pub changes: Vec<Change>,
}

/// What happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// Its value from then on; `None` where it was deleted.
    pub value: Option<Vec<u8>>,
}

impl Committed {
    /// Reads a record of the store's log, as a [`wal::Consumer`] or [`wal::Reader`] hands it out.
    ///
    /// # Errors
    /// [`Error::NotAWrite`].
    pub fn decode(offset: Offset, record: &[u8]) -> Result<Self> {
        let command = command::decode(record).map_err(|reason| Error::NotAWrite { offset, reason })?;
        let changes = command.ops.iter().map(|op| Change {
            key: op.key().to_vec(),
            value: op.value().map(<[u8]>::to_vec),
        });
        Ok(Self {
            offset,
            changes: changes.collect(),
        })
    }
}

/// Every committed write, once and in order, from some offset on.
///
/// It sees durable writes only, so no crash takes back what it has shown, under any policy. It has no memory of its own: a
/// [`wal::Consumer`] ([`crate::Store::consumer`]) keeps its place across restarts.
#[derive(Debug)]
pub struct Watch {
    tail: Tail,
    prefix: Vec<u8>,
}

impl Watch {
    pub(crate) fn new(tail: Tail) -> Self {
        Self {
            tail,
            prefix: Vec::new(),
        }
    }

    /// Shows only changes of keys that begin with `prefix`; writes without any are left out.
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = prefix.as_ref().to_vec();
        self
    }

    /// The offset of the write that is looked at next.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.tail.offset()
    }

    /// The next write, waiting for it without polling. `None` when the store was closed and everything has been shown.
    ///
    /// # Errors
    /// [`Error::Log`], also [`wal::Error::OutOfRange`] where the log no longer holds what comes next; [`Error::NotAWrite`].
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator could not tell the end of the store from an error"
    )]
    pub fn next(&mut self) -> Result<Option<Committed>> {
        loop {
            let Some(record) = self.tail.next()? else {
                return Ok(None);
            };
            let committed = Committed::decode(record.offset, record.bytes)?;
            if let Some(seen) = self.keep(committed) {
                return Ok(Some(seen));
            }
        }
    }

    /// As [`Watch::next`], waiting no longer than `timeout` for each write that is looked at. `None` then, too.
    ///
    /// # Errors
    /// As [`Watch::next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Committed>> {
        loop {
            let Some(record) = self.tail.next_timeout(timeout)? else {
                return Ok(None);
            };
            let committed = Committed::decode(record.offset, record.bytes)?;
            if let Some(seen) = self.keep(committed) {
                return Ok(Some(seen));
            }
        }
    }

    fn keep(&self, mut committed: Committed) -> Option<Committed> {
        if self.prefix.is_empty() {
            return Some(committed);
        }
        committed.changes.retain(|change| change.key.starts_with(&self.prefix));
        (!committed.changes.is_empty()).then_some(committed)
    }
}
