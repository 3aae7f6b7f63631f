//! The store: a map in memory that the log is the truth of.

mod checkpoints;
mod write;

use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use wal::storage::{FsStorage, Storage};
use wal::{Consumer, ConsumerInfo, ConsumerOptions, Durability, Offset, Wal};

use crate::batch::Batch;
use crate::checkpoint;
use crate::error::{Error, Result};
use crate::feed::Watch;
use crate::load::{self, OpenReport};
use crate::map::{Entries, Value};
use crate::options::{History, Options};
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::stats::Stats;
use crate::typed::Typed;
use checkpoints::Checkpoints;
use write::Sequencer;

pub use write::{Swap, Update};

/// The consumer that keeps the store's place in the log, so that retention keeps what its checkpoints need.
const CONSUMER: &str = "kv-store";

/// An embedded key-value store, ordered by key bytes.
///
/// Cheap to clone and to share between threads: all clones are one store. [`Store::close`] ends it in order; dropping the last clone does the
/// same, but cannot tell of errors.
///
/// Every write is one record of the log and returns its offset. A write returns when it is as durable as the policy, or its own
/// [`Durability`], asks, and only then is it seen: what a reader sees no crash takes back, except writes that asked for less.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

/// Ends the store when the last handle goes. The thread holds the core only.
#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Order of locks: `checkpoints.running`, `applier`, `sequencer`, `state`.
#[derive(Debug)]
struct Core {
    storage: Arc<dyn Storage>,
    log: Wal,
    options: Options,
    state: RwLock<State>,
    sequencer: Mutex<Sequencer>,
    /// One thread at a time moves writes from the sequencer into the state.
    applier: Mutex<()>,
    /// The applied offset moved.
    moved: Condvar,
    checkpoints: Checkpoints,
    report: Mutex<Arc<OpenReport>>,
}

impl Store {
    pub(crate) fn open_with(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        // Checkpoints are published only when the log is durable up to them: a log that ends before one has lost data.
        let known = load::known_durable(&*storage);
        let log = options
            .log
            .clone()
            .known_durable(known)
            .open_storage(Arc::clone(&storage))?;
        Self::open_on(log.clone(), storage, options).inspect_err(|_| {
            // Damage found by the replay: the log is left as it is.
            log.abandon();
        })
    }

    fn open_on(log: Wal, storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        // Whole records are durable by now, unless the disk is full: then some wait for the first write.
        let (state, mut report) = load::load(&*storage, &log, log.durable_end())?;
        report.log = log.report();
        let mut sequencer = Sequencer::default();
        sequencer.restart(state.applied, log.end());
        let kept = checkpoints::kept(&*storage, &log, report.checkpoint)?;
        let consumer = open_consumer(&log, &kept)?;
        let core = Arc::new(Core {
            checkpoints: Checkpoints::new(consumer, kept, report.replayed_bytes),
            sequencer: Mutex::new(sequencer),
            applier: Mutex::default(),
            moved: Condvar::new(),
            state: RwLock::new(state),
            report: Mutex::new(Arc::new(report)),
            storage,
            log,
            options,
        });
        let its_core = Arc::clone(&core);
        let thread = std::thread::Builder::new()
            .name("kv-checkpoint".to_owned())
            .spawn(move || its_core.checkpoint_in_background())
            .map_err(|e| Error::io("start a thread for", core.storage.root().display().to_string(), e))?;
        Ok(Self {
            shared: Arc::new(Shared {
                core,
                thread: Mutex::new(Some(thread)),
            }),
        })
    }

    fn core(&self) -> &Core {
        &self.shared.core
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// None so far; the signature leaves room for values that are not in memory.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Ok(self.core().state.read().map.get(key.as_ref()))
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.core().state.read().map.contains(key.as_ref()))
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core().state.read().map.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The store as it is now, for as long as it is wanted. Blocks nobody.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.core().state.read().clone(),
        }
    }

    /// The entries whose keys are in `range`, by key, from either end, of one instant.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Entries {
        self.snapshot().range(range)
    }

    /// The entries whose keys begin with `prefix`, by key, of one instant.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Entries {
        self.snapshot().prefix(prefix)
    }

    /// The store as it stood after the records `[0, offset)`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] where checkpoints and log no longer reach it, or do not reach it yet.
    pub fn at(&self, offset: Offset) -> Result<Snapshot> {
        let core = self.core();
        // No checkpoint is removed while it is being read.
        let _one = core.checkpoints.running.lock();
        let state = load::at(&*core.storage, &core.log, offset)?;
        Ok(Snapshot { state })
    }

    /// The offsets at which the store can be shown, both included.
    ///
    /// # Errors
    /// [`Error::Log`] where the directory cannot be read.
    pub fn history(&self) -> Result<std::ops::RangeInclusive<Offset>> {
        let core = self.core();
        Ok(load::history_start(&*core.storage, &core.log)?..=core.log.written_end())
    }

    /// Sets `key` to `value`. Returns the write's offset.
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::WriteTooLarge`]; [`Error::Log`] as [`Wal::append`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Offset> {
        let mut batch = Batch::new();
        batch.put(key, value);
        self.write(&batch)
    }

    /// Removes `key`, whether it is there or not. Returns the write's offset.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Offset> {
        let mut batch = Batch::new();
        batch.delete(key);
        self.write(&batch)
    }

    /// Does all that is in the batch, or nothing, as one write with one offset. An empty batch is a write too.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn write(&self, batch: &Batch) -> Result<Offset> {
        self.write_with(batch, self.core().log.policy().durability())
    }

    /// As [`Store::write`], acknowledged, and seen by readers, at the given level whatever the policy says. It is never seen before
    /// earlier writes are, so it may wait for those.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn write_with(&self, batch: &Batch, durability: Durability) -> Result<Offset> {
        self.core().write(batch, durability)
    }

    /// Sets `key` to `new` (`None`: removes it) if it is `expected` (`None`: is not there), atomically.
    ///
    /// Where it is not, nothing is logged, and the answer is what it is; that is already as durable as its own write asked.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn compare_and_swap(&self, key: impl AsRef<[u8]>, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.core().compare_and_swap(key.as_ref(), expected, new)
    }

    /// Sets `key` to what `update` makes of its value, atomically. `None` in is "not there", `None` out is "remove". `update` may be called more than
    /// once, where others write the key at the same time, and must not have effects of its own.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn fetch_and_update(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Update> {
        self.core().fetch_and_update(key.as_ref(), update)
    }

    /// One past the offset of the last write that readers see.
    #[must_use]
    pub fn applied(&self) -> Offset {
        self.core().state.read().applied
    }

    /// Waits until the write at `offset` is seen by readers. False after `timeout`.
    ///
    /// # Errors
    /// [`Error::Log`] with [`wal::Error::Poisoned`] where the store has stopped.
    pub fn wait_applied(&self, offset: Offset, timeout: Duration) -> Result<bool> {
        self.core().wait_applied(offset, Instant::now() + timeout)
    }

    /// Every committed write from `from` on, waiting for more at the end.
    ///
    /// # Errors
    /// [`Error::Log`] with [`wal::Error::OutOfRange`] outside of what the log retains.
    pub fn watch(&self, from: Offset) -> Result<Watch> {
        Ok(Watch::new(self.core().log.tail(from)?))
    }

    /// A named consumer of the store's log, to be opened: it keeps its own durable place. [`crate::Committed::decode`] reads its records.
    pub fn consumer(&self, name: &str) -> ConsumerOptions {
        self.core().log.consumer(name)
    }

    /// All consumers of the log, the store's own among them.
    #[must_use]
    pub fn consumers(&self) -> Vec<ConsumerInfo> {
        self.core().log.consumers()
    }

    /// Forgets a consumer and its position.
    ///
    /// # Errors
    /// As [`Wal::remove_consumer`].
    pub fn remove_consumer(&self, name: &str) -> Result<()> {
        Ok(self.core().log.remove_consumer(name)?)
    }

    /// Moves a consumer that is not open, also one whose position is lost.
    ///
    /// # Errors
    /// As [`Wal::reset_consumer`].
    pub fn reset_consumer(&self, name: &str, offset: Offset) -> Result<()> {
        Ok(self.core().log.reset_consumer(name, offset)?)
    }

    /// The first offset that may have been written at `time` or later. See [`Wal::offset_at`].
    ///
    /// # Errors
    /// As [`Wal::offset_at`].
    pub fn offset_at(&self, time: std::time::SystemTime) -> Result<Offset> {
        Ok(self.core().log.offset_at(time)?)
    }

    /// Makes every write so far durable. Returns the durable end.
    ///
    /// # Errors
    /// As [`Wal::sync`].
    pub fn sync(&self) -> Result<Offset> {
        Ok(self.core().log.sync()?)
    }

    /// Makes a checkpoint now. Returns its applied offset. Readers and writers go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Log`] where it could not be written: the one before stays in force, and it can be tried again.
    pub fn checkpoint(&self) -> Result<Offset> {
        self.core().checkpoint()
    }

    /// The failure of the last checkpoint that was made in the background, until one succeeds. The store works on meanwhile; its log
    /// grows, and the next open takes longer.
    #[must_use]
    pub fn checkpoint_failure(&self) -> Option<Error> {
        self.core().checkpoints.failure()
    }

    /// Copies the store as it is now, log, consumers and checkpoints, into the directory `dir`, which must be missing or empty. Writing goes
    /// on meanwhile. Returns the end of the copy.
    ///
    /// # Errors
    /// As [`Wal::backup`].
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<Offset> {
        self.backup_to(&(Arc::new(FsStorage::new(dir.as_ref())) as Arc<dyn Storage>))
    }

    /// As [`Store::backup`], to a storage of the caller's.
    ///
    /// # Errors
    /// As [`Wal::backup`].
    pub fn backup_to(&self, to: &Arc<dyn Storage>) -> Result<Offset> {
        let core = self.core();
        // No checkpoint comes or goes meanwhile.
        let _one = core.checkpoints.running.lock();
        let end = core.log.backup_to(to)?;
        checkpoint::copy(&*core.storage, &**to, end)?;
        Ok(end)
    }

    /// What opening found, or the last [`Store::reopen`].
    #[must_use]
    pub fn report(&self) -> Arc<OpenReport> {
        Arc::clone(&self.core().report.lock())
    }

    /// Numbers about the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core().stats()
    }

    /// Recovers in place after a failure stopped the log: as closing and opening, keeping the lock. Writes whose outcome was unknown
    /// are there now or gone for good.
    ///
    /// # Errors
    /// As [`Options::open`]: the store stays stopped, and can be told again to reopen where the log could not be; where the log was, and the
    /// map could not be loaded, the store ends ([`wal::Error::Closed`]) and is to be opened anew. [`wal::Error::InvalidOption`] where it has
    /// not failed.
    pub fn reopen(&self) -> Result<()> {
        self.core().reopen()
    }

    /// Ends the store in order: everything durable, the log marked as closed. Later writes get [`wal::Error::Closed`]; reads go on.
    ///
    /// # Errors
    /// As [`Wal::close`]; and the failure of the last checkpoint in the background, if there is one: nothing is lost by it.
    pub fn close(&self) -> Result<()> {
        self.shared.close()
    }

    /// The values under `prefix` as values of a serde type.
    #[must_use]
    pub fn typed<T: serde::Serialize + serde::de::DeserializeOwned>(&self, prefix: impl AsRef<[u8]>) -> Typed<T> {
        Typed::new(self.clone(), prefix.as_ref())
    }
}

impl Shared {
    fn close(&self) -> Result<()> {
        self.core.checkpoints.stop();
        if let Some(thread) = self.thread.lock().take() {
            // A panic there was told as a failure of the checkpoint.
            let _ = thread.join();
        }
        self.core.log.close()?;
        self.core.checkpoints.failure().map_or(Ok(()), Err)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Nobody is left to be told. What was acknowledged durable is.
        let _ = self.close();
    }
}

/// Opens the consumer that holds back what the kept checkpoints need. Its place follows from them, so one that is lost is made anew.
fn open_consumer(log: &Wal, kept: &[Offset]) -> Result<Consumer> {
    let open = || log.consumer(CONSUMER).protected(true).open();
    Ok(match open() {
        Err(wal::Error::ConsumerDamaged { .. }) => {
            let floor = if kept.len() == checkpoint::KEPT {
                kept.last().copied()
            } else {
                None
            };
            log.reset_consumer(CONSUMER, floor.unwrap_or(log.start()))?;
            open()?
        }
        other => other?,
    })
}

impl Core {
    fn reopen(&self) -> Result<()> {
        let _one = self.checkpoints.running.lock();
        let _applier = self.applier.lock();
        let mut sequencer = self.sequencer.lock();
        self.log.reopen()?;
        // The log is whole again, and the map is that of before: without the one that belongs to it, nothing may be written.
        let loaded = load::load(&*self.storage, &self.log, self.log.durable_end());
        let (state, mut report) = loaded.inspect_err(|_| self.log.abandon())?;
        report.log = self.log.report();
        // What was in flight is in the log now, or nowhere.
        sequencer.restart(state.applied, self.log.end());
        *self.state.write() = state;
        *self.report.lock() = Arc::new(report);
        self.moved.notify_all();
        Ok(())
    }

    fn stats(&self) -> Stats {
        let state = self.state.read().clone();
        Stats {
            keys: state.map.len() as u64,
            bytes: state.map.bytes(),
            applied: state.applied,
            log: self.log.stats(),
            ..self.checkpoints.stats()
        }
    }

    fn follows_checkpoints(&self) -> bool {
        self.options.history == History::Checkpoints
    }
}
