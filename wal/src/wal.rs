//! The handles that people hold: [`Wal`], which appends, and [`ReadOnlyWal`], which looks.

use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::backup;
use crate::consumer::{ConsumerInfo, ConsumerOptions, Consumers};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::log::append::{Payload, Sequenced};
use crate::log::open::Opened;
use crate::log::reader::{Reader, Tail, Visible};
use crate::log::retention::{Pin, RetentionReport};
use crate::offset::Offset;
use crate::options::{Durability, FsyncPolicy, Options};
use crate::report::RecoveryReport;
use crate::stats::Stats;
use crate::storage::{FsStorage, Storage};
use crate::threads::{Builder, JoinHandle, Mutex};

impl Options {
    /// Opens the log in the directory `dir` for appending, recovering it where it was not closed in order.
    ///
    /// # Errors
    /// [`Error::Locked`] where another writer has it; [`Error::Corrupt`] where durable data is damaged, with nothing
    /// changed; [`Error::NotFound`], [`Error::NotALog`], [`Error::UnsupportedVersion`], [`Error::InvalidOption`], [`Error::Io`].
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Wal> {
        self.open_storage(Arc::new(FsStorage::new(dir.as_ref())))
    }

    /// As [`Options::open`], on a storage of the caller's.
    pub fn open_storage(self, storage: Arc<dyn Storage>) -> Result<Wal> {
        self.check()?;
        Wal::open_with(storage, self)
    }

    /// Opens for reading only: takes no lock, writes nothing, works beside a live writer and on a read-only file system.
    ///
    /// # Errors
    /// As [`Options::open`], without `Locked`.
    pub fn open_read_only(self, dir: impl AsRef<Path>) -> Result<ReadOnlyWal> {
        self.open_read_only_storage(Arc::new(FsStorage::new(dir.as_ref())))
    }

    /// As [`Options::open_read_only`], on a storage of the caller's.
    pub fn open_read_only_storage(self, storage: Arc<dyn Storage>) -> Result<ReadOnlyWal> {
        self.check()?;
        ReadOnlyWal::open_with(storage, self)
    }
}

/// A log, open for appending.
///
/// Cheap to clone and to share between threads: all clones are one log. [`Wal::close`] ends it in order; dropping the last clone does the
/// same, but cannot tell of errors. Readers that are still open then come to their end.
#[derive(Debug, Clone)]
pub struct Wal {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: Arc<Log>,
    consumers: Arc<Consumers>,
    background: Mutex<Option<JoinHandle<()>>>,
}

impl Wal {
    pub(crate) fn open_with(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        let Opened { log, cursors } = Log::open(storage, options)?;
        let log = Arc::new(log);
        let consumers = Arc::new(Consumers::new(Arc::clone(&log), cursors));
        let (its_log, its_consumers) = (Arc::clone(&log), Arc::clone(&consumers));
        let thread = Builder::new()
            .name("wal".to_owned())
            .spawn(move || work_in_background(&its_log, &its_consumers));
        let thread = thread.map_err(|e| {
            let root = log.storage.root().display().to_string();
            // The lock is let go with it.
            let _ = log.close();
            Error::io("start a thread for", root, e)
        })?;
        log.start_retention();
        Ok(Self {
            shared: Arc::new(Shared {
                log,
                consumers,
                background: Mutex::new(Some(thread)),
            }),
        })
    }

    fn log(&self) -> &Arc<Log> {
        &self.shared.log
    }

    /// Appends a record and returns its offset, acknowledged as the policy says ([`crate::FsyncPolicy`]).
    ///
    /// Blocks for the write or sync. Threads that append at once share them.
    ///
    /// # Errors
    /// [`Error::RecordTooLarge`], [`Error::NoSpace`], [`Error::Closed`]: nothing was appended. [`Error::Poisoned`] after a failed
    /// write or sync: the record may be there after reopening.
    pub fn append(&self, record: impl AsRef<[u8]>) -> Result<Offset> {
        self.append_with(record, self.log().options.policy.durability())
    }

    /// As [`Wal::append`], acknowledged at the given level whatever the policy says.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn append_with(&self, record: impl AsRef<[u8]>, durability: Durability) -> Result<Offset> {
        let payload = Payload::record(record.as_ref(), self.log().options.record_bytes_max)?;
        let sequenced = self.log().stage(&payload, durability)?;
        self.log().wait(sequenced, durability)?;
        Ok(sequenced.start)
    }

    /// Appends all records or, after any crash, none. They get consecutive offsets; returns the range. An empty batch appends nothing.
    ///
    /// # Errors
    /// As [`Wal::append`], and [`Error::BatchTooLarge`].
    pub fn append_batch<R: AsRef<[u8]>>(&self, records: &[R]) -> Result<std::ops::Range<Offset>> {
        self.append_batch_with(records, self.log().options.policy.durability())
    }

    /// As [`Wal::append_batch`], acknowledged at the given level.
    ///
    /// # Errors
    /// As [`Wal::append_batch`].
    pub fn append_batch_with<R: AsRef<[u8]>>(
        &self,
        records: &[R],
        durability: Durability,
    ) -> Result<std::ops::Range<Offset>> {
        if records.is_empty() {
            let end = self.end();
            return Ok(end..end);
        }
        let payload = Payload::batch(records, self.log().options.record_bytes_max)?;
        let sequenced = self.log().stage(&payload, durability)?;
        self.log().wait(sequenced, durability)?;
        Ok(sequenced.start..sequenced.end)
    }

    /// Appends a record without waiting for it. The order of such calls is the order of offsets. It is written within about a
    /// millisecond and becomes durable when the policy says; the ticket tells, or waits.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn append_async(&self, record: impl AsRef<[u8]>) -> Result<Ticket> {
        let payload = Payload::record(record.as_ref(), self.log().options.record_bytes_max)?;
        self.ticket(&payload)
    }

    /// As [`Wal::append_async`], for a batch of at least one record.
    ///
    /// # Errors
    /// As [`Wal::append_batch`]; [`Error::InvalidOption`] for an empty batch.
    pub fn append_batch_async<R: AsRef<[u8]>>(&self, records: &[R]) -> Result<Ticket> {
        if records.is_empty() {
            return Err(Error::invalid("records", "an empty batch has no offset to wait for"));
        }
        let payload = Payload::batch(records, self.log().options.record_bytes_max)?;
        self.ticket(&payload)
    }

    fn ticket(&self, payload: &Payload<'_>) -> Result<Ticket> {
        let sequenced = self.log().stage(payload, Durability::Buffered)?;
        if self.log().options.policy.durability() == Durability::Durable {
            self.log().sync_soon();
        }
        Ok(Ticket {
            log: Arc::clone(self.log()),
            sequenced,
        })
    }

    /// Gives a record its offset, and leaves the rest to [`Ticket::wait_for`] with the same `durability`: without that call it may stay
    /// in memory until somebody else appends or the log is closed. For callers that do something of their own in the order of
    /// offsets before they wait; others want [`Wal::append_async`].
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn sequence(&self, record: impl AsRef<[u8]>, durability: Durability) -> Result<Ticket> {
        let payload = Payload::record(record.as_ref(), self.log().options.record_bytes_max)?;
        let sequenced = self.log().stage(&payload, durability)?;
        Ok(Ticket {
            log: Arc::clone(self.log()),
            sequenced,
        })
    }

    /// Makes everything appended so far durable. Returns the durable end.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::NoSpace`].
    pub fn sync(&self) -> Result<Offset> {
        self.log().sync()
    }

    /// The log's identity, drawn at random when it was created.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.log().id()
    }

    /// The first retained offset.
    #[must_use]
    pub fn start(&self) -> Offset {
        self.log().start()
    }

    /// One past the last record appended: the offset of the next.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.log().end()
    }

    /// One past the last record handed to the operating system.
    #[must_use]
    pub fn written_end(&self) -> Offset {
        self.log().written().offset
    }

    /// One past the last record that is durable.
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        self.log().durable().offset
    }

    /// Waits until everything below `offset` is durable, without causing it. False after `timeout`, or when the log was closed.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn wait_durable(&self, offset: Offset, timeout: std::time::Duration) -> Result<bool> {
        let deadline = Some(std::time::Instant::now() + timeout);
        self.log().wait_to(offset, Visible::Durable, deadline)
    }

    /// The durable record at `offset`, copied out.
    ///
    /// # Errors
    /// As [`Reader::next`]; [`Error::OutOfRange`] outside of `start..durable_end`.
    pub fn read(&self, offset: Offset) -> Result<Vec<u8>> {
        Reader::read_one(self.log(), offset)
    }

    /// Reads durable records from `from` on, to the end as it is at each call.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] outside of `start..=durable_end`.
    pub fn reader(&self, from: Offset) -> Result<Reader> {
        self.reader_of(from, Visible::Durable)
    }

    /// As [`Wal::reader`], for the records that `visible` names.
    ///
    /// # Errors
    /// As [`Wal::reader`].
    pub fn reader_of(&self, from: Offset, visible: Visible) -> Result<Reader> {
        Reader::new(Arc::clone(self.log()), from, visible)
    }

    /// Reads the durable records in `range`. Open ends are the start and the durable end of now.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] where the range leaves `start..=durable_end`.
    pub fn range(&self, range: impl RangeBounds<Offset>) -> Result<Reader> {
        Reader::range(Arc::clone(self.log()), range, Visible::Durable)
    }

    /// Reads durable records from `from` on and waits for more at the end.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] outside of `start..=durable_end`.
    pub fn tail(&self, from: Offset) -> Result<Tail> {
        self.tail_of(from, Visible::Durable)
    }

    /// As [`Wal::tail`], for the records that `visible` names.
    ///
    /// # Errors
    /// As [`Wal::tail`].
    pub fn tail_of(&self, from: Offset, visible: Visible) -> Result<Tail> {
        Ok(Tail::new(self.reader_of(from, visible)?))
    }

    /// The first offset that may have been appended at `time` or later: everything below it was appended before.
    ///
    /// Time is stamped about once a second, so up to a second's records too many may follow, never one too few. As the wall clock
    /// went: where it jumped, so do the answers.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn offset_at(&self, time: SystemTime) -> Result<Offset> {
        self.log().offset_at(time)
    }

    /// A consumer by name, to be opened.
    pub fn consumer(&self, name: &str) -> ConsumerOptions {
        ConsumerOptions::new(Arc::clone(&self.shared.consumers), name)
    }

    /// All consumers that exist, open or not.
    #[must_use]
    pub fn consumers(&self) -> Vec<ConsumerInfo> {
        self.shared.consumers.list()
    }

    /// Forgets a consumer and its position. It no longer holds segments back.
    ///
    /// # Errors
    /// [`Error::UnknownConsumer`]; [`Error::ConsumerBusy`] while it is open; [`Error::Io`].
    pub fn remove_consumer(&self, name: &str) -> Result<()> {
        self.shared.consumers.remove(name)
    }

    /// Moves a consumer that is not open to `offset`, durably; also one whose position is lost.
    ///
    /// # Errors
    /// [`Error::UnknownConsumer`]; [`Error::ConsumerBusy`]; [`Error::OutOfRange`] outside of `start..=durable_end`; [`Error::Io`].
    pub fn reset_consumer(&self, name: &str, offset: Offset) -> Result<()> {
        self.shared.consumers.reset(name, offset)
    }

    /// Removes the old segments that [`Options::retention`] lets go, now instead of at the next rotation.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::Io`]. What was removed until then stays removed; the rest follows next time.
    pub fn retain(&self) -> Result<RetentionReport> {
        self.shared.consumers.retain(None)
    }

    /// Removes the sealed segments that lie wholly below `floor`, and what [`Options::retention`] lets go. Pins and consumers
    /// hold back as ever. With `floor == durable_end` the log can be emptied; its offsets go on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a floor above the durable end, and those of [`Wal::retain`].
    pub fn remove_before(&self, floor: Offset) -> Result<RetentionReport> {
        self.shared.consumers.retain(Some(floor))
    }

    /// Holds back every record at or above `floor` until the pin is dropped. `name` is shown to whoever asks what holds the log.
    /// `bounded` pins give way to the bounds on lag in [`crate::Retention`].
    #[must_use = "dropping the pin lets go"]
    pub fn pin(&self, floor: Offset, name: &str, bounded: bool) -> Pin {
        self.log().pin(floor, name.to_owned(), bounded)
    }

    /// Seals the active segment, if it holds anything, so that retention can take it later and backups need not read it again.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`].
    pub fn rotate(&self) -> Result<()> {
        self.log().rotate()
    }

    /// Copies the log as it is now, with its consumers, into the directory `dir`, which must be missing or empty. Appending goes
    /// on meanwhile. The copy is synced, verified byte by byte, and opens as a log that was closed in order. Returns its end.
    ///
    /// Copy and original have one identity. Do not let both go on as the same log's successors.
    ///
    /// # Errors
    /// [`Error::NotALog`] where `dir` holds anything; [`Error::Corrupt`] where the log is damaged; [`Error::Io`]. The unfinished copy
    /// stays, and does not open.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<Offset> {
        self.backup_to(&(Arc::new(FsStorage::new(dir.as_ref())) as Arc<dyn Storage>))
    }

    /// As [`Wal::backup`], to a storage of the caller's.
    ///
    /// # Errors
    /// As [`Wal::backup`].
    pub fn backup_to(&self, to: &Arc<dyn Storage>) -> Result<Offset> {
        backup::copy(self.log(), &self.shared.consumers, to)
    }

    /// How appends are acknowledged that do not say.
    #[must_use]
    pub fn policy(&self) -> FsyncPolicy {
        self.log().options.policy
    }

    /// What opening found, or the last [`Wal::reopen`].
    #[must_use]
    pub fn report(&self) -> Arc<RecoveryReport> {
        self.log().report()
    }

    /// Numbers about the log.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counters = self.log().counters();
        Stats {
            start: self.start(),
            end: self.end(),
            written_end: self.written_end(),
            durable_end: self.durable_end(),
            segments: self.log().segments().len() as u64,
            consumers: self.consumers().len() as u64,
            ..Stats::of(&counters)
        }
    }

    /// The failure that stopped the log, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<Error>> {
        self.log().poison()
    }

    /// The last failure of retention in the background. It stops nothing: retention tries again.
    #[must_use]
    pub fn retention_failure(&self) -> Option<Error> {
        self.log().retention_error()
    }

    /// Recovers in place after a failure stopped the log: reads it as [`Options::open`] does, keeping the lock. Appends whose outcome was
    /// unknown are there now or gone for good; see [`Wal::report`]. Readers and consumers go on.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] where the log has not failed; else as [`Options::open`], and the log stays stopped.
    pub fn reopen(&self) -> Result<()> {
        let cursors = self.log().reopen()?;
        self.shared.consumers.load(cursors);
        Ok(())
    }

    /// Ends the log in order: writes lazy commits, makes everything durable, and marks the end, so that the next open needs no
    /// scan. Later calls on any clone get [`Error::Closed`]; tailing readers come to their end. Closing again does nothing.
    ///
    /// # Errors
    /// [`Error::Poisoned`], also where it failed earlier: what was not acknowledged may be lost. The lock is given up in any case.
    pub fn close(&self) -> Result<()> {
        self.shared.close()
    }

    /// Gives the log up without ending it in order: nothing is written any more, as if the process had died, and the lock is free. For a program that
    /// finds, after opening, that it must not touch this log: a store whose records cannot be read, say. What was acknowledged durable is;
    /// everything else gets [`Error::Poisoned`].
    pub fn abandon(&self) {
        self.log().stop_for(Error::Closed);
        // Told to those who waited; nobody is left here.
        let _ = self.shared.end();
    }
}

impl Shared {
    fn close(&self) -> Result<()> {
        // Their commits need the log open; they vouch for offsets that must be durable first, and are.
        let flushed = if self.log.is_closed() {
            Ok(())
        } else {
            self.consumers.flush()
        };
        self.end().and(flushed)
    }

    fn end(&self) -> Result<()> {
        let closed = self.log.close();
        if let Some(thread) = self.background.lock().take() {
            // A panic there has already stopped the log, and was told.
            let _ = thread.join();
        }
        closed
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Nobody is left to be told. What was acknowledged durable is; the next open recovers the rest.
        let _ = self.close();
    }
}

/// Runs until the log is closed. A panic in here stops the log instead of leaving waiters to wait for ever.
fn work_in_background(log: &Log, consumers: &Consumers) {
    struct Guard<'a>(&'a Log);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.stop_for_panic();
            }
        }
    }
    let _guard = Guard(log);
    while log.background_wait() {
        let called = log.tick();
        if called.caller {
            // Each failure stays with its consumer, which tells its owner.
            let _ = consumers.flush();
        }
        if called.retention {
            log.retained(consumers.retain(None).err());
        }
    }
}

/// An append that was not waited for.
#[derive(Debug, Clone)]
#[must_use = "an append that nobody waits for is not acknowledged"]
pub struct Ticket {
    log: Arc<Log>,
    sequenced: Sequenced,
}

impl Ticket {
    /// The offset that the record has, or the first of the batch.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.sequenced.start
    }

    /// One past the last offset.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.sequenced.end
    }

    /// Whether it is durable by now. Never blocks for I/O.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.log.is_durable(self.sequenced)
    }

    /// Waits until it is acknowledged at `durability`, doing the write or sync where nobody else is.
    ///
    /// # Errors
    /// [`Error::Poisoned`]: whether the record is there is known after reopening.
    pub fn wait_for(&self, durability: Durability) -> Result<Offset> {
        self.log.wait(self.sequenced, durability)?;
        Ok(self.sequenced.start)
    }

    /// Waits until it is acknowledged as the policy says.
    ///
    /// # Errors
    /// As [`Ticket::wait_for`].
    pub fn wait(&self) -> Result<Offset> {
        self.wait_for(self.log.options.policy.durability())
    }
}

/// A log, open for reading only: no lock is taken and nothing is written, so it works beside a writer and on read-only media.
///
/// It shows the log up to the durable end that the files prove, as of opening or the last [`ReadOnlyWal::refresh`]. A writer that
/// is busy proves its records with each later one; an idle one with a mark, within [`Options::mark_delay`].
#[derive(Debug, Clone)]
pub struct ReadOnlyWal {
    log: Arc<Log>,
    consumers: Arc<Consumers>,
}

impl ReadOnlyWal {
    pub(crate) fn open_with(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        let Opened { log, cursors } = Log::open_read_only(storage, options)?;
        let log = Arc::new(log);
        let consumers = Arc::new(Consumers::new(Arc::clone(&log), cursors));
        Ok(Self { log, consumers })
    }

    /// Looks again at what was appended, removed and committed meanwhile. Returns the durable end.
    ///
    /// # Errors
    /// As [`Options::open_read_only`]; the view stays as it was.
    pub fn refresh(&self) -> Result<Offset> {
        let cursors = self.log.refresh()?;
        self.consumers.load(cursors);
        Ok(self.durable_end())
    }

    /// As [`Wal::id`].
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.log.id()
    }

    /// The first retained offset.
    #[must_use]
    pub fn start(&self) -> Offset {
        self.log.start()
    }

    /// One past the last record that the files prove durable.
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        self.log.durable().offset
    }

    /// One past the last whole record in the files, durable or not.
    #[must_use]
    pub fn written_end(&self) -> Offset {
        self.log.written().offset
    }

    /// As [`Wal::read`].
    ///
    /// # Errors
    /// As [`Wal::read`].
    pub fn read(&self, offset: Offset) -> Result<Vec<u8>> {
        Reader::read_one(&self.log, offset)
    }

    /// As [`Wal::reader`].
    ///
    /// # Errors
    /// As [`Wal::reader`].
    pub fn reader(&self, from: Offset) -> Result<Reader> {
        self.reader_of(from, Visible::Durable)
    }

    /// As [`Wal::reader_of`].
    ///
    /// # Errors
    /// As [`Wal::reader`].
    pub fn reader_of(&self, from: Offset, visible: Visible) -> Result<Reader> {
        Reader::new(Arc::clone(&self.log), from, visible)
    }

    /// As [`Wal::range`].
    ///
    /// # Errors
    /// As [`Wal::range`].
    pub fn range(&self, range: impl RangeBounds<Offset>) -> Result<Reader> {
        Reader::range(Arc::clone(&self.log), range, Visible::Durable)
    }

    /// As [`Wal::offset_at`].
    ///
    /// # Errors
    /// As [`Wal::offset_at`].
    pub fn offset_at(&self, time: SystemTime) -> Result<Offset> {
        self.log.offset_at(time)
    }

    /// All consumers, as of opening or the last refresh.
    #[must_use]
    pub fn consumers(&self) -> Vec<ConsumerInfo> {
        self.consumers.list()
    }

    /// What opening, or the last refresh, found.
    #[must_use]
    pub fn report(&self) -> Arc<RecoveryReport> {
        self.log.report()
    }
}
