//! Named consumers: readers that own a durable position.
//!
//! The position lives with the reader; the log knows only pins. What a consumer promises is the order of two calls: handle, then
//! commit ([`Delivery::AtLeastOnce`]), or commit, then handle ([`Delivery::AtMostOnce`]). A committed offset is written only
//! when everything below it is durable, so a consumer's file is a witness: a log that ends before it has lost data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::codec::cursor::{self, Anchor, Cursor, NAME_MAX};
use crate::codec::{registry, slots};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::log::reader::{Reader, Record, Visible};
use crate::log::recovery::CursorFile;
use crate::log::retention::Pin;
use crate::offset::Offset;
use crate::options::{Delivery, Reset};
use crate::storage::{Access, StorageFile, read_full_at, replace_file, write_all_at};

/// How long a lazy commit may wait to be written.
const LAZY_DELAY: Duration = Duration::from_millis(200);

/// Where a new consumer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the first retained record: it replays all of history.
    #[default]
    Earliest,
    /// At the durable end: it sees only what comes.
    Latest,
    /// At this offset, which must be in the log.
    At(Offset),
}

/// A consumer as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerInfo {
    /// Its name. Of a damaged consumer the name of its file, all that is left.
    pub name: String,
    /// The next record to hand it.
    pub committed: Offset,
    /// How many durable records it has not committed.
    pub lag: u64,
    /// How it was last opened.
    pub delivery: Delivery,
    /// What it does when its next record is gone.
    pub reset: Reset,
    /// When it last committed.
    pub committed_at: SystemTime,
    /// Why its position is lost, if it is.
    pub damaged: Option<String>,
}

/// All consumers of a log, open or not: those not open hold segments back too.
#[derive(Debug)]
pub(crate) struct Consumers {
    log: Arc<Log>,
    /// Order of locks: this, then a consumer's state, then the log's own.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_name: BTreeMap<String, Arc<Registered>>,
    /// Files whose position is lost: why, and a hold on everything they might still need.
    damaged: BTreeMap<String, (String, Pin)>,
}

#[derive(Debug)]
struct Registered {
    name: String,
    pin: Pin,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cursor: Cursor,
    file: Option<Arc<dyn StorageFile>>,
    /// A lazy commit that is not yet written.
    pending: Option<(Offset, Option<Anchor>)>,
    open: bool,
    /// A write or sync of the file failed. It is not tried again before the consumer is opened anew.
    failed: Option<Arc<Error>>,
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
        for CursorFile { file, cursor } in files {
            match cursor {
                Ok(cursor) => {
                    if let Some(registered) = known.by_name.get(&cursor.name) {
                        let mut state = registered.state.lock();
                        registered.pin.set(cursor.committed);
                        state.cursor = cursor;
                        state.file = None;
                        state.failed = None;
                    } else {
                        let registered = self.register(cursor);
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

    fn register(&self, cursor: Cursor) -> Arc<Registered> {
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

    fn find(&self, name: &str) -> Result<Arc<Registered>> {
        let known = self.known.lock();
        if let Some(damage) = Self::damage(&known, name) {
            return Err(damage);
        }
        let found = known.by_name.get(name).cloned();
        found.ok_or_else(|| Error::UnknownConsumer { name: name.to_owned() })
    }

    /// Makes the consumer where it is missing and `options` say where it begins.
    fn find_or_create(&self, options: &ConsumerOptions) -> Result<Arc<Registered>> {
        let mut known = self.known.lock();
        if let Some(damage) = Self::damage(&known, &options.name) {
            return Err(damage);
        }
        if let Some(found) = known.by_name.get(&options.name) {
            return Ok(Arc::clone(found));
        }
        let (start, end) = (self.log.start(), self.log.durable().offset);
        let committed = match options.start {
            Start::Earliest => start,
            Start::Latest => end,
            Start::At(offset) if (start..=end).contains(&offset) => offset,
            Start::At(wanted) => return Err(Error::OutOfRange { wanted, start, end }),
        };
        let cursor = Cursor {
            log: self.log.id(),
            seq: 0,
            committed,
            committed_ms: self.log.now_ms(),
            anchor: self.log.anchor(committed)?,
            delivery: options.delivery,
            reset: options.reset,
            protected: options.protected,
            name: options.name.clone(),
        };
        // Pinned before it exists on disk, so that retention cannot come between.
        let registered = self.register(cursor.clone());
        self.write_file(&cursor)?;
        self.write_registry(&known, Some(&cursor::file_name(&cursor.name)), None)?;
        known.by_name.insert(options.name.clone(), Arc::clone(&registered));
        Ok(registered)
    }

    /// Writes down which consumers there are: those known, with one more or one less. A consumer's file comes before its name in here, and
    /// its name goes before its file: a name without a file is a loss, and told.
    fn write_registry(&self, known: &Known, with: Option<&str>, without: Option<&str>) -> Result<()> {
        let sound = known.by_name.keys().map(|name| cursor::file_name(name));
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
                seq: 0,
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
        let registered = self.register(cursor.clone());
        self.write_file(&cursor)?;
        self.write_registry(&known, Some(&file), None)?;
        known.damaged.remove(&file);
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
        let storage = &*self.log.storage;
        let removed = match storage.remove(&file) {
            // The file of a damaged consumer may be what was lost.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        let removed = removed.and_then(|()| storage.sync_dir());
        removed.map_err(|e| Error::io("remove", self.log.path(&file), e))?;
        known.damaged.remove(&file);
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
    fn commit(&self, registered: &Registered, state: &mut State, offset: Offset, anchor: Option<Anchor>) -> Result<()> {
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
        let name = cursor::file_name(&cursor.name);
        let written = (|| {
            let file = match &state.file {
                Some(file) => Arc::clone(file),
                None => {
                    let opened = self.log.storage.open(&name, Access::ReadWrite);
                    let opened = opened.map_err(|e| Error::io("open", self.log.path(&name), e))?;
                    Arc::clone(state.file.insert(opened))
                }
            };
            let (pos, slot) = cursor.encode();
            write_all_at(&*file, pos, &slot).map_err(|e| Error::io("write", self.log.path(&name), e))?;
            file.sync_data().map_err(|e| Error::io("sync", self.log.path(&name), e))
        })();
        if let Err(e) = written {
            // What the slot holds now is unknown; the other one is in force. The same slot is written next, if ever.
            state.failed = Some(Arc::new(e.clone()));
            return Err(e);
        }
        state.cursor = cursor;
        registered.pin.set(offset);
        Ok(())
    }
}

/// Builds a [`Consumer`].
#[derive(Debug)]
#[must_use = "call `open`"]
pub struct ConsumerOptions {
    consumers: Arc<Consumers>,
    name: String,
    delivery: Delivery,
    start: Start,
    reset: Reset,
    protected: bool,
}

impl ConsumerOptions {
    pub(crate) fn new(consumers: Arc<Consumers>, name: &str) -> Self {
        Self {
            consumers,
            name: name.to_owned(),
            delivery: Delivery::default(),
            start: Start::default(),
            reset: Reset::default(),
            protected: false,
        }
    }

    /// What a crash does to a record that is being handled. Default: [`Delivery::AtLeastOnce`].
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Where the consumer begins if it does not exist yet. Default: [`Start::Earliest`].
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// What it does when its next record is gone. Default: [`Reset::Fail`].
    pub fn on_out_of_range(mut self, reset: Reset) -> Self {
        self.reset = reset;
        self
    }

    /// Exempts the consumer from the bounds on lag ([`crate::Retention`]): it holds back what it needs, without limit. Takes
    /// effect when the consumer is created. Default: not.
    pub fn protected(mut self, protected: bool) -> Self {
        self.protected = protected;
        self
    }

    /// Opens the consumer, creating it where it does not exist.
    ///
    /// # Errors
    /// [`Error::ConsumerName`]; [`Error::ConsumerBusy`]; [`Error::ConsumerDamaged`] where its position is lost;
    /// [`Error::ConsumerDiverged`] where the log holds another record below its position; [`Error::OutOfRange`] for a
    /// [`Start::At`] outside of the log; [`Error::Io`].
    pub fn open(self) -> Result<Consumer> {
        self.check_name()?;
        let registered = self.consumers.find_or_create(&self)?;
        self.finish(registered)
    }

    /// Opens the consumer only if it exists.
    ///
    /// # Errors
    /// As [`ConsumerOptions::open`], and [`Error::UnknownConsumer`].
    pub fn open_existing(self) -> Result<Consumer> {
        self.check_name()?;
        let registered = self.consumers.find(&self.name)?;
        self.finish(registered)
    }

    fn check_name(&self) -> Result<()> {
        if self.consumers.log.is_closed() {
            return Err(Error::Closed);
        }
        match self.name.len() {
            1..=NAME_MAX => Ok(()),
            bytes => Err(Error::ConsumerName { bytes }),
        }
    }

    fn finish(self, registered: Arc<Registered>) -> Result<Consumer> {
        let log = &self.consumers.log;
        let mut state = registered.state.lock();
        if state.open {
            return Err(Error::ConsumerBusy { name: self.name });
        }
        log.check_anchor(&state.cursor)?;
        state.failed = None;
        state.file = None;
        state.cursor.delivery = self.delivery;
        state.cursor.reset = self.reset;
        state.open = true;
        let committed = state.cursor.committed;
        drop(state);
        Ok(Consumer {
            reader: Reader::anywhere(Arc::clone(log), committed, Visible::Durable),
            consumers: self.consumers,
            registered,
            delivery: self.delivery,
            reset: self.reset,
            told: false,
        })
    }
}

/// A reader with a name and a durable position. One at a time for each name; dropping it changes nothing on disk.
///
/// It sees only durable records, so no crash can take back what it has handled.
#[derive(Debug)]
pub struct Consumer {
    consumers: Arc<Consumers>,
    registered: Arc<Registered>,
    reader: Reader,
    delivery: Delivery,
    reset: Reset,
    /// Whether the caller knows that its next record is gone.
    told: bool,
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
    /// As [`Consumer::next`]. After an error the position is unchanged: nothing was handed out.
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
            if let Some(record) = self.reader.next()? {
                records.push((record.offset, record.bytes.to_vec()));
            }
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

impl Log {
    /// What recognises the record below `offset`; `None` where that is not retained.
    fn anchor(self: &Arc<Self>, offset: Offset) -> Result<Option<Anchor>> {
        if offset <= self.start() {
            return Ok(None);
        }
        let mut reader = Reader::anywhere(Arc::clone(self), offset - 1, Visible::Durable);
        reader.ready()?;
        Ok(reader.anchor())
    }

    /// Whether the record below a committed offset is still the one that was committed.
    fn check_anchor(self: &Arc<Self>, cursor: &Cursor) -> Result<()> {
        let Some(anchor) = cursor.anchor else {
            return Ok(());
        };
        if cursor.committed <= self.start() {
            return Ok(());
        }
        if self.anchor(cursor.committed)? == Some(anchor) {
            return Ok(());
        }
        Err(Error::ConsumerDiverged {
            name: cursor.name.clone(),
            committed: cursor.committed,
        })
    }
}
