//! The log: many segments, one order, one durable end.
//!
//! It knows nothing of consumers: news travels as numbers that others wait on, and retention asks for pins, never who holds them.
//!
//! # State and locks
//!
//! [`Core`], under one mutex, is all that an append changes. No I/O happens under it. Instead a thread takes a *role*:
//!
//! - **writer**: hands staged bytes to the operating system, one write for all that are staged;
//! - **syncer**: syncs what was written, for all who wait;
//! - **reserver**: takes space from the disk, ahead of need;
//! - **exclusive**: alone, to seal a segment, begin the next, or close.
//!
//! Roles are flags in the core, held by [`Role`] guards, so that a thread that fails or panics lets go of them and stops the log
//! loudly instead of leaving others to wait. Order of locks: left-overs, pins, `meta_file`, core, then `meta` and `segments`, which are held
//! for a look only.
//!
//! Files: [`append`] sequences and stages, [`sync`] runs the roles and waits, [`rotate`] begins, seals and closes segments,
//! [`recovery`] reads what is there, [`open`] makes it this state, [`reader`] reads, [`time`] finds an offset by time, [`retention`] removes.

pub(crate) mod append;
pub(crate) mod open;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod retention;
mod rotate;
pub(crate) mod sync;
mod time;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::Epoch;
use crate::codec::LogId;
use crate::codec::meta::Meta;
use crate::codec::segment_header::Pin;
use crate::error::{Error, Result};
use crate::offset::Offset;
use crate::options::Options;
use crate::report::RecoveryReport;
use crate::segment::Segment;
use crate::segment::files::Files;
use crate::stats::Counters;
use crate::storage::{Storage, StorageFile, StorageLock};
use crate::threads::{Condvar, Mutex, MutexGuard, RwLock};

/// A place in the log: an offset, and where in which segment its frame begins or will begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    pub(crate) generation: u64,
    pub(crate) offset: Offset,
    pub(crate) pos: u64,
}

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) storage: Arc<dyn Storage>,
    files: Arc<Files>,
    pub(crate) options: Options,
    pub(crate) epoch: Epoch,
    core: Mutex<Core>,
    /// A role became free, or more was written.
    roles: Condvar,
    /// The durable end moved, or the log stopped.
    durable: Condvar,
    /// The background thread has something to do earlier than it thinks.
    background: Condvar,
    segments: RwLock<Vec<Arc<Segment>>>,
    meta: Mutex<Meta>,
    /// The open meta file; held while it is written, so that two changes come one after the other.
    meta_file: Mutex<Arc<dyn StorageFile>>,
    pins: retention::Pins,
    lock: Mutex<Option<Box<dyn StorageLock>>>,
}

/// What appends change.
#[derive(Debug)]
struct Core {
    /// The offset of the next record.
    next: Offset,
    /// The segment that is written, or how the next one begins.
    active: Active,
    /// Encoded frames that are not yet written, and their position.
    staging: Vec<u8>,
    staging_pos: u64,
    /// The other buffer, kept to be used again.
    spare: Vec<u8>,
    /// Everything below was handed to the operating system.
    written: Mark,
    /// Everything below was covered by a completed sync that began after it was written.
    durable: Mark,
    writer_busy: bool,
    sync_busy: bool,
    reserving: bool,
    exclusive: bool,
    /// The first failure. No write or sync is tried after it.
    poison: Option<Arc<Error>>,
    closed: bool,
    /// Counts reopenings: a ticket of an earlier life is answered for that life.
    incarnation: u64,
    /// Milliseconds since 1970 of the last time mark.
    stamped_ms: u64,
    due: Due,
    report: Arc<RecoveryReport>,
    /// The last failure of retention in the background, which stops nothing.
    retention_error: Option<Error>,
    counters: Counters,
}

/// When the background thread has to do what.
#[derive(Debug, Default)]
struct Due {
    /// Write what `Buffered` appends left staged.
    flush: Option<Instant>,
    /// Sync under [`crate::FsyncPolicy::Interval`].
    sync: Option<Instant>,
    /// Write a mark: the log is idle and its last records have no witness.
    mark: Option<Instant>,
    /// Ask retention what may go.
    retain: Option<Instant>,
    /// Something above the log asked to be called.
    caller: Option<Instant>,
    /// When the thread will look next; `None` while it waits to be called.
    awake: Option<Instant>,
}

/// The segment that is written.
#[derive(Debug)]
enum Active {
    /// There is none: the next append begins one that pins `prev`.
    Absent {
        generation: u64,
        prev: Option<Pin>,
        /// Bytes of the last segment that must be written again and synced before anything follows them.
        unsettled: Option<Unsettled>,
    },
    Present(ActiveSegment),
}

#[derive(Debug, Clone)]
struct Unsettled {
    segment: Arc<Segment>,
    from: u64,
    to: u64,
}

#[derive(Debug)]
struct ActiveSegment {
    segment: Arc<Segment>,
    file: Arc<dyn StorageFile>,
    /// Where the next frame goes.
    pos: u64,
    /// Space up to here was taken from the disk by writing zeros.
    reserved: u64,
    last_pos: u64,
    last_crc: u32,
    /// Whether anything was staged since it was opened.
    touched: bool,
}

impl Due {
    fn earliest(&self) -> Option<Instant> {
        let due = [self.flush, self.sync, self.mark, self.retain, self.caller];
        due.into_iter().flatten().min()
    }
}

/// How long a `Buffered` append may stay in memory.
const FLUSH_DELAY: Duration = Duration::from_millis(1);
/// Staged bytes above which an append writes itself instead of leaving it to others.
const STAGING_MAX: usize = 512 << 10;

impl Log {
    pub(crate) fn path(&self, name: &str) -> String {
        self.storage.root().join(name).display().to_string()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.epoch.now_ms(&*self.options.clock)
    }

    pub(crate) fn id(&self) -> LogId {
        self.meta.lock().log
    }

    pub(crate) fn meta(&self) -> Meta {
        *self.meta.lock()
    }

    pub(crate) fn end(&self) -> Offset {
        self.core.lock().next
    }

    pub(crate) fn written(&self) -> Mark {
        self.core.lock().written
    }

    pub(crate) fn durable(&self) -> Mark {
        self.core.lock().durable
    }

    pub(crate) fn start(&self) -> Offset {
        self.meta.lock().start_offset
    }

    pub(crate) fn report(&self) -> Arc<RecoveryReport> {
        Arc::clone(&self.core.lock().report)
    }

    pub(crate) fn counters(&self) -> Counters {
        self.core.lock().counters
    }

    pub(crate) fn poison(&self) -> Option<Arc<Error>> {
        self.core.lock().poison.clone()
    }

    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        self.segments.read().clone()
    }

    /// Writes a new version of the meta file's content, durably. A failure leaves the other slot and what it says in force.
    fn write_meta(&self, change: impl FnOnce(&mut Meta)) -> Result<()> {
        let file = self.meta_file.lock();
        let mut meta = *self.meta.lock();
        change(&mut meta);
        meta.seq += 1;
        let (pos, slot) = meta.encode();
        let name = || self.path(crate::codec::meta::FILE_NAME);
        crate::storage::write_all_at(&**file, pos, &slot).map_err(|e| Error::io("write", name(), e))?;
        file.sync_data().map_err(|e| Error::in_doubt("sync", name(), e))?;
        *self.meta.lock() = meta;
        Ok(())
    }

    /// Stops the log: the first failure is kept and told to everybody.
    fn stop(&self, core: &mut Core, cause: Error) -> Error {
        let cause = core.poison.get_or_insert_with(|| Arc::new(cause));
        let error = Error::Poisoned {
            cause: Arc::clone(cause),
        };
        self.roles.notify_all();
        self.durable.notify_all();
        self.background.notify_all();
        error
    }
}

impl Core {
    /// Whether the log takes appends.
    fn check_open(&self) -> Result<()> {
        if let Some(cause) = &self.poison {
            return Err(Error::Poisoned {
                cause: Arc::clone(cause),
            });
        }
        if self.closed { Err(Error::Closed) } else { Ok(()) }
    }
}

/// A role that a thread holds. Dropped without [`Role::release`], by an early return or a panic, it stops the log: nobody is left
/// waiting for a thread that is gone.
struct Role<'a> {
    log: &'a Log,
    flag: fn(&mut Core) -> &mut bool,
    held: bool,
}

impl<'a> Role<'a> {
    fn take(log: &'a Log, core: &mut Core, flag: fn(&mut Core) -> &mut bool) -> Self {
        debug_assert!(!*flag(core));
        *flag(core) = true;
        Self { log, flag, held: true }
    }

    fn release(mut self, core: &mut Core) {
        *(self.flag)(core) = false;
        self.held = false;
        self.log.roles.notify_all();
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        if self.held {
            let mut core = self.log.core.lock();
            *(self.flag)(&mut core) = false;
            let cause = std::io::Error::other("the thread that did it panicked");
            let file = self.log.storage.root().display().to_string();
            self.log.stop(&mut core, Error::io("write or sync", file, cause));
        }
    }
}

type CoreGuard<'a> = MutexGuard<'a, Core>;
