//! When checkpoints are made, and what follows from them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::{Condvar, Mutex};
use wal::storage::Storage;
use wal::{Consumer, Offset, Wal};

use super::Core;
use crate::checkpoint::format::{Header, record_digest};
use crate::checkpoint::{self, KEPT};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::stats::Stats;

#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Held while one is made, or while its files must not change. Guards the consumer that holds the log back.
    pub(super) running: Mutex<Consumer>,
    progress: Mutex<Progress>,
    due: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// Applied offsets of those that are kept, newest first.
    kept: Vec<Offset>,
    /// Bytes applied since the newest.
    bytes_since: u64,
    last_file_bytes: u64,
    is_due: bool,
    stopped: bool,
    failure: Option<Error>,
    made: u64,
}

/// The checkpoints that count as kept after opening, newest first: the one that was loaded, and those before it.
pub(super) fn kept(storage: &dyn Storage, log: &Wal, loaded: Option<Offset>) -> Result<Vec<Offset>> {
    let Some(loaded) = loaded else { return Ok(Vec::new()) };
    let listed = checkpoint::list(storage)?;
    let of_log = listed
        .iter()
        .filter(|c| c.header.as_ref().is_ok_and(|h| h.log == log.id()));
    let older = of_log.map(|c| c.applied).filter(|s| (log.start()..=loaded).contains(s));
    Ok(older.take(KEPT).collect())
}

impl Checkpoints {
    pub(super) fn new(consumer: Consumer, kept: Vec<Offset>, bytes_since: u64) -> Self {
        Self {
            running: Mutex::new(consumer),
            progress: Mutex::new(Progress {
                kept,
                bytes_since,
                ..Progress::default()
            }),
            due: Condvar::new(),
        }
    }

    /// Counts bytes applied, and calls the background where it is time.
    pub(super) fn count(&self, bytes: u64, options: &Options) {
        let mut progress = self.progress.lock();
        progress.bytes_since += bytes;
        let after = options.checkpoint_bytes.max(progress.last_file_bytes / 2);
        if options.checkpoint_bytes > 0 && progress.bytes_since >= after && !progress.is_due {
            progress.is_due = true;
            self.due.notify_one();
        }
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.progress.lock().failure.clone()
    }

    pub(super) fn stop(&self) {
        self.progress.lock().stopped = true;
        self.due.notify_one();
    }

    pub(super) fn stats(&self) -> Stats {
        let progress = self.progress.lock();
        Stats {
            checkpoints: progress.kept.clone(),
            checkpoints_made: progress.made,
            bytes_since_checkpoint: progress.bytes_since,
            checkpoint_file_bytes: progress.last_file_bytes,
            ..Stats::default()
        }
    }

    /// Waits until one is due. False when the store is closed.
    fn wait(&self) -> bool {
        let mut progress = self.progress.lock();
        while !progress.is_due && !progress.stopped {
            self.due.wait(&mut progress);
        }
        !progress.stopped
    }
}

impl Core {
    /// Makes checkpoints until the store is closed.
    pub(super) fn checkpoint_in_background(&self) {
        while self.checkpoints.wait() {
            // A panic must not end checkpoints for good without a word.
            let result = catch_unwind(AssertUnwindSafe(|| self.checkpoint())).unwrap_or_else(|_| {
                let root = self.storage.root().display().to_string();
                Err(Error::io(
                    "make a checkpoint in",
                    root,
                    std::io::Error::other("it panicked"),
                ))
            });
            let mut progress = self.checkpoints.progress.lock();
            progress.is_due = false;
            progress.failure = result.err();
            if progress.failure.is_some() {
                // Not again before as much was written once more.
                progress.bytes_since = 0;
            }
        }
    }

    /// Makes a checkpoint of now.
    pub(super) fn checkpoint(&self) -> Result<Offset> {
        let mut consumer = self.checkpoints.running.lock();
        let state = self.state.read().clone();
        let bytes_before = self.checkpoints.progress.lock().bytes_since;
        let applied = state.applied;
        if self.checkpoints.progress.lock().kept.first() == Some(&applied) {
            return Ok(applied);
        }
        // Never ahead of the durable log. And never beside one that is closed: its directory may be another process's by now.
        self.log.sync()?;
        let last_record = match applied.checked_sub(1) {
            Some(last) if last >= self.log.start() => record_digest(&self.log.read(last)?),
            _ => 0,
        };
        let header = Header {
            log: self.log.id(),
            applied,
            last_record,
            created_ms: self.options.clock.unix_ms(),
        };
        let (_, file_bytes) = checkpoint::write(&*self.storage, &header, &state.map)?;
        drop(state);
        let kept = {
            let mut progress = self.checkpoints.progress.lock();
            progress.kept.insert(0, applied);
            progress.kept.truncate(KEPT);
            progress.bytes_since = progress.bytes_since.saturating_sub(bytes_before);
            progress.last_file_bytes = file_bytes;
            progress.made += 1;
            progress.failure = None;
            progress.kept.clone()
        };
        checkpoint::remove_old(&*self.storage, &kept);
        // With only one, a longer replay needs the log from its start.
        if let [_, oldest] = kept[..] {
            consumer.seek(oldest)?;
            if self.follows_checkpoints() {
                self.log.remove_before(oldest)?;
            }
        }
        Ok(applied)
    }
}
