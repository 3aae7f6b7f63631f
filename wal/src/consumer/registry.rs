//! Every consumer that exists, open or not: its file, its pin, and the list of them all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{ConsumerInfo, ConsumerOptions, Start};
use crate::codec::cursor::{self, Anchor, Cursor};
use crate::codec::{registry, slots};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::log::recovery::CursorFile;
use crate::log::retention::{Pin, RetentionReport};
use crate::offset::Offset;
use crate::options::{Delivery, Reset};
use crate::storage::{Access, StorageFile, read_full_at, replace_file, write_all_at};
use crate::threads::Mutex;

/// All consumers of a log, open or not: those not open hold segments back too.
#[derive(Debug)]
pub(crate) struct Consumers {
    pub(super) log: Arc<Log>,
    /// Order of locks: this, then a consumer's state, then the log's own.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_name: BTreeMap<String, Arc<Registered>>,
    /// Names among them whose making failed half-way: they may be on the disk, and so hold back what they would need, but are made again
    /// when they are asked for.
    half_made: BTreeSet<String>,
    /// Names among them that were found on the disk but not in the list: whoever made them may have failed to make the name of the file durable.
    unlisted: BTreeSet<String>,
    /// Files whose position is lost: why, and a hold on everything they might still need.
    damaged: BTreeMap<String, (String, Pin)>,
}

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) name: String,
    pin: Pin,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) cursor: Cursor,
    pub(super) file: Option<Arc<dyn StorageFile>>,
    /// A lazy commit that is not yet written.
    pub(super) pending: Option<(Offset, Option<Anchor>)>,
    pub(super) open: bool,
    /// A write or sync of the file failed. It is not tried again before the consumer is opened anew.
    pub(super) failed: Option<Arc<Error>>,
    /// Whether the cursor is known to be durable. One that was read from a file is not: the sync of whoever wrote it may have failed, and
    /// what is read then comes from memory alone.
    settled: bool,
}

impl Consumers {
    pub(crate) fn new(log: Arc<Log>, files: Vec<CursorFile>) -> Self {
        let consumers = Self {
            log,
            known: Mutex::default(),
        };
        consumers.load(files);
        consumers
    }

    /// Takes over what recovery read.
    pub(crate) fn load(&self, files: Vec<CursorFile>) {
        let mut known = self.known.lock();
        known.damaged.clear();
        // What there is of them is among the files.
        for name in std::mem::take(&mut known.half_made) {
            known.by_name.remove(&name);
        }
        known.unlisted.clear();
        for CursorFile { file, cursor, listed } in files {
            match cursor {
                Ok(cursor) => {
                    if !listed {
                        known.unlisted.insert(cursor.name.clone());
                    }
                    if let Some(registered) = known.by_name.get(&cursor.name) {
                        let mut state = registered.state.lock();
                        registered.pin.set(cursor.committed);
                        state.cursor = cursor;
                        state.file = None;
                        state.failed = None;
                        state.settled = false;
                    } else {
                        let registered = self.register(cursor, false);
                        known.by_name.insert(registered.name.clone(), registered);
                    }
                }
                Err(reason) => {
                    let pin = self.log.pin(0, file.clone(), false);
                    known.damaged.insert(file, (reason, pin));
                }
            }
        }
    }

    fn register(&self, cursor: Cursor, settled: bool) -> Arc<Registered> {
        let name = format!("consumer {:?}", cursor.name);
        Arc::new(Registered {
            name: cursor.name.clone(),
            pin: self.log.pin(cursor.committed, name, !cursor.protected),
            state: Mutex::new(State {
                cursor,
                file: None,
                pending: None,
                open: false,
                failed: None,
                settled,
            }),
        })
    }

    pub(crate) fn list(&self) -> Vec<ConsumerInfo> {
        let durable_end = self.log.durable().offset;
        let known = self.known.lock();
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let sound = known.by_name.values().map(|registered| {
            let cursor = registered.state.lock().cursor.clone();
            ConsumerInfo {
                lag: durable_end.saturating_sub(cursor.committed),
                name: cursor.name,
                committed: cursor.committed,
                delivery: cursor.delivery,
                reset: cursor.reset,
                committed_at: at(cursor.committed_ms),
                damaged: None,
            }
        });
        let damaged = known.damaged.iter().map(|(file, (reason, _))| ConsumerInfo {
            name: file.clone(),
            committed: 0,
            lag: durable_end,
            delivery: Delivery::default(),
            reset: Reset::default(),
            committed_at: at(0),
            damaged: Some(reason.clone()),
        });
        sound.chain(damaged).collect()
    }

    /// All consumers' files as they would be written now; damaged ones as they are.
    pub(crate) fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let known = self.known.lock();
        let mut files = Vec::new();
        for registered in known.by_name.values() {
            let cursor = registered.state.lock().cursor.clone();
            files.push((cursor::file_name(&cursor.name), cursor.encode_file()));
        }
        let names: Vec<_> = files
            .iter()
            .map(|(name, _)| name.clone())
            .chain(known.damaged.keys().cloned())
            .collect();
        let list = registry::encode(&self.log.id(), names.iter().map(String::as_str));
        files.push((registry::FILE_NAME.to_owned(), list));
        for name in known.damaged.keys() {
            let mut bytes = vec![0; slots::FILE_LEN];
            let file = match self.log.storage.open(name, Access::Read) {
                // Lost here, and told as lost there.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                other => other.map_err(|e| Error::io("open", self.log.path(name), e))?,
            };
            read_full_at(&*file, 0, &mut bytes).map_err(|e| Error::io("read", self.log.path(name), e))?;
            files.push((name.clone(), bytes));
        }
        Ok(files)
    }

    fn damage(known: &Known, name: &str) -> Option<Error> {
        let (reason, _) = known.damaged.get(&cursor::file_name(name))?;
        Some(Error::ConsumerDamaged {
            name: name.to_owned(),
            reason: reason.clone(),
        })
    }

    /// Makes what was found on the disk but not in the list durable by name, and lists it.
    fn settle_names(&self, known: &mut Known) -> Result<()> {
        if known.unlisted.is_empty() {
            return Ok(());
        }
        let synced = self.log.storage.sync_dir();
        synced.map_err(|e| Error::io("sync the directory of", self.log.path(registry::FILE_NAME), e))?;
        match self.write_registry(known, None, None) {
            // Listed with the next one, when there is space.
            Ok(()) | Err(Error::NoSpace { .. }) => {}
            Err(e) => return Err(e),
        }
        known.unlisted.clear();
        Ok(())
    }

    pub(super) fn find(&self, name: &str) -> Result<Arc<Registered>> {
        let mut known = self.known.lock();
        self.settle_names(&mut known)?;
        if let Some(damage) = Self::damage(&known, name) {
            return Err(damage);
        }
        let found = known.by_name.get(name).filter(|_| !known.half_made.contains(name));
        let found = found.cloned();
        found.ok_or_else(|| Error::UnknownConsumer { name: name.to_owned() })
    }

    /// Makes the consumer where it is missing and `options` say where it begins.
    pub(super) fn find_or_create(&self, options: &ConsumerOptions) -> Result<Arc<Registered>> {
        let mut known = self.known.lock();
        self.settle_names(&mut known)?;
        if let Some(damage) = Self::damage(&known, &options.name) {
            return Err(damage);
        }
        if let Some(found) = known.by_name.get(&options.name)
            && !known.half_made.contains(&options.name)
        {
            return Ok(Arc::clone(found));
        }
        // Nothing is removed between the look at the start and the consumer's own pin.
        let _hold = self.log.pin(0, "a consumer being made".to_owned(), false);
        let (start, end) = (self.log.start(), self.log.durable().offset);
        let committed = match options.start {
            Start::Earliest => start,
            Start::Latest => end,
            Start::At(offset) if (start..=end).contains(&offset) => offset,
            Start::At(wanted) => return Err(Error::OutOfRange { wanted, start, end }),
        };
        let cursor = Cursor {
            log: self.log.id(),
            seq: 1,
            committed,
            committed_ms: self.log.now_ms(),
            anchor: self.log.anchor(committed)?,
            delivery: options.delivery,
            reset: options.reset,
            protected: options.protected,
            name: options.name.clone(),
        };
        // Pinned before it exists on disk, so that retention cannot come between.
        let registered = self.register(cursor.clone(), true);
        known.by_name.insert(options.name.clone(), Arc::clone(&registered));
        known.half_made.insert(options.name.clone());
        self.write_file(&cursor)?;
        self.write_registry(&known, Some(&cursor::file_name(&cursor.name)), None)?;
        known.half_made.remove(&options.name);
        Ok(registered)
    }

    /// Writes down which consumers there are: those known, with one more or one less. A consumer's file comes before its name in here, and
    /// its name goes before its file: a name without a file is a loss, and told.
    fn write_registry(&self, known: &Known, with: Option<&str>, without: Option<&str>) -> Result<()> {
        let made = known.by_name.keys().filter(|name| !known.half_made.contains(*name));
        let sound = made.map(|name| cursor::file_name(name));
        let mut files: BTreeSet<String> = sound.chain(known.damaged.keys().cloned()).collect();
        files.extend(with.map(str::to_owned));
        if let Some(without) = without {
            files.remove(without);
        }
        let bytes = registry::encode(&self.log.id(), files.iter().map(String::as_str));
        let written = replace_file(&*self.log.storage, registry::FILE_NAME, &bytes);
        written.map_err(|e| Error::io("write", self.log.path(registry::FILE_NAME), e))
    }

    fn write_file(&self, cursor: &Cursor) -> Result<()> {
        if self.log.is_closed() {
            return Err(Error::Closed);
        }
        let file = cursor::file_name(&cursor.name);
        let written = replace_file(&*self.log.storage, &file, &cursor.encode_file());
        written.map_err(|e| Error::io("create", self.log.path(&file), e))
    }

    /// Moves a consumer that is not open, also one whose position is lost.
    pub(crate) fn reset(&self, name: &str, to: Offset) -> Result<()> {
        let (start, end) = (self.log.start(), self.log.durable().offset);
        if !(start..=end).contains(&to) {
            return Err(Error::OutOfRange { wanted: to, start, end });
        }
        let mut known = self.known.lock();
        let file = cursor::file_name(name);
        let mut cursor = match known.by_name.get(name) {
            Some(registered) => {
                let state = registered.state.lock();
                if state.open {
                    return Err(Error::ConsumerBusy { name: name.to_owned() });
                }
                state.cursor.clone()
            }
            None if known.damaged.contains_key(&file) => Cursor {
                log: self.log.id(),
                seq: 1,
                committed: to,
                committed_ms: 0,
                anchor: None,
                delivery: Delivery::default(),
                reset: Reset::default(),
                protected: false,
                name: name.to_owned(),
            },
            None => return Err(Error::UnknownConsumer { name: name.to_owned() }),
        };
        cursor.committed = to;
        cursor.committed_ms = self.log.now_ms();
        cursor.anchor = self.log.anchor(to)?;
        cursor.seq += 1;
        let registered = self.register(cursor.clone(), true);
        self.write_file(&cursor)?;
        self.write_registry(&known, Some(&file), None)?;
        known.damaged.remove(&file);
        known.half_made.remove(name);
        known.by_name.insert(name.to_owned(), registered);
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let mut known = self.known.lock();
        let file = cursor::file_name(name);
        match known.by_name.get(name) {
            Some(registered) if registered.state.lock().open => {
                return Err(Error::ConsumerBusy { name: name.to_owned() });
            }
            None if !known.damaged.contains_key(&file) => {
                return Err(Error::UnknownConsumer { name: name.to_owned() });
            }
            _ => {}
        }
        if self.log.is_closed() {
            return Err(Error::Closed);
        }
        self.write_registry(&known, None, Some(&file))?;
        // From here on it may be gone, or not, if anything fails: whoever wants it makes it anew.
        if known.by_name.contains_key(name) {
            known.half_made.insert(name.to_owned());
        }
        let storage = &*self.log.storage;
        let removed = match storage.remove(&file) {
            // The file of a damaged consumer may be what was lost.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        let removed = removed.and_then(|()| storage.sync_dir());
        removed.map_err(|e| Error::io("remove", self.log.path(&file), e))?;
        known.damaged.remove(&file);
        known.half_made.remove(name);
        known.by_name.remove(name);
        Ok(())
    }

    /// Writes the lazy commits that wait. Returns the first failure; each also stays with its consumer.
    pub(crate) fn flush(&self) -> Result<()> {
        let all: Vec<_> = self.known.lock().by_name.values().cloned().collect();
        let mut result = Ok(());
        for registered in all {
            let mut state = registered.state.lock();
            if let Some((offset, anchor)) = state.pending.take()
                && let Err(e) = self.commit(&registered, &mut state, offset, anchor)
            {
                result = result.and(Err(e));
            }
        }
        result
    }

    /// Writes a commit, durably.
    pub(super) fn commit(
        &self,
        registered: &Registered,
        state: &mut State,
        offset: Offset,
        anchor: Option<Anchor>,
    ) -> Result<()> {
        if self.log.is_closed() {
            return Err(Error::Closed);
        }
        if let Some(cause) = &state.failed {
            return Err(Error::Poisoned {
                cause: Arc::clone(cause),
            });
        }
        state.pending = None;
        let mut cursor = state.cursor.clone();
        cursor.seq += 1;
        cursor.committed = offset;
        cursor.committed_ms = self.log.now_ms();
        cursor.anchor = anchor;
        if let Err(e) = self.write_slot(state, &cursor) {
            // What the slot holds now is unknown; the other one is in force. The same slot is written next, if ever.
            state.failed = Some(Arc::new(e.clone()));
            return Err(e);
        }
        state.cursor = cursor;
        state.settled = true;
        registered.pin.set(offset);
        Ok(())
    }

    /// Writes the slot of a cursor, durably.
    fn write_slot(&self, state: &mut State, cursor: &Cursor) -> Result<()> {
        let name = cursor::file_name(&cursor.name);
        let failed = |op| move |e| Error::io(op, self.log.path(&cursor::file_name(&cursor.name)), e);
        let file = match &state.file {
            Some(file) => Arc::clone(file),
            None => {
                let opened = self
                    .log
                    .storage
                    .open(&name, Access::ReadWrite)
                    .map_err(failed("open"))?;
                Arc::clone(state.file.insert(opened))
            }
        };
        let (pos, slot) = cursor.encode();
        write_all_at(&*file, pos, &slot).map_err(failed("write"))?;
        file.sync_data().map_err(failed("sync"))
    }

    /// Removes segments that nobody needs: see [`Log::retain`]. Positions that were read from files are written again first, once, so
    /// that no consumer falls back behind what was removed.
    pub(crate) fn retain(&self, floor: Option<Offset>) -> Result<RetentionReport> {
        let mut known = self.known.lock();
        self.settle_names(&mut known)?;
        for registered in known.by_name.values() {
            let mut state = registered.state.lock();
            if !state.settled {
                let cursor = state.cursor.clone();
                self.write_slot(&mut state, &cursor)?;
                state.settled = true;
            }
        }
        drop(known);
        self.log.retain(floor)
    }
}
