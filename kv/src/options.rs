//! What can be chosen when a store is opened. Options may change from one run to the next; none is stored.

use std::path::Path;
use std::sync::Arc;

use wal::clock::{Clock, SystemClock};
use wal::storage::{FsStorage, Storage};
use wal::{FsyncPolicy, Offset};

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// How much of the log is kept behind the checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// What the two newest checkpoints, and consumers, still need. Disk use stays bounded under endless overwrites.
    #[default]
    Checkpoints,
    /// Everything, so that a consumer added later can replay all of history, and the store can be shown as it stood at any offset.
    /// [`wal::Options::retention`] may bound it.
    Everything,
}

/// Builds a [`Store`].
///
/// ```
/// # let dir = tempfile::tempdir()?; let path = dir.path().join("store");
/// let store = kv::Options::new().policy(wal::FsyncPolicy::Always).open(&path)?;
/// store.put("key", "value")?;
/// assert_eq!(store.get("key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) log: wal::Options,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) history: History,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 64 << 10;

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The defaults: those of [`wal::Options`], a checkpoint after 64 MiB of log, and no more of the log kept than checkpoints and
    /// consumers need.
    #[must_use]
    pub fn new() -> Self {
        Self {
            log: wal::Options::new(),
            checkpoint_bytes: 64 << 20,
            history: History::default(),
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// Options of the log underneath. Replaces what [`Options::policy`], [`Options::create`] and [`Options::clock`] have set before.
    #[must_use]
    pub fn log(mut self, options: wal::Options) -> Self {
        self.log = options;
        self
    }

    /// When writes are synced, and so what they wait for by default. Default: [`FsyncPolicy::Always`].
    #[must_use]
    pub fn policy(mut self, policy: FsyncPolicy) -> Self {
        self.log = self.log.policy(policy);
        self
    }

    /// Whether to create the store where it is missing. The directory's parent must exist. Default: yes.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.log = self.log.create(create);
        self
    }

    /// Bytes of writes after which a checkpoint is made in the background, or half the size of the last checkpoint where that is more.
    /// 0: only when asked for. Default: 64 MiB.
    #[must_use]
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.checkpoint_bytes = bytes;
        self
    }

    /// How much of the log is kept. Default: [`History::Checkpoints`].
    #[must_use]
    pub fn history(mut self, history: History) -> Self {
        self.history = history;
        self
    }

    /// Where time comes from, for the log too. Default: the system.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.log = self.log.clock(Arc::clone(&clock));
        self.clock = clock;
        self
    }

    /// Opens the store in the directory `dir`: loads the newest checkpoint that is whole, and replays the log from there.
    ///
    /// # Errors
    /// [`crate::Error::Log`] as [`wal::Options::open`]; [`crate::Error::NoUsableCheckpoint`]; [`crate::Error::NotAWrite`] where the log
    /// is another program's. Nothing is changed then.
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Store> {
        self.open_storage(Arc::new(FsStorage::new(dir.as_ref())))
    }

    /// As [`Options::open`], on a storage of the caller's.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_storage(self, storage: Arc<dyn Storage>) -> Result<Store> {
        Store::open_with(storage, self)
    }

    /// The store as it stands now, without opening it: takes no lock, writes nothing, works beside a live writer.
    ///
    /// # Errors
    /// As [`Options::open`], without [`wal::Error::Locked`].
    pub fn read(self, dir: impl AsRef<Path>) -> Result<Snapshot> {
        self.read_storage(Arc::new(FsStorage::new(dir.as_ref())), None)
    }

    /// The store as it stood after the records `[0, offset)`, without opening it.
    ///
    /// # Errors
    /// As [`Options::read`], and [`crate::Error::OutOfRange`] where checkpoints and log no longer reach it.
    pub fn read_at(self, dir: impl AsRef<Path>, offset: Offset) -> Result<Snapshot> {
        self.read_storage(Arc::new(FsStorage::new(dir.as_ref())), Some(offset))
    }

    /// As [`Options::read`] and [`Options::read_at`], on a storage of the caller's.
    ///
    /// # Errors
    /// As those.
    pub fn read_storage(self, storage: Arc<dyn Storage>, at: Option<Offset>) -> Result<Snapshot> {
        crate::load::read(&storage, self.log, at)
    }
}
