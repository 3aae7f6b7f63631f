//! Writing, syncing, and waiting for either.
//!
//! There is no writer thread: the threads that append do the work themselves, one for all that wait. A thread that needs
//! its record durable finds one of three things. It is durable already. Or somebody is syncing: then it waits, and the records of all that wait
//! meanwhile are written and synced together by the first of them to wake (group commit). Or nobody is: then it leads.
//!
//! A sync acknowledges only what had been written when it began: `written` is read before the call, and `durable` moves to that value
//! after it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Active, CoreGuard, FLUSH_DELAY, Log, Mark, Role, STAGING_MAX};
use crate::codec::frame::{self, Kind};
use crate::error::{Error, Result};
use crate::log::append::Sequenced;
use crate::offset::Offset;
use crate::options::{Durability, FsyncPolicy};
use crate::storage::write_all_at;

/// What the background thread is to do beyond the log itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called {
    /// What [`Log::call_by`] asked for.
    pub(crate) caller: bool,
    pub(crate) retention: bool,
}

impl Log {
    /// Waits until everything below `appended.end` has reached `durability`, doing the work where nobody else is.
    pub(crate) fn wait(&self, appended: Sequenced, durability: Durability) -> Result<()> {
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Written => self.wait_written(appended),
            Durability::Durable => self.wait_durable(appended),
        }
    }

    fn wait_written(&self, appended: Sequenced) -> Result<()> {
        let mut core = self.core.lock();
        loop {
            core.check_incarnation(appended)?;
            if core.written.offset >= appended.end {
                return Ok(());
            }
            if let Some(cause) = core.poison.clone() {
                return Err(Error::Poisoned { cause });
            }
            if core.exclusive || core.writer_busy {
                self.roles.wait(&mut core);
            } else {
                core = self.write_staged(core);
            }
        }
    }

    fn wait_durable(&self, appended: Sequenced) -> Result<()> {
        let mut core = self.core.lock();
        loop {
            core.check_incarnation(appended)?;
            if core.durable.offset >= appended.end {
                return Ok(());
            }
            if let Some(cause) = core.poison.clone() {
                return Err(Error::Poisoned { cause });
            }
            if core.exclusive || core.sync_busy {
                self.durable.wait(&mut core);
            } else {
                core = self.lead_sync(core);
            }
        }
    }

    /// Whether everything below `appended.end` is durable by now.
    pub(crate) fn is_durable(&self, appended: Sequenced) -> bool {
        let core = self.core.lock();
        core.incarnation == appended.incarnation && core.durable.offset >= appended.end
    }

    /// Makes every record appended so far durable. Returns the durable end.
    pub(crate) fn sync(&self) -> Result<Offset> {
        let mut core = self.core.lock();
        core.check_open()?;
        let appended = Sequenced {
            start: core.next,
            end: core.next,
            incarnation: core.incarnation,
        };
        core = self.settle(core)?;
        drop(core);
        self.wait_durable(appended)?;
        Ok(self.durable().offset)
    }

    /// Writes everything staged, as the writer. Returns with the lock held again; a failure has stopped the log.
    pub(super) fn write_staged<'a>(&'a self, mut core: CoreGuard<'a>) -> CoreGuard<'a> {
        while core.writer_busy {
            self.roles.wait(&mut core);
        }
        if core.staging.is_empty() || core.poison.is_some() {
            return core;
        }
        let role = Role::take(self, &mut core, |core| &mut core.writer_busy);
        let mut buffer = std::mem::take(&mut core.spare);
        std::mem::swap(&mut buffer, &mut core.staging);
        core.due.flush = None;
        let pos = core.staging_pos;
        let next = core.next;
        let (active, _) = core.writing();
        let (file, generation, path) = (
            Arc::clone(&active.file),
            active.segment.generation(),
            active.segment.path(),
        );
        drop(core);

        let result = write_all_at(&*file, pos, &buffer);

        let mut core = self.core.lock();
        match result {
            Ok(()) => {
                core.written = Mark {
                    generation,
                    offset: next,
                    pos: pos + buffer.len() as u64,
                };
                core.counters.writes += 1;
                core.counters.written_bytes += buffer.len() as u64;
                if matches!(self.options.policy, FsyncPolicy::Interval(_)) {
                    self.schedule_sync(&mut core);
                }
            }
            Err(e) => {
                self.stop(&mut core, Error::in_doubt("write", path, e));
            }
        }
        buffer.clear();
        // One large record must not keep its memory for good.
        core.spare = if buffer.capacity() > 4 * STAGING_MAX {
            Vec::new()
        } else {
            buffer
        };
        role.release(&mut core);
        core
    }

    /// Syncs everything appended so far, as the syncer. Returns with the lock held again; a failure has stopped the log.
    pub(super) fn lead_sync<'a>(&'a self, mut core: CoreGuard<'a>) -> CoreGuard<'a> {
        let role = Role::take(self, &mut core, |core| &mut core.sync_busy);
        if let FsyncPolicy::Group { max_delay } = self.options.policy {
            let until = Instant::now() + max_delay;
            while core.poison.is_none() && !core.closed && !self.roles.wait_until(&mut core, until).timed_out() {}
        }
        core = self.write_staged(core);
        core = self.sync_written(core);
        role.release(&mut core);
        self.durable.notify_all();
        core
    }

    /// Syncs what was written. The caller holds a role that keeps other syncers out.
    pub(super) fn sync_written<'a>(&'a self, mut core: CoreGuard<'a>) -> CoreGuard<'a> {
        let settled = matches!(core.active, Active::Present(_));
        if core.poison.is_some() || core.written == core.durable || !settled {
            return core;
        }
        let target = core.written;
        let (active, _) = core.writing();
        let (file, path) = (Arc::clone(&active.file), active.segment.path());
        drop(core);

        let started = Instant::now();
        let result = file.sync_data();
        let took = started.elapsed();

        let mut core = self.core.lock();
        core.counters.syncs += 1;
        core.counters.sync_time += took;
        match result {
            Ok(()) => {
                let moved = target.offset > core.durable.offset;
                core.durable = target;
                // What came meanwhile under the same request has its own sync to come.
                if core.due.sync.take().is_some() && core.next != target.offset {
                    self.schedule_sync(&mut core);
                }
                // A mark's own sync needs no further mark.
                if moved {
                    let due = Instant::now() + self.options.mark_delay;
                    if core.due.mark.is_none() {
                        self.call_background(&core, due);
                    }
                    core.due.mark = Some(due);
                }
            }
            Err(e) => {
                self.stop(&mut core, Error::in_doubt("sync", path, e));
            }
        }
        core
    }

    /// Arranges the next sync by the background: after the interval, or, for appends that nobody waits for, at once.
    fn schedule_sync(&self, core: &mut CoreGuard<'_>) {
        if core.due.sync.is_none() {
            let delay = match self.options.policy {
                FsyncPolicy::Interval(every) => every,
                _ => FLUSH_DELAY,
            };
            let due = Instant::now() + delay;
            core.due.sync = Some(due);
            self.call_background(core, due);
        }
    }

    /// Arranges that everything staged becomes durable soon without anybody waiting for it.
    pub(crate) fn sync_soon(&self) {
        self.schedule_sync(&mut self.core.lock());
    }

    /// Does what is due. Called by the background thread only. Returns what is due beyond that.
    pub(crate) fn tick(&self) -> Called {
        let mut core = self.core.lock();
        let now = Instant::now();
        let past = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let mut called = Called {
            caller: past(core.due.caller),
            retention: false,
        };
        if called.caller {
            core.due.caller = None;
        }
        if core.poison.is_some() || core.closed {
            return called;
        }
        // Whoever holds the role may have begun too early for what is due: look again shortly.
        let later = Some(now + FLUSH_DELAY);
        if past(core.due.flush) {
            if core.exclusive || core.writer_busy {
                core.due.flush = later;
            } else {
                core.due.flush = None;
                core = self.write_staged(core);
            }
        }
        if past(core.due.sync) {
            if core.exclusive || core.sync_busy {
                core.due.sync = later;
            } else {
                core.due.sync = None;
                core = self.lead_sync(core);
            }
        }
        if past(core.due.mark) {
            core.due.mark = None;
            core = self.write_mark(core);
        }
        if past(core.due.retain) {
            core.due.retain = None;
            called.retention = true;
        }
        called
    }

    /// Notes how retention in the background went, and when it is due again.
    pub(crate) fn retained(&self, error: Option<Error>) {
        let mut core = self.core.lock();
        core.retention_error = error;
        if let Some(age) = self.options.retention.age_max {
            let again = (age / 16).clamp(Duration::from_millis(100), Duration::from_secs(60));
            self.schedule_retention(&mut core, Instant::now() + again);
        }
    }

    /// Arranges that retention runs, where anything was asked of it.
    pub(super) fn schedule_retention(&self, core: &mut CoreGuard<'_>, due: Instant) {
        let asked = self.options.retention;
        if asked.bytes_max.is_some() || asked.age_max.is_some() {
            core.due.retain = Some(due);
            self.call_background(core, due);
        }
    }

    /// Lets retention look at a log just opened.
    pub(crate) fn start_retention(&self) {
        self.schedule_retention(&mut self.core.lock(), Instant::now());
    }

    /// Arranges that the background thread comes round by `due`.
    pub(crate) fn call_by(&self, due: Instant) {
        let mut core = self.core.lock();
        if core.due.caller.is_none_or(|known| known > due) {
            core.due.caller = Some(due);
            self.call_background(&core, due);
        }
    }

    /// The last failure of retention in the background.
    pub(crate) fn retention_error(&self) -> Option<Error> {
        self.core.lock().retention_error.clone()
    }

    /// Stops the log because a thread that it depends on is gone.
    pub(crate) fn stop_for_panic(&self) {
        let cause = std::io::Error::other("the background thread panicked");
        let file = self.storage.root().display().to_string();
        self.stop_for(Error::io("run in the background", file, cause));
    }

    /// Stops the log for a reason from outside.
    pub(crate) fn stop_for(&self, cause: Error) {
        self.stop(&mut self.core.lock(), cause);
    }

    /// Waits until something is due. Returns false when the log is closed.
    pub(crate) fn background_wait(&self) -> bool {
        let mut core = self.core.lock();
        if core.closed {
            return false;
        }
        // What became due since the last tick is seen here, under the lock.
        let due = if core.poison.is_some() {
            core.due.caller
        } else {
            core.due.earliest()
        };
        core.due.awake = due;
        match due {
            Some(due) => {
                self.background.wait_until(&mut core, due);
            }
            None => self.background.wait(&mut core),
        }
        // Awake now: nobody needs to call.
        core.due.awake = Some(Instant::now());
        !core.closed
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.core.lock().closed
    }

    /// States the durable end of an idle log on disk. Without it the last records would have no witness: damage to them could
    /// not be told from a torn write, and readers in other processes could not see that they are durable.
    ///
    /// The mark begins a new sector, so that no one lost sector takes the last record and its witness.
    fn write_mark<'a>(&'a self, mut core: CoreGuard<'a>) -> CoreGuard<'a> {
        const SECTOR: u64 = 512;
        let busy = core.exclusive || core.sync_busy || core.writer_busy;
        // Not idle, or not all durable: a later sync will ask again.
        if busy || !core.staging.is_empty() || core.next != core.durable.offset || core.written != core.durable {
            return core;
        }
        let stamp = self.now_ms().to_le_bytes();
        let (active, _) = core.writing();
        let header = frame::HEADER_LEN as u64;
        let gap = active.pos.next_multiple_of(SECTOR) - active.pos;
        let gap = if gap == 0 || gap >= header { gap } else { gap + SECTOR };
        // Where there is no room the segment is about to be sealed, and a seal is a witness too.
        if active.pos + gap + frame::frame_len(frame::STAMP_LEN) > active.reserved {
            return core;
        }
        if gap > 0 {
            let zeros = vec![0; usize::try_from(gap - header).expect("below two sectors")];
            core.stage_control(Kind::Pad, &zeros);
        }
        core.stage_control(Kind::Mark, &stamp);
        core.counters.marks += 1;
        self.lead_sync(core)
    }
}

impl super::Core {
    fn check_incarnation(&self, appended: Sequenced) -> Result<()> {
        if self.incarnation == appended.incarnation {
            return Ok(());
        }
        let cause = std::io::Error::other("the log was reopened before this append was acknowledged");
        Err(Error::Poisoned {
            cause: Arc::new(Error::io("append", "the log", cause)),
        })
    }
}
