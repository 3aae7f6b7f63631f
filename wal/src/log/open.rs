//! Turns what recovery found into a running log.

use std::sync::Arc;

use super::recovery::{self, Contents, CursorFile, Examined, LOCK_FILE, Tail};
use super::{Active, ActiveSegment, Core, Due, Log, Mark, Unsettled, retention};
use crate::clock::Epoch;
use crate::codec::LogId;
use crate::codec::meta::{self, Meta};
use crate::codec::segment_header::BLOCK_LEN;
use crate::error::{Error, Result};
use crate::offset::Offset;
use crate::options::Options;
use crate::segment::Segment;
use crate::stats::Counters;
use crate::storage::{Access, LockError, Storage, StorageFile, StorageLock, replace_file, write_all_at};
use crate::threads::{Condvar, Mutex, RwLock};

/// A log just opened, and the files of its consumers, which are not the log's business.
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) cursors: Vec<CursorFile>,
}

/// What [`Log::reopen`] puts in place of the state that failed.
struct Reloaded {
    core: Core,
    file: Arc<dyn StorageFile>,
    meta: Meta,
    segments: Vec<Arc<Segment>>,
    cursors: Vec<CursorFile>,
}

impl Log {
    /// Opens for writing, creating the log where it is missing and that was asked for.
    pub(crate) fn open(storage: Arc<dyn Storage>, options: Options) -> Result<Opened> {
        let lock = acquire(&*storage, options.create)?;
        let mut created = false;
        let mut examined = loop {
            match recovery::examine(&storage, options.known_durable)? {
                Contents::Log(examined) => break *examined,
                Contents::Empty { leftovers } => {
                    if !options.create {
                        return Err(Error::NotFound {
                            dir: storage.root().to_path_buf(),
                        });
                    }
                    remove_all(&*storage, &leftovers)?;
                    create(&*storage, &options)?;
                    created = true;
                }
            }
        };
        examined.report.created = created;
        let meta = open_meta(&*storage, Access::ReadWrite)?;
        remove_leftovers(&*storage, &examined, &*meta)?;
        let opened = Self::build(storage, options, examined, meta, Some(lock))?;
        opened.log.settle_at_open()?;
        Ok(opened)
    }

    /// Opens for reading: no lock, nothing written.
    pub(crate) fn open_read_only(storage: Arc<dyn Storage>, options: Options) -> Result<Opened> {
        let examined = examine_live(&storage, options.known_durable)?;
        let meta = open_meta(&*storage, Access::Read)?;
        Self::build(storage, options, *examined, meta, None)
    }

    fn build(
        storage: Arc<dyn Storage>,
        options: Options,
        examined: Examined,
        file: Arc<dyn StorageFile>,
        lock: Option<Box<dyn StorageLock>>,
    ) -> Result<Opened> {
        let core = core(&storage, &examined, lock.is_some())?;
        let log = Self {
            epoch: Epoch::start(&*options.clock),
            core: Mutex::new(core),
            roles: Condvar::new(),
            durable: Condvar::new(),
            background: Condvar::new(),
            segments: RwLock::new(examined.segments),
            meta: Mutex::new(examined.meta),
            meta_file: Mutex::new(file),
            pins: retention::Pins::default(),
            lock: Mutex::new(lock),
            files: examined.files,
            storage,
            options,
        };
        Ok(Opened {
            log,
            cursors: examined.cursors,
        })
    }

    /// Settles what recovery found, unless the disk is full: then that waits for the first append, and until then only what is
    /// proven counts as durable.
    fn settle_at_open(&self) -> Result<()> {
        match self.settle(self.core.lock()) {
            Ok(_) | Err(Error::NoSpace { .. }) => Ok(()),
            Err(Error::Poisoned { cause }) => Err(Arc::unwrap_or_clone(cause)),
            Err(e) => Err(e),
        }
    }

    /// Recovers in place after a failure stopped the log. Unacknowledged appends of before may be there or not, as after a crash.
    pub(crate) fn reopen(&self) -> Result<Vec<CursorFile>> {
        let mut core = self.core.lock();
        let role = loop {
            if core.closed {
                return Err(Error::Closed);
            }
            if core.poison.is_none() {
                return Err(Error::invalid(
                    "reopen",
                    "the log has not failed; there is nothing to recover",
                ));
            }
            if let Some(role) = self.take_exclusive(&mut core) {
                break role;
            }
        };
        // What was durable is known better than any file could tell.
        let known = core.durable.offset.max(self.options.known_durable);
        drop(core);
        let loaded = self.reload(known);
        let mut core = self.core.lock();
        let cursors = loaded.map(
            |Reloaded {
                 core: mut fresh,
                 meta,
                 file,
                 segments,
                 cursors,
             }| {
                *self.meta_file.lock() = file;
                fresh.incarnation = core.incarnation + 1;
                fresh.counters = core.counters;
                fresh.exclusive = true;
                *self.meta.lock() = meta;
                *self.segments.write() = segments;
                *core = fresh;
                cursors
            },
        );
        self.release_exclusive(role, &mut core);
        drop(core);
        let cursors = cursors?;
        self.settle_at_open()?;
        Ok(cursors)
    }

    fn reload(&self, known_durable: Offset) -> Result<Reloaded> {
        let Contents::Log(examined) = recovery::examine(&self.storage, known_durable)? else {
            return Err(Error::NotFound {
                dir: self.storage.root().to_path_buf(),
            });
        };
        let file = open_meta(&*self.storage, Access::ReadWrite)?;
        remove_leftovers(&*self.storage, &examined, &*file)?;
        Ok(Reloaded {
            core: core(&self.storage, &examined, true)?,
            file,
            meta: examined.meta,
            segments: examined.segments,
            cursors: examined.cursors,
        })
    }

    /// Looks again at what a writer in another process has appended meanwhile.
    pub(crate) fn refresh(&self) -> Result<Vec<CursorFile>> {
        let examined = examine_live(&self.storage, self.options.known_durable)?;
        let fresh = core(&self.storage, &examined, false)?;
        let mut core = self.core.lock();
        *self.meta.lock() = examined.meta;
        *self.segments.write() = examined.segments;
        *core = fresh;
        self.durable.notify_all();
        Ok(examined.cursors)
    }
}

fn open_meta(storage: &dyn Storage, access: Access) -> Result<Arc<dyn StorageFile>> {
    let path = || storage.root().join(meta::FILE_NAME).display().to_string();
    storage
        .open(meta::FILE_NAME, access)
        .map_err(|e| Error::io("open", path(), e))
}

/// Examines a directory that somebody else may be writing. The files move while they are read, so what looks like damage is
/// looked at again: damage stays where it is, a writer does not.
pub(crate) fn examine_live(storage: &Arc<dyn Storage>, known_durable: Offset) -> Result<Box<Examined>> {
    let mut last: Option<Error> = None;
    loop {
        let error = match recovery::examine(storage, known_durable) {
            Ok(Contents::Log(examined)) => return Ok(examined),
            Ok(Contents::Empty { .. }) => {
                return Err(Error::NotFound {
                    dir: storage.root().to_path_buf(),
                });
            }
            Err(e) => e,
        };
        let same = match (&last, &error) {
            (Some(Error::Corrupt(a)), Error::Corrupt(b)) => (&a.file, a.pos) == (&b.file, b.pos),
            // A file that was removed between listing and reading is not in the next listing.
            (Some(Error::Io { file: a, .. }), Error::Io { file: b, .. }) => a == b,
            (_, Error::Corrupt(_) | Error::Io { .. }) => false,
            _ => true,
        };
        if same {
            return Err(error);
        }
        last = Some(error);
    }
}

/// Takes the writer's lock, creating the directory where that was asked for.
fn acquire(storage: &dyn Storage, create: bool) -> Result<Box<dyn StorageLock>> {
    let dir = || storage.root().to_path_buf();
    let path = || dir().display().to_string();
    let names = match storage.list() {
        Ok(names) => Some(names),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(Error::NotALog {
                dir: dir(),
                reason: "it is a file".to_owned(),
            });
        }
        Err(e) => return Err(Error::io("list", path(), e)),
    };
    // Nothing, not even a lock file, is left in a directory that is not ours.
    let ours = names.iter().flatten().any(|n| n == meta::FILE_NAME);
    if !ours {
        if !create {
            return Err(Error::NotFound { dir: dir() });
        }
        if names.is_some() {
            recovery::check_vacant(storage)?;
        }
        storage
            .create_root()
            .map_err(|e| Error::io("create the directory", path(), e))?;
    }
    let owner = format!("process {}", std::process::id());
    storage.try_lock(LOCK_FILE, &owner).map_err(|e| match e {
        LockError::Held { owner } => Error::Locked { dir: dir(), owner },
        LockError::Io(e) => Error::io("lock", storage.root().join(LOCK_FILE).display().to_string(), e),
    })
}

/// Makes the meta file: from then on there is a log.
fn create(storage: &dyn Storage, options: &Options) -> Result<()> {
    let meta = Meta {
        log: new_id(options),
        seq: 1,
        created_ms: options.clock.unix_ms(),
        start_gen: 1,
        start_offset: 0,
        newest_gen: 0,
        durable_end: 0,
    };
    replace_file(storage, meta::FILE_NAME, &meta.encode_file())
        .map_err(|e| Error::io("create", storage.root().join(meta::FILE_NAME).display().to_string(), e))
}

/// A random identity. `RandomState` is seeded by the operating system's randomness; the clocks only add to it.
fn new_id(options: &Options) -> LogId {
    use std::hash::{BuildHasher, RandomState};
    let mut id = [0; 16];
    for half in id.chunks_exact_mut(8) {
        let word =
            RandomState::new().hash_one((options.clock.unix_ms(), options.clock.monotonic(), std::process::id()));
        half.copy_from_slice(&word.to_le_bytes());
    }
    id
}

/// Removes what is no part of the log.
///
/// That segments are none is for the meta file to say, and what can be read there may never have reached the disk, if the sync of whoever
/// wrote it failed. So it is written again first.
fn remove_leftovers(storage: &dyn Storage, examined: &Examined, file: &dyn StorageFile) -> Result<()> {
    if examined.leftovers.is_empty() {
        return Ok(());
    }
    let (pos, slot) = examined.meta.encode();
    let written = write_all_at(file, pos, &slot).and_then(|()| file.sync_data());
    let path = || storage.root().join(meta::FILE_NAME).display().to_string();
    match written.map_err(|e| Error::io("write again", path(), e)) {
        Ok(()) => remove_all(storage, &examined.leftovers),
        // They stay for an open with space.
        Err(Error::NoSpace { .. }) => Ok(()),
        Err(e) => Err(e),
    }
}

fn remove_all(storage: &dyn Storage, names: &[String]) -> Result<()> {
    for name in names {
        match storage.remove(name) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("remove", storage.root().join(name).display().to_string(), e)),
        }
    }
    Ok(())
}

/// The state of a log that was just examined.
fn core(storage: &Arc<dyn Storage>, examined: &Examined, writable: bool) -> Result<Core> {
    let report = examined.report.clone();
    let mut written = Mark {
        offset: report.end,
        pos: BLOCK_LEN,
        ..Mark::default()
    };
    let mut durable = written;
    let mut active = Active::Absent {
        generation: examined.meta.start_gen,
        prev: None,
        unsettled: None,
    };
    if let (Some(last), Some(tail)) = (examined.segments.last(), examined.tail) {
        written.generation = last.generation();
        written.pos = tail.end.pin.end_pos;
        durable = Mark {
            offset: report.proven_end,
            pos: tail.unproven_pos,
            ..written
        };
        active = if tail.closed && writable {
            Active::Present(carry_on(&**storage, last, &tail)?)
        } else {
            if writable {
                last.set_end(tail.end);
            }
            let settled = tail.unproven_pos == tail.end.pin.end_pos;
            Active::Absent {
                generation: last.generation() + 1,
                prev: Some(tail.end.pin),
                unsettled: (!settled).then(|| Unsettled {
                    segment: Arc::clone(last),
                    from: tail.unproven_pos,
                    to: tail.end.pin.end_pos,
                }),
            }
        };
    }
    Ok(Core {
        next: report.end,
        active,
        staging: Vec::new(),
        staging_pos: 0,
        spare: Vec::new(),
        written,
        durable,
        writer_busy: false,
        sync_busy: false,
        reserving: false,
        exclusive: false,
        poison: None,
        closed: false,
        incarnation: 0,
        stamped_ms: 0,
        due: Due::default(),
        report: Arc::new(report),
        retention_error: None,
        counters: Counters::default(),
    })
}

/// Goes on in the segment of a log that was closed in order: its last frame is the close, and nothing was ever written behind it.
fn carry_on(storage: &dyn Storage, last: &Arc<Segment>, tail: &Tail) -> Result<ActiveSegment> {
    let file = recovery::open_for_writing(storage, last)?;
    last.set_file(&file);
    Ok(ActiveSegment {
        segment: Arc::clone(last),
        file,
        pos: tail.end.pin.end_pos,
        reserved: tail.file_len,
        last_pos: tail.end.pin.last_pos,
        last_crc: tail.end.pin.last_crc,
        touched: false,
    })
}
