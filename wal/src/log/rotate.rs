//! Beginning, sealing and closing segments.
//!
//! The order of operations is what makes only the last segment able to be torn, and a missing one noticed:
//!
//! 1. seal: write the seal behind the last frame, sync. Everything in the segment is durable.
//! 2. begin: make `NAME.tmp` with header and reserved space, sync it, rename it, sync the directory. The header pins where the segment
//!    before ends.
//! 3. name the new generation in the meta file, sync. Only then is anything appended, so no acknowledged record is in a
//!    segment that could go missing unnoticed.
//!
//! A crash between any two leaves a log that ends with the sealed segment, or with an empty new one.

use std::sync::Arc;
use std::time::Instant;

use super::append::write_zeros;
use super::{Active, ActiveSegment, CoreGuard, Log, Mark, Role, Unsettled};
use crate::codec::frame::Kind;
use crate::codec::segment_header::{BLOCK_LEN, Pin, SegmentHeader, file_name};
use crate::error::{Error, Result};
use crate::segment::{Segment, SegmentEnd};
use crate::storage::{StorageFile, create_afresh, read_full_at, write_all_at};

/// Space that a new segment takes at first.
const FIRST_RESERVE: u64 = 32 << 10;

impl Log {
    /// Claims the exclusive role, and waits until the others are free. `None` where another thread had it: the caller looks
    /// again at what it wanted to do.
    pub(super) fn take_exclusive<'a>(&'a self, core: &mut CoreGuard<'a>) -> Option<Role<'a>> {
        if core.exclusive {
            self.roles.wait(core);
            return None;
        }
        let role = Role::take(self, core, |core| &mut core.exclusive);
        while core.writer_busy || core.sync_busy || core.reserving {
            self.roles.wait(core);
        }
        Some(role)
    }

    /// Ends the exclusive role and wakes everybody who waited behind it.
    pub(super) fn release_exclusive(&self, role: Role<'_>, core: &mut CoreGuard<'_>) {
        role.release(core);
        self.durable.notify_all();
    }

    /// Writes and syncs everything appended so far, holding the exclusive role.
    fn drain<'a>(&'a self, mut core: CoreGuard<'a>) -> Result<CoreGuard<'a>> {
        core = self.write_staged(core);
        core = self.sync_written(core);
        match core.poison.clone() {
            Some(cause) => Err(Error::Poisoned { cause }),
            None => Ok(core),
        }
    }

    /// Seals the active segment; the next append begins another.
    pub(super) fn seal_segment<'a>(&'a self, mut core: CoreGuard<'a>) -> Result<CoreGuard<'a>> {
        let Some(role) = self.take_exclusive(&mut core) else {
            return Ok(core);
        };
        if core.check_open().is_err() || !matches!(core.active, Active::Present(_)) {
            self.release_exclusive(role, &mut core);
            return Ok(core);
        }
        match self.seal_exclusive(core) {
            Ok(mut core) => {
                self.release_exclusive(role, &mut core);
                Ok(core)
            }
            Err(e) => {
                self.release_exclusive(role, &mut self.core.lock());
                Err(e)
            }
        }
    }

    fn seal_exclusive<'a>(&'a self, mut core: CoreGuard<'a>) -> Result<CoreGuard<'a>> {
        // Durable before the seal is written, so that the seal states the whole segment durable.
        core = self.drain(core)?;
        let now = self.now_ms();
        let seal = core.writing().0.segment.encode_seal(now);
        core.stage_control(Kind::Seal, &seal);
        core = self.drain(core)?;
        let next = core.next;
        let (active, _) = core.writing();
        let pin = active.pin(false);
        let (segment, file) = (Arc::clone(&active.segment), Arc::clone(&active.file));
        segment.set_end(SegmentEnd { offset: next, pin });
        segment.forget_index();
        core.active = Active::Absent {
            generation: pin.generation + 1,
            prev: Some(pin),
            unsettled: None,
        };
        core.due.mark = None;
        core.counters.seals += 1;
        drop(core);
        // Gives the reserved rest back. Its failure costs only space: the successor knows the end.
        let _ = file.set_len(pin.end_pos);
        Ok(self.core.lock())
    }

    /// Begins a segment where there is none.
    pub(super) fn begin_segment<'a>(&'a self, mut core: CoreGuard<'a>) -> Result<CoreGuard<'a>> {
        core = self.settle(core)?;
        let Some(role) = self.take_exclusive(&mut core) else {
            return Ok(core);
        };
        let Active::Absent {
            generation,
            prev,
            unsettled: None,
        } = core.active
        else {
            self.release_exclusive(role, &mut core);
            return Ok(core);
        };
        if core.check_open().is_err() {
            self.release_exclusive(role, &mut core);
            return Ok(core);
        }
        let header = SegmentHeader {
            log: self.id(),
            generation,
            base_offset: core.next,
            created_ms: self.now_ms(),
            prev,
            reserved: BLOCK_LEN + FIRST_RESERVE.min(self.options.segment_bytes),
        };
        drop(core);
        let made = self.make_segment(header);
        let mut core = self.core.lock();
        let result = match made {
            Ok((segment, file)) => {
                let reserved = segment.header.reserved;
                let mark = Mark {
                    generation,
                    offset: core.next,
                    pos: BLOCK_LEN,
                };
                core.written = mark;
                core.durable = mark;
                self.segments.write().push(Arc::clone(&segment));
                core.active = Active::Present(ActiveSegment {
                    segment,
                    file,
                    pos: BLOCK_LEN,
                    reserved,
                    last_pos: 0,
                    last_crc: 0,
                    touched: true,
                });
                core.counters.segments_begun += 1;
                self.schedule_retention(&mut core, Instant::now());
                Ok(())
            }
            // Nothing of it has its name yet: the next append tries again from the start.
            Err(Failed::Before(e)) => Err(e),
            Err(Failed::Named(e)) => Err(self.stop(&mut core, e)),
        };
        self.release_exclusive(role, &mut core);
        result.map(|()| core)
    }

    fn make_segment(&self, header: SegmentHeader) -> Result<(Arc<Segment>, Arc<dyn StorageFile>), Failed> {
        let name = file_name(header.base_offset, header.generation);
        let tmp = format!("{name}.tmp");
        let failed = |op, name: &str, e| Error::io(op, self.path(name), e);
        let storage = &*self.storage;
        let file = self
            .files
            .with_room(|| create_afresh(storage, &tmp))
            .map_err(|e| Failed::Before(failed("create", &tmp, e)))?;
        let filled = write_all_at(&*file, 0, &header.encode())
            .and_then(|()| write_zeros(&*file, BLOCK_LEN, header.reserved - BLOCK_LEN))
            .map_err(|e| failed("write", &tmp, e))
            .and_then(|()| file.sync_data().map_err(|e| failed("sync", &tmp, e)))
            .and_then(|()| storage.rename(&tmp, &name).map_err(|e| failed("rename", &tmp, e)));
        if let Err(e) = filled {
            // Gives the space back; the next try starts with a new file either way.
            let _ = storage.remove(&tmp);
            return Err(Failed::Before(e));
        }
        storage
            .sync_dir()
            .map_err(|e| Failed::Named(Error::in_doubt("sync the directory of", self.path(&name), e)))?;
        self.write_meta(|meta| {
            meta.newest_gen = header.generation;
            meta.durable_end = header.base_offset;
        })
        .map_err(Failed::Named)?;
        let segment = Segment::new(&self.files, header);
        segment.set_file(&file);
        Ok((Arc::new(segment), file))
    }

    /// Makes durable what a crash left readable but perhaps not on the disk, by writing the same bytes again.
    ///
    /// A sync alone proves nothing here. After a failed sync the system may hold pages as clean that never reached the disk, and a new
    /// process reads them from memory all the same (Rebello et al., ATC 2020). Writing makes them dirty again.
    pub(super) fn settle<'a>(&'a self, mut core: CoreGuard<'a>) -> Result<CoreGuard<'a>> {
        loop {
            let Active::Absent {
                unsettled: Some(unsettled),
                ..
            } = &core.active
            else {
                return Ok(core);
            };
            let unsettled = unsettled.clone();
            core.check_open()?;
            let Some(role) = self.take_exclusive(&mut core) else {
                continue;
            };
            drop(core);
            let result = rewrite(self, &unsettled);
            core = self.core.lock();
            let result = match result {
                Ok(()) => {
                    if let Active::Absent { unsettled, .. } = &mut core.active {
                        *unsettled = None;
                    }
                    core.durable = core.written;
                    Ok(())
                }
                // No byte has changed: it can be tried again when there is space.
                Err(e @ Error::NoSpace { .. }) => Err(e),
                Err(e) => Err(self.stop(&mut core, e)),
            };
            self.release_exclusive(role, &mut core);
            result?;
        }
    }

    /// Seals the active segment now, where it holds anything.
    pub(crate) fn rotate(&self) -> Result<()> {
        let mut core = self.core.lock();
        loop {
            core.check_open()?;
            match &core.active {
                Active::Present(active) if active.segment.base_offset() < core.next => {
                    core = self.seal_segment(core)?
                }
                _ => return Ok(()),
            }
        }
    }

    /// Begins the next segment where there is none, so that everything before it is sealed.
    pub(crate) fn ensure_active(&self) -> Result<()> {
        let mut core = self.core.lock();
        while !matches!(core.active, Active::Present(_)) {
            core.check_open()?;
            core = self.begin_segment(core)?;
        }
        Ok(())
    }

    /// Ends the log in order: everything durable, a close frame last, and the end recorded. Gives up the lock in any case.
    pub(crate) fn close(&self) -> Result<()> {
        let mut core = self.core.lock();
        let role = loop {
            if core.closed {
                return Ok(());
            }
            if let Some(role) = self.take_exclusive(&mut core) {
                break role;
            }
        };
        let result = match core.check_open() {
            Ok(()) => self.close_exclusive(core),
            Err(e) => {
                drop(core);
                Err(e)
            }
        };
        let mut core = self.core.lock();
        core.closed = true;
        self.release_exclusive(role, &mut core);
        self.background.notify_all();
        drop(core);
        self.lock.lock().take();
        result
    }

    fn close_exclusive<'a>(&'a self, mut core: CoreGuard<'a>) -> Result<()> {
        core = self.drain(core)?;
        if let Active::Present(active) = &core.active
            && active.touched
        {
            let stamp = self.now_ms().to_le_bytes();
            core.stage_control(Kind::Close, &stamp);
            core = self.drain(core)?;
            let (active, _) = core.writing();
            let (file, end) = (Arc::clone(&active.file), active.pos);
            drop(core);
            // As after a seal: what is behind the close is zeros, cut off or not.
            let _ = file.set_len(end);
            core = self.core.lock();
        }
        let durable_end = core.durable.offset;
        drop(core);
        if durable_end > self.meta.lock().durable_end {
            let written = self.write_meta(|meta| meta.durable_end = durable_end);
            written.map_err(|e| self.stop(&mut self.core.lock(), e))?;
        }
        Ok(())
    }
}

/// Why a segment could not be begun.
enum Failed {
    /// Before it had its name.
    Before(Error),
    /// After: whether a crash would show it is unknown.
    Named(Error),
}

fn rewrite(log: &Log, unsettled: &Unsettled) -> Result<()> {
    let segment = &unsettled.segment;
    let file = super::recovery::open_for_writing(&*log.storage, segment)?;
    let failed = |op| move |e| Error::io(op, segment.path(), e);
    let mut buf = vec![0; 256 << 10];
    let mut pos = unsettled.from;
    while pos < unsettled.to {
        let len = usize::try_from(unsettled.to - pos).map_or(buf.len(), |left| left.min(buf.len()));
        let got = read_full_at(&*file, pos, &mut buf[..len]).map_err(failed("read"))?;
        if got == 0 {
            break;
        }
        write_all_at(&*file, pos, &buf[..got]).map_err(failed("write again"))?;
        pos += got as u64;
    }
    // A sync that finds no space has lost what it was to write, which a second try would not see.
    file.sync_data().map_err(|e| Error::in_doubt("sync", segment.path(), e))
}

impl ActiveSegment {
    fn pin(&self, cut: bool) -> Pin {
        Pin {
            generation: self.segment.generation(),
            end_pos: self.pos,
            last_pos: self.last_pos,
            last_crc: self.last_crc,
            cut,
        }
    }
}
