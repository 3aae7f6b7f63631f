//! Removing old segments.
//!
//! Whole sealed segments, oldest first. The meta file names the new start, durably, before the first file is removed: after a
//! crash in between, older files are left-overs that the next writer removes, never a gap. What somebody still needs is held by
//! a [`Pin`]; the log does not ask who holds it or why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Active, Log};
use crate::clock::millis;
use crate::error::{Error, Result};
use crate::offset::Offset;
use crate::segment::Segment;
use crate::threads::Mutex;

/// What [`crate::Wal::retain`] and [`crate::Wal::remove_before`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionReport {
    /// The first retained offset now.
    pub start: Offset,
    /// Segments removed.
    pub segments_removed: usize,
    /// Bytes given back, as the files' lengths.
    pub bytes_removed: u64,
    /// Who held back the next segment that would have gone.
    pub held_by: Option<String>,
    /// Consumers whose next record was removed, because they were behind by more than `lag_*_max` allows. They get
    /// [`Error::OutOfRange`] at their next read.
    pub expired: Vec<String>,
}

/// Everything that holds segments back.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    held: Mutex<Held>,
    /// Files that were removed from the log, but not yet from the disk. Taken apart from the pins, so that nobody waits for
    /// the disk who only moves one.
    leftovers: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Held {
    next_id: u64,
    pins: BTreeMap<u64, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    floor: Offset,
    name: String,
    /// Whether `lag_*_max` may overrule it.
    bounded: bool,
}

/// A hold on the log: no record at or above its floor is removed while it exists. Dropping it lets go.
#[derive(Debug)]
pub struct Pin {
    log: Arc<Log>,
    id: u64,
}

impl Pin {
    /// Moves the floor, in either direction. Below the log's start it cannot bring anything back.
    pub fn set(&self, floor: Offset) {
        if let Some(entry) = self.log.pins.held.lock().pins.get_mut(&self.id) {
            entry.floor = floor;
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.log.pins.held.lock().pins.remove(&self.id);
    }
}

impl Log {
    pub(crate) fn pin(self: &Arc<Self>, floor: Offset, name: String, bounded: bool) -> Pin {
        let mut held = self.pins.held.lock();
        held.next_id += 1;
        let id = held.next_id;
        held.pins.insert(id, Entry { floor, name, bounded });
        Pin {
            log: Arc::clone(self),
            id,
        }
    }

    /// Removes what the options say may go, and with `floor` also everything below it.
    pub(crate) fn retain(&self, floor: Option<Offset>) -> Result<RetentionReport> {
        self.core.lock().check_open()?;
        if let Some(floor) = floor {
            self.free_for(floor)?;
        }
        // One at a time.
        let mut leftovers = self.pins.leftovers.lock();
        // No new pin is taken below what is being removed.
        let held = self.pins.held.lock();
        let segments = self.segments();
        let plan = self.plan(&segments, &held, floor);
        let mut report = RetentionReport {
            held_by: plan.held_by,
            ..RetentionReport::default()
        };
        if plan.remove > 0 {
            let first = &segments[plan.remove];
            let start = first.base_offset();
            let durable_end = self.durable().offset;
            self.write_meta(|meta| {
                meta.start_gen = first.generation();
                meta.start_offset = start;
                meta.durable_end = meta.durable_end.max(durable_end);
            })
            .map_err(|e| self.stop(&mut self.core.lock(), e))?;
            self.segments.write().drain(..plan.remove);
            for (segment, bytes) in segments.iter().zip(&plan.sizes).take(plan.remove) {
                segment.forget_file();
                leftovers.push(segment.name.clone());
                report.segments_removed += 1;
                report.bytes_removed += bytes;
            }
            report.expired = held
                .pins
                .values()
                .filter(|p| p.bounded && p.floor < start)
                .map(|p| p.name.clone())
                .collect();
        }
        report.start = self.start();
        drop(held);
        self.unlink(&mut leftovers)?;
        Ok(report)
    }

    /// Removes the files of removed segments; those that cannot be removed now are tried again next time.
    fn unlink(&self, leftovers: &mut Vec<String>) -> Result<()> {
        if leftovers.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        leftovers.retain(|name| match self.storage.remove(name) {
            Ok(()) => false,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
            Err(e) => {
                failed = Some(Error::io("remove", self.path(name), e));
                true
            }
        });
        // Not synced: a crash may bring some of them back, as left-overs, and the next open removes those.
        failed.map_or(Ok(()), Err)
    }

    /// Makes everything below `floor` lie in sealed segments where `floor` is the end, so that a log can be emptied.
    fn free_for(&self, floor: Offset) -> Result<()> {
        let end = self.durable().offset;
        if floor > end {
            return Err(Error::OutOfRange {
                wanted: floor,
                start: self.start(),
                end,
            });
        }
        let full = {
            let core = self.core.lock();
            let holds = match &core.active {
                Active::Present(active) => active.segment.base_offset() < core.next,
                Active::Absent { .. } => true,
            };
            floor == core.next && floor > self.start() && holds
        };
        if full {
            self.rotate()?;
            self.ensure_active()?;
        }
        Ok(())
    }

    fn plan(&self, segments: &[Arc<Segment>], held: &Held, floor: Option<Offset>) -> Plan {
        let retention = self.options.retention;
        let durable_end = self.durable().offset;
        // What the active one takes is not known without asking the disk, and it stays anyway.
        let sizes: Vec<u64> = segments
            .iter()
            .map(|s| s.end().map_or(0, |end| end.pin.end_pos))
            .collect();
        let mut plan = Plan {
            remove: 0,
            sizes,
            held_by: None,
        };
        let mut left: u64 = plan.sizes.iter().sum();
        // The last one always stays: it is the memory of the next offset.
        for (at, segment) in segments.iter().enumerate().take(segments.len().saturating_sub(1)) {
            let Some(end) = segment.end() else { break };
            let aged = |max: Duration| self.age_ms(segments, at) > millis(max);
            let too_much = retention.bytes_max.is_some_and(|max| left > max);
            let too_old = retention.age_max.is_some_and(aged);
            let below = floor.is_some_and(|floor| end.offset <= floor);
            if !(too_much || too_old || below) {
                break;
            }
            let behind = left - plan.sizes[at];
            let holds = |pin: &&Entry| {
                let lags_too_far = retention
                    .lag_records_max
                    .is_some_and(|max| durable_end - end.offset.min(durable_end) >= max)
                    || retention.lag_bytes_max.is_some_and(|max| behind >= max)
                    || retention.lag_age_max.is_some_and(aged);
                pin.floor < end.offset && !(pin.bounded && lags_too_far)
            };
            if let Some(pin) = held.pins.values().find(holds) {
                plan.held_by = Some(pin.name.clone());
                break;
            }
            left = behind;
            plan.remove = at + 1;
        }
        plan
    }

    /// How old the newest record of a sealed segment is at least, in milliseconds.
    ///
    /// Wall clocks jump, so two sources are asked and the one that says more counts. A segment is as old as the time since a later
    /// segment was created; of those, stamps from before its own creation are evidently wrong and ignored. And it is at least as
    /// old as this log has been open, if it was sealed before. A clock that was once far ahead therefore delays removal
    /// until the log has been open for `age_max`; one that was behind removes nothing early.
    fn age_ms(&self, segments: &[Arc<Segment>], at: usize) -> u64 {
        let created = segments[at].header.created_ms;
        let later = segments[at + 1..].iter().map(|s| s.header.created_ms);
        let sealed = later.filter(|ms| *ms >= created).min();
        let by_wall = sealed.map_or(0, |ms| self.believable_now_ms(segments).saturating_sub(ms));
        let open = self.epoch.elapsed_ms(&*self.options.clock);
        let sealed_before = segments[at + 1].header.created_ms < self.epoch.wall_ms();
        if sealed_before { by_wall.max(open) } else { by_wall }
    }

    /// The present, as far as it can be believed. A wall clock that stood more than a month beyond everything in the log
    /// when it was opened has jumped, or the log lay idle that long: either way nothing is removed for it before the log has been open
    /// for a while.
    fn believable_now_ms(&self, segments: &[Arc<Segment>]) -> u64 {
        const MONTH_MS: u64 = 31 * 24 * 3600 * 1000;
        let opened = self.epoch.wall_ms();
        let stamps = segments.iter().map(|s| s.header.created_ms);
        let newest = stamps.filter(|ms| *ms <= opened).max().unwrap_or(opened);
        let believed = if opened - newest > MONTH_MS { newest } else { opened };
        believed.saturating_add(self.epoch.elapsed_ms(&*self.options.clock))
    }
}

struct Plan {
    /// How many of the oldest segments go.
    remove: usize,
    sizes: Vec<u64>,
    held_by: Option<String>,
}
