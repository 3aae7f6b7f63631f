//! Sequencing: gives records their offsets and positions, and stages their frames.

use std::sync::Arc;
use std::time::Instant;

use super::{Active, ActiveSegment, Core, CoreGuard, FLUSH_DELAY, Log, Role, STAGING_MAX};
use crate::codec::frame::{self, HeaderFields, Kind, Seed};
use crate::codec::segment_header::BLOCK_LEN;
use crate::error::{Error, Result};
use crate::offset::{self, Offset};
use crate::options::Durability;
use crate::segment::Segment;
use crate::storage::write_all_at;

/// The payload of a data frame, checked and digested before any lock is taken.
pub(crate) struct Payload<'a> {
    count: u16,
    bytes: std::borrow::Cow<'a, [u8]>,
    digest: u64,
}

impl<'a> Payload<'a> {
    pub(crate) fn record(record: &'a [u8], bytes_max: u64) -> Result<Self> {
        if record.len() as u64 > bytes_max {
            return Err(Error::RecordTooLarge {
                bytes: record.len() as u64,
                max: bytes_max,
            });
        }
        Ok(Self {
            count: 1,
            bytes: record.into(),
            digest: frame::digest(record),
        })
    }

    /// A batch of at least one record.
    pub(crate) fn batch<R: AsRef<[u8]>>(records: &'a [R], bytes_max: u64) -> Result<Self> {
        if let [record] = records {
            return Self::record(record.as_ref(), bytes_max);
        }
        if let Some(large) = records.iter().find(|r| r.as_ref().len() as u64 > bytes_max) {
            return Err(Error::RecordTooLarge {
                bytes: large.as_ref().len() as u64,
                max: bytes_max,
            });
        }
        let table = records.len() as u64 * 4;
        let bytes: u64 = table + records.iter().map(|r| r.as_ref().len() as u64).sum::<u64>();
        let count = u16::try_from(records.len()).ok().filter(|_| bytes <= bytes_max);
        let (Some(count), Ok(len)) = (count, usize::try_from(bytes)) else {
            return Err(Error::BatchTooLarge {
                records: records.len(),
                bytes,
                records_max: frame::RECORDS_MAX,
                bytes_max,
            });
        };
        let mut payload = Vec::with_capacity(len);
        for record in records {
            let len = u32::try_from(record.as_ref().len()).expect("checked against a limit below 4 GiB");
            payload.extend_from_slice(&len.to_le_bytes());
        }
        for record in records {
            payload.extend_from_slice(record.as_ref());
        }
        let digest = frame::digest(&payload);
        Ok(Self {
            count,
            bytes: payload.into(),
            digest,
        })
    }
}

impl Payload<'_> {
    /// Appends the frame to `out`, for position `pos` of the segment with `seed`. Returns the CRC of its header.
    pub(crate) fn encode(
        &self,
        out: &mut Vec<u8>,
        base_offset: Offset,
        durable_end: Offset,
        seed: Seed,
        pos: u64,
    ) -> u32 {
        let fields = HeaderFields {
            kind: Kind::Data,
            count: self.count,
            payload_len: u32::try_from(self.bytes.len()).expect("checked against a limit below 4 GiB"),
            digest: self.digest,
            base_offset,
            durable_end,
        };
        let (header, crc) = frame::encode_header(&fields, seed, pos);
        out.extend_from_slice(&header);
        out.extend_from_slice(&self.bytes);
        frame::pad(out, self.bytes.len());
        crc
    }
}

/// What an append was given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sequenced {
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    pub(crate) incarnation: u64,
}

impl Log {
    /// Gives the payload its offsets and stages its frame. Waits for nothing but room: see `sync` for the rest.
    pub(crate) fn stage(&self, payload: &Payload<'_>, durability: Durability) -> Result<Sequenced> {
        let len = frame::frame_len(payload.bytes.len());
        let mut core = self.core.lock();
        core = self.make_room(core, len)?;
        let start = core.next;
        let end = offset::advance(start, usize::from(payload.count)).ok_or(Error::OffsetsExhausted)?;
        self.stamp(&mut core);
        let durable_end = core.durable.offset;
        let (active, staging) = core.writing();
        let pos = active.pos;
        let crc = payload.encode(staging, start, durable_end, active.segment.seed, pos);
        active.segment.note(start, pos);
        active.staged(pos, crc, len);
        core.next = end;
        core.counters.appends += 1;
        core.counters.records += u64::from(payload.count);
        core.counters.bytes += payload.bytes.len() as u64;
        if durability == Durability::Buffered && core.due.flush.is_none() {
            let due = Instant::now() + FLUSH_DELAY;
            core.due.flush = Some(due);
            self.call_background(&core, due);
        }
        Ok(Sequenced {
            start,
            end,
            incarnation: core.incarnation,
        })
    }

    /// Waits until the active segment has reserved space for a frame of `len` bytes, beginning a segment where needed.
    fn make_room<'a>(&'a self, mut core: CoreGuard<'a>, len: u64) -> Result<CoreGuard<'a>> {
        loop {
            core.check_open()?;
            if core.exclusive {
                self.roles.wait(&mut core);
                continue;
            }
            if core.staging.len() >= STAGING_MAX {
                core = self.write_staged(core);
                continue;
            }
            match &core.active {
                Active::Absent { .. } => core = self.begin_segment(core)?,
                Active::Present(active) => {
                    let used = active.pos - BLOCK_LEN;
                    let need = len + room_behind(used + len);
                    if used > 0 && used + len > self.options.segment_bytes {
                        core = self.seal_segment(core)?;
                    } else if active.pos + need > active.reserved {
                        core = self.reserve(core, need)?;
                    } else {
                        return Ok(core);
                    }
                }
            }
        }
    }

    /// Takes space from the disk by writing zeros behind the last frame, so that a full disk is an error before anything is
    /// sequenced, and a sync does not have to change the file's length.
    fn reserve<'a>(&'a self, mut core: CoreGuard<'a>, need: u64) -> Result<CoreGuard<'a>> {
        const STEP_MIN: u64 = 64 << 10;
        const STEP_MAX: u64 = 1 << 20;
        if core.reserving {
            self.roles.wait(&mut core);
            return Ok(core);
        }
        let role = Role::take(self, &mut core, |core| &mut core.reserving);
        let (active, _) = core.writing();
        let (file, from) = (Arc::clone(&active.file), active.reserved);
        let needed = active.pos + need - from;
        // Grows with the segment, so that small logs stay small.
        let full = (BLOCK_LEN + self.options.segment_bytes).saturating_sub(from);
        let step = from.clamp(STEP_MIN, STEP_MAX).min(full).max(needed);
        let path = active.segment.path();
        drop(core);
        let result = write_zeros(&*file, from, step);
        let mut core = self.core.lock();
        role.release(&mut core);
        match result.map_err(|e| Error::io("reserve space in", path, e)) {
            Ok(()) => core.writing().0.reserved = from + step,
            // Nothing was sequenced: zeros behind the end are as good as none.
            Err(e @ Error::NoSpace { .. }) => return Err(e),
            Err(e) => return Err(self.stop(&mut core, e)),
        }
        Ok(core)
    }

    /// Puts the time before the next frame, at most once a second. It costs a look at the clock only where nothing is
    /// staged, which is where a write begins.
    fn stamp(&self, core: &mut Core) {
        const EVERY_MS: u64 = 1000;
        if !core.staging.is_empty() {
            return;
        }
        let now = self.now_ms();
        if now.saturating_sub(core.stamped_ms) >= EVERY_MS {
            core.stamped_ms = now;
            core.stage_control(Kind::Mark, &now.to_le_bytes());
        }
    }

    /// Calls the background thread where it would look later than `due`.
    pub(super) fn call_background(&self, core: &Core, due: Instant) {
        if core.due.awake.is_none_or(|awake| awake > due) {
            self.background.notify_one();
        }
    }
}

/// Space to keep free behind the frames of a segment, so that marks, the seal or the close never meet a full disk.
fn room_behind(used: u64) -> u64 {
    const MARKS: u64 = 2048;
    MARKS + Segment::seal_len_max(used)
}

/// Writes `len` zeros at `pos`.
pub(super) fn write_zeros(file: &dyn crate::storage::StorageFile, mut pos: u64, len: u64) -> std::io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let end = pos + len;
    while pos < end {
        let n = usize::try_from(end - pos).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        write_all_at(file, pos, &ZEROS[..n])?;
        pos += n as u64;
    }
    Ok(())
}

impl Core {
    /// The active segment and the buffer before it. The caller made room, so there is one.
    pub(super) fn writing(&mut self) -> (&mut ActiveSegment, &mut Vec<u8>) {
        match &mut self.active {
            Active::Present(active) => {
                if self.staging.is_empty() {
                    self.staging_pos = active.pos;
                }
                (active, &mut self.staging)
            }
            Active::Absent { .. } => unreachable!("an active segment was made before"),
        }
    }

    /// Stages a frame without records.
    pub(super) fn stage_control(&mut self, kind: Kind, payload: &[u8]) {
        let (next, durable_end) = (self.next, self.durable.offset);
        let (active, staging) = self.writing();
        let pos = active.pos;
        let crc = frame::encode_control(staging, kind, payload, next, durable_end, active.segment.seed, pos);
        active.staged(pos, crc, frame::frame_len(payload.len()));
    }
}

impl ActiveSegment {
    fn staged(&mut self, pos: u64, crc: u32, len: u64) {
        self.last_pos = pos;
        self.last_crc = crc;
        self.pos = pos + len;
        self.touched = true;
    }
}
