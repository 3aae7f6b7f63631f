//! The way of a write: a place in the order, the log, the map.
//!
//! A write is *sequenced*: it gets its offset and joins the queue of pending writes, both under one lock, so that the queue is in the order of
//! offsets. Its thread then waits for the log. When the log has it as durable as it asked, it is *applied* to the map with all that come before
//! it, by whichever thread comes first. So the map is always the fold of a prefix of the log, and readers never see what a crash could take
//! back, except writes that asked for less.
//!
//! Conditions are decided at the sequencer, against the map and the queue together: that is the state that the write will meet when it is
//! applied. The log holds the outcome, never the condition.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::MutexGuard;
use wal::{Durability, Offset, Ticket};

use super::Core;
use crate::batch::Batch;
use crate::command::{self, Op};
use crate::error::{Error, Result};
use crate::map::Value;
use crate::options::KEY_BYTES_MAX;

/// The answer to [`crate::Store::compare_and_swap`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the swap may not have been done"]
pub enum Swap {
    /// Done, by the write at this offset.
    Done(Offset),
    /// Not done: the key has this value (`None`: is not there).
    Found(Option<Value>),
}

impl Swap {
    /// Whether it was done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

/// What [`crate::Store::fetch_and_update`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The offset of the write.
    pub offset: Offset,
    /// What the key was before.
    pub before: Option<Value>,
}

/// Writes on their way from the log to the map.
#[derive(Debug, Default)]
pub(super) struct Sequencer {
    pending: VecDeque<Arc<Pending>>,
    /// One past the last applied write, for a look without the state's lock.
    applied: AtomicU64,
    /// Opening found whole records that it could not make durable, because the disk is full: they are applied up to here before
    /// the next write.
    catch_up: Option<Offset>,
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    record: Vec<u8>,
    /// What it was asked to be before it is seen.
    durability: Durability,
    /// The same, or more where an earlier write that is still pending asked for more.
    wait_for: Durability,
}

impl Pending {
    fn offset(&self) -> Offset {
        self.ticket.offset()
    }
}

impl Sequencer {
    /// After (re)opening: nothing is pending, and what is not yet durable waits.
    pub(super) fn restart(&mut self, applied: Offset, end: Offset) {
        self.pending.clear();
        self.applied.store(applied, Ordering::Relaxed);
        self.catch_up = (applied < end).then_some(end);
    }
}

impl Core {
    pub(super) fn write(&self, batch: &Batch, durability: Durability) -> Result<Offset> {
        let record = encode(batch)?;
        let mut sequencer = self.sequencer.lock();
        self.catch_up(&mut sequencer)?;
        let pending = self.sequence(&mut sequencer, record, durability)?;
        drop(sequencer);
        self.finish(&pending)
    }

    pub(super) fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        let mut batch = Batch::new();
        match new {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
        let record = encode(&batch)?;
        let mut sequencer = self.sequencer.lock();
        self.catch_up(&mut sequencer)?;
        let (current, writer) = self.latest(&sequencer, key);
        if current.as_deref() == expected {
            let pending = self.sequence(&mut sequencer, record, self.log.policy().durability())?;
            drop(sequencer);
            return self.finish(&pending).map(Swap::Done);
        }
        drop(sequencer);
        // What is told must not be taken back.
        if let Some(writer) = writer {
            self.finish(&writer)?;
        }
        Ok(Swap::Found(current))
    }

    pub(super) fn fetch_and_update(
        &self,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Update> {
        let mut before = self.state.read().map.get(key);
        loop {
            let after = update(before.as_deref());
            match self.compare_and_swap(key, before.as_deref(), after.as_deref())? {
                Swap::Done(offset) => return Ok(Update { offset, before }),
                Swap::Found(current) => before = current,
            }
        }
    }

    /// Makes durable, and applies, what opening could not.
    fn catch_up(&self, sequencer: &mut MutexGuard<'_, Sequencer>) -> Result<()> {
        let Some(end) = sequencer.catch_up else { return Ok(()) };
        self.log.sync()?;
        let mut state = self.state.write();
        let mut reader = self.log.reader(state.applied)?;
        state.replay(&mut reader, end)?;
        sequencer.catch_up = None;
        Ok(())
    }

    /// The value that `key` will have when all pending writes are applied, and the pending write that gives it, if one does.
    fn latest(&self, sequencer: &Sequencer, key: &[u8]) -> (Option<Value>, Option<Arc<Pending>>) {
        for pending in sequencer.pending.iter().rev() {
            let command = command::decode(&pending.record).unwrap_or_else(|e| unreachable!("encoded here: {e}"));
            if let Some(op) = command.ops.iter().rev().find(|op| op.key() == key) {
                return (op.value().map(Value::from), Some(Arc::clone(pending)));
            }
        }
        (self.state.read().map.get(key), None)
    }

    fn sequence(
        &self,
        sequencer: &mut MutexGuard<'_, Sequencer>,
        record: Vec<u8>,
        durability: Durability,
    ) -> Result<Arc<Pending>> {
        let ticket = self.log.sequence(&record, durability).map_err(|e| match e {
            wal::Error::RecordTooLarge { bytes, max } => Error::WriteTooLarge { bytes, max },
            other => other.into(),
        })?;
        let before = sequencer.pending.back().map_or(Durability::Buffered, |p| p.wait_for);
        let pending = Arc::new(Pending {
            ticket,
            record,
            durability,
            wait_for: durability.max(before),
        });
        sequencer.pending.push_back(Arc::clone(&pending));
        Ok(pending)
    }

    /// Waits until a write is as durable as it and those before it asked, and applied.
    fn finish(&self, pending: &Pending) -> Result<Offset> {
        pending.ticket.wait_for(pending.wait_for)?;
        self.apply_ready(pending.offset())?;
        Ok(pending.offset())
    }

    /// Applies every pending write that is as durable as it asked, in order. `wanted` is the one that the caller needs.
    fn apply_ready(&self, wanted: Offset) -> Result<()> {
        let _one = self.applier.lock();
        loop {
            let ready = {
                let sequencer = self.sequencer.lock();
                if sequencer.applied.load(Ordering::Relaxed) > wanted {
                    return Ok(());
                }
                self.ready(&sequencer)
            };
            if ready.is_empty() {
                return Ok(());
            }
            let mut bytes = 0;
            let applied = {
                let mut state = self.state.write();
                for pending in &ready {
                    // Applied by a reload that came between.
                    if pending.offset() >= state.applied {
                        state.apply(pending.offset(), &pending.record)?;
                        bytes += pending.record.len() as u64;
                    }
                }
                state.applied
            };
            // Only now do they leave the queue: until then the sequencer finds them there, after it in the map.
            let mut sequencer = self.sequencer.lock();
            while sequencer.pending.front().is_some_and(|p| p.offset() < applied) {
                sequencer.pending.pop_front();
            }
            sequencer.applied.store(applied, Ordering::Relaxed);
            drop(sequencer);
            self.moved.notify_all();
            self.checkpoints.count(bytes, &self.options);
        }
    }

    fn ready(&self, sequencer: &Sequencer) -> Vec<Arc<Pending>> {
        let (durable, written) = (self.log.durable_end(), self.log.written_end());
        let reached = |p: &&Arc<Pending>| match p.durability {
            Durability::Buffered => true,
            Durability::Written => p.offset() < written,
            Durability::Durable => p.offset() < durable,
        };
        sequencer.pending.iter().take_while(reached).cloned().collect()
    }

    pub(super) fn wait_applied(&self, offset: Offset, deadline: Instant) -> Result<bool> {
        let mut sequencer = self.sequencer.lock();
        loop {
            if self.state.read().applied > offset {
                return Ok(true);
            }
            if let Some(cause) = self.log.failure() {
                return Err(wal::Error::Poisoned { cause }.into());
            }
            if self.moved.wait_until(&mut sequencer, deadline).timed_out() {
                return Ok(self.state.read().applied > offset);
            }
        }
    }
}

/// The record of a batch, after its keys were checked.
fn encode(batch: &Batch) -> Result<Vec<u8>> {
    let ops: Vec<Op<'_>> = batch.ops().collect();
    if let Some(op) = ops.iter().find(|op| op.key().len() > KEY_BYTES_MAX) {
        return Err(Error::KeyTooLarge {
            bytes: op.key().len(),
            max: KEY_BYTES_MAX,
        });
    }
    Ok(command::encode(&command::Command { namespace: 0, ops }))
}
