//! The open consumer: reads, and commits what was handed out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::registry::{Consumers, Registered};
use crate::codec::cursor::Anchor;
use crate::error::{Error, Result};
use crate::log::reader::{Reader, Record};
use crate::offset::Offset;
use crate::options::{Delivery, Reset};

/// How long a lazy commit may wait to be written.
const LAZY_DELAY: Duration = Duration::from_millis(200);

/// A reader with a name and a durable position. One at a time for each name; dropping it changes nothing on disk.
///
/// It sees only durable records, so no crash can take back what it has handled.
#[derive(Debug)]
pub struct Consumer {
    pub(super) consumers: Arc<Consumers>,
    pub(super) registered: Arc<Registered>,
    pub(super) reader: Reader,
    pub(super) delivery: Delivery,
    pub(super) reset: Reset,
    /// Whether the caller knows that its next record is gone.
    pub(super) told: bool,
}

impl Consumer {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.registered.name
    }

    /// The committed offset: where it goes on after a crash. Lazy commits count when they are written.
    #[must_use]
    pub fn committed(&self) -> Offset {
        self.registered.state.lock().cursor.committed
    }

    /// The offset of the record that it is handed next.
    #[must_use]
    pub fn position(&self) -> Offset {
        self.reader.offset()
    }

    /// How many durable records it has not been handed.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.consumers.log.durable().offset.saturating_sub(self.reader.offset())
    }

    /// The next record; `None` at the durable end. Under [`Delivery::AtMostOnce`] its offset is committed, durably, first.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] where retention removed the next record; what the next call does then is the consumer's [`Reset`].
    /// [`Error::Corrupt`]; [`Error::Io`]; under `AtMostOnce` those of [`Consumer::commit`], and then no record was handed out.
    #[allow(
        clippy::should_implement_trait,
        reason = "the record borrows from the reader, which `Iterator` cannot say"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        if !self.ready()? {
            return Ok(None);
        }
        if self.delivery == Delivery::AtMostOnce {
            let next = self.reader.offset() + 1;
            let anchor = self.reader.anchor();
            self.commit_at(next, anchor)?;
        }
        self.reader.next()
    }

    /// As [`Consumer::next`], waiting up to `timeout` for a record.
    ///
    /// # Errors
    /// As [`Consumer::next`], and [`Error::Poisoned`] when the log has stopped and there is nothing more to read.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        self.reader.wait(Some(Instant::now() + timeout))?;
        self.next()
    }

    /// Up to `max` records, copied out. Under [`Delivery::AtMostOnce`] all of them are committed, in one sync, before they are
    /// handed out.
    ///
    /// # Errors
    /// As [`Consumer::next`], where it strikes the first of them: the position is unchanged, nothing was handed out. Later ones make it fewer
    /// records, and come with the next call.
    pub fn poll(&mut self, max: usize) -> Result<Vec<(Offset, Vec<u8>)>> {
        let mut records = Vec::new();
        let from = self.reader.offset();
        let mut anchor = None;
        while records.len() < max {
            match self.ready() {
                Ok(true) => {}
                Ok(false) => break,
                // What was read before is handed out; the error comes with the next call.
                Err(_) if !records.is_empty() => {
                    self.told = false;
                    break;
                }
                Err(e) => return Err(e),
            }
            anchor = self.reader.anchor();
            // It has been read, so this neither fails nor ends.
            let Some(record) = self.reader.next()? else { break };
            records.push((record.offset, record.bytes.to_vec()));
        }
        if self.delivery == Delivery::AtMostOnce
            && !records.is_empty()
            && let Err(e) = self.commit_at(self.reader.offset(), anchor)
        {
            self.reader.go(from);
            return Err(e);
        }
        Ok(records)
    }

    /// Moves to the next record, following the reset rule where it is gone.
    fn ready(&mut self) -> Result<bool> {
        match self.reader.ready() {
            Err(e @ Error::OutOfRange { .. }) => {
                let to = match self.reset {
                    _ if !self.told => None,
                    Reset::Fail => None,
                    Reset::Earliest => Some(self.consumers.log.start()),
                    Reset::Latest => Some(self.consumers.log.durable().offset),
                };
                self.told = true;
                match to {
                    Some(to) => {
                        self.reader.go(to);
                        self.told = false;
                        self.reader.ready()
                    }
                    None => Err(e),
                }
            }
            other => other,
        }
    }

    /// Commits everything handed out so far. Durable when it returns. Returns the committed offset.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::NoSpace`]: the position on disk is the one before or the new one; later commits get
    /// [`Error::Poisoned`] until the consumer is opened anew. [`Error::Closed`].
    pub fn commit(&mut self) -> Result<Offset> {
        let offset = self.reader.offset();
        let anchor = self.anchor_below(offset)?;
        if offset != self.committed() || self.registered.state.lock().pending.is_some() {
            self.commit_at(offset, anchor)?;
        }
        Ok(offset)
    }

    /// Commits everything below `offset`, which must be in `committed..=position`. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::CommitOutOfRange`], and those of [`Consumer::commit`].
    pub fn commit_to(&mut self, offset: Offset) -> Result<()> {
        let (committed, handed) = (self.committed(), self.reader.offset());
        if !(committed..=handed).contains(&offset) {
            return Err(Error::CommitOutOfRange {
                name: self.name().to_owned(),
                wanted: offset,
                committed,
                handed,
            });
        }
        let anchor = self.anchor_below(offset)?;
        self.commit_at(offset, anchor)
    }

    /// Commits everything handed out so far, some time: within about 200 ms, and at close. Costs no sync here; a crash repeats what
    /// was not written yet. A failure is told by the next [`Consumer::commit`], and by close.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where an earlier commit failed.
    pub fn commit_lazy(&mut self) -> Result<()> {
        let offset = self.reader.offset();
        let anchor = self.anchor_below(offset)?;
        let mut state = self.registered.state.lock();
        if let Some(cause) = &state.failed {
            return Err(Error::Poisoned {
                cause: Arc::clone(cause),
            });
        }
        if state.pending.is_some_and(|(pending, _)| pending >= offset) || state.cursor.committed >= offset {
            return Ok(());
        }
        let first = state.pending.is_none();
        state.pending = Some((offset, anchor));
        drop(state);
        if first {
            self.consumers.log.call_by(Instant::now() + LAZY_DELAY);
        }
        Ok(())
    }

    /// Moves to `offset`, in either direction, and commits it. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]: it stays where it was. Those of [`Consumer::commit`].
    pub fn seek(&mut self, offset: Offset) -> Result<()> {
        let log = &self.consumers.log;
        let (start, end) = (log.start(), log.durable().offset);
        if !(start..=end).contains(&offset) {
            return Err(Error::OutOfRange {
                wanted: offset,
                start,
                end,
            });
        }
        let anchor = log.anchor(offset)?;
        self.commit_at(offset, anchor)?;
        self.reader.go(offset);
        self.told = false;
        Ok(())
    }

    fn commit_at(&self, offset: Offset, anchor: Option<Anchor>) -> Result<()> {
        let mut state = self.registered.state.lock();
        self.consumers.commit(&self.registered, &mut state, offset, anchor)
    }

    fn anchor_below(&self, offset: Offset) -> Result<Option<Anchor>> {
        let state = self.registered.state.lock();
        if offset == state.cursor.committed {
            return Ok(state.cursor.anchor);
        }
        drop(state);
        match self.reader.last() {
            Some((last, anchor)) if last + 1 == offset => Ok(Some(anchor)),
            _ => self.consumers.log.anchor(offset),
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.registered.state.lock().open = false;
    }
}
