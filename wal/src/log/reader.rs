//! Reading records in order, by offset, and at the tail.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Log, Mark};
use crate::codec::cursor::Anchor;
use crate::codec::frame::{self, Header, Kind};
use crate::error::{Corruption, Damage, Error, Result};
use crate::offset::Offset;
use crate::segment::walk::{Step, Walk};
use crate::segment::{INDEX_STRIDE, Segment};

/// Which records a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Visible {
    /// Those that no power cut can take back.
    #[default]
    Durable,
    /// Also those that the operating system has, but perhaps not yet the disk. A power cut may take them back, and give their
    /// offsets to other records.
    Written,
}

/// A record, borrowed from the reader's buffer until the next one is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its offset.
    pub offset: Offset,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Log {
    /// One past the last record that `visible` shows, and where its frame ends.
    pub(crate) fn watermark(&self, visible: Visible) -> Mark {
        let core = self.core.lock();
        match visible {
            Visible::Durable => core.durable,
            Visible::Written => core.written,
        }
    }

    pub(crate) fn out_of_range(&self, wanted: Offset, visible: Visible) -> Error {
        Error::OutOfRange {
            wanted,
            start: self.start(),
            end: self.watermark(visible).offset,
        }
    }

    /// Waits until `visible` shows everything below `offset`. Returns false when the log is closed, or `deadline` has passed.
    pub(crate) fn wait_to(&self, offset: Offset, visible: Visible, deadline: Option<Instant>) -> Result<bool> {
        match offset.checked_sub(1) {
            Some(last) => self.wait_beyond(last, visible, deadline),
            None => Ok(true),
        }
    }

    /// Waits until `visible` shows more than `end`. Returns false when the log is closed, or `deadline` has passed.
    fn wait_beyond(&self, end: Offset, visible: Visible, deadline: Option<Instant>) -> Result<bool> {
        let mut core = self.core.lock();
        loop {
            let (mark, moved) = match visible {
                Visible::Durable => (core.durable, &self.durable),
                Visible::Written => (core.written, &self.roles),
            };
            if mark.offset > end {
                return Ok(true);
            }
            if core.closed {
                return Ok(false);
            }
            if let Some(cause) = core.poison.clone() {
                return Err(Error::Poisoned { cause });
            }
            match deadline {
                None => moved.wait(&mut core),
                Some(deadline) => {
                    if moved.wait_until(&mut core, deadline).timed_out() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn segment_at(&self, offset: Offset) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        let at = segments.partition_point(|s| s.base_offset() <= offset);
        at.checked_sub(1).map(|at| Arc::clone(&segments[at]))
    }

    /// Whether the log has another object for the segment's generation.
    fn was_replaced(&self, segment: &Arc<Segment>) -> bool {
        let segments = self.segments.read();
        segments
            .iter()
            .any(|s| s.generation() == segment.generation() && !Arc::ptr_eq(s, segment))
    }

    fn segment_after(&self, generation: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        let at = segments.partition_point(|s| s.generation() <= generation);
        segments.get(at).cloned()
    }
}

/// Reads records in order, checking each against its digest.
///
/// Memory is one buffer of 128 KiB, or one frame where that is larger. A reader keeps the segment that it is in readable even when
/// retention removes it; it gets [`Error::OutOfRange`] when it comes to one that is gone, never a gap.
#[derive(Debug)]
pub struct Reader {
    log: Arc<Log>,
    visible: Visible,
    /// The offset to hand out next.
    next: Offset,
    /// One past the last offset to hand out.
    stop: Option<Offset>,
    /// How far may be read, as last asked: asked again only when it is reached.
    mark: Mark,
    at: Option<At>,
    last: Option<(Offset, Anchor)>,
    /// Whether it is to read one record only.
    single: bool,
}

/// A place inside a segment.
#[derive(Debug)]
struct At {
    segment: Arc<Segment>,
    walk: Walk,
    /// The last place that was added to the segment's index.
    noted: u64,
    /// The data frame whose records are being handed out, and how far.
    frame: Option<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    pos: u64,
    header: Header,
    /// Number of the next record in it, and where its bytes begin.
    n: u16,
    cursor: usize,
}

impl At {
    /// Whether all records of the segment were passed, and there is a next one.
    fn is_read_out(&self, mark: Mark) -> bool {
        let end = self.segment.end().map_or(Offset::MAX, |end| end.offset);
        self.segment.generation() < mark.generation && self.walk.expected >= end
    }

    /// Adds a place to the segment's index now and then, so that the next reader finds its way faster.
    fn remember(&mut self, pos: u64, header: &Header) {
        if header.kind == Kind::Data && pos - self.noted >= INDEX_STRIDE {
            self.noted = pos;
            self.segment.note(header.base_offset, pos);
        }
    }
}

impl Reader {
    /// A reader from `from`, which must be in `start..=end` of what is visible.
    pub(crate) fn new(log: Arc<Log>, from: Offset, visible: Visible) -> Result<Self> {
        if from < log.start() || from > log.watermark(visible).offset {
            return Err(log.out_of_range(from, visible));
        }
        Ok(Self::anywhere(log, from, visible))
    }

    /// A reader from `from`, wherever that is: what is wrong with it comes with the first read.
    pub(crate) fn anywhere(log: Arc<Log>, from: Offset, visible: Visible) -> Self {
        Self {
            log,
            visible,
            next: from,
            stop: None,
            mark: Mark::default(),
            at: None,
            last: None,
            single: false,
        }
    }

    /// The one record at `offset`, copied out.
    pub(crate) fn read_one(log: &Arc<Log>, offset: Offset) -> Result<Vec<u8>> {
        let mut reader = Self::new(Arc::clone(log), offset, Visible::Durable)?;
        reader.single = true;
        match reader.next()? {
            Some(record) => Ok(record.bytes.to_vec()),
            None => Err(log.out_of_range(offset, Visible::Durable)),
        }
    }

    pub(crate) fn range(log: Arc<Log>, range: impl RangeBounds<Offset>, visible: Visible) -> Result<Self> {
        let (start, end) = (log.start(), log.watermark(visible).offset);
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => start,
        };
        let to = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(to) => *to,
            Bound::Unbounded => end,
        };
        if to > end {
            return Err(log.out_of_range(to, visible));
        }
        let mut reader = Self::new(log, from, visible)?;
        reader.stop = Some(to.max(from));
        Ok(reader)
    }

    /// The offset of the record that comes next.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.next
    }

    /// Goes to `offset`, which must be in `start..=end` of what is visible.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the bounds; the reader stays where it was.
    pub fn seek(&mut self, offset: Offset) -> Result<()> {
        if offset < self.log.start() || offset > self.log.watermark(self.visible).offset {
            return Err(self.log.out_of_range(offset, self.visible));
        }
        self.go(offset);
        Ok(())
    }

    pub(crate) fn go(&mut self, offset: Offset) {
        self.next = offset;
        self.at = None;
    }

    /// Moves to the next record without handing it out. False where there is none yet.
    pub(crate) fn ready(&mut self) -> Result<bool> {
        Ok(self.stop.is_none_or(|stop| self.next < stop) && self.advance()?)
    }

    /// What recognises the frame of the record that comes next, after [`Reader::ready`].
    pub(crate) fn anchor(&self) -> Option<Anchor> {
        let at = self.at.as_ref()?;
        let open = at.frame?;
        Some(Anchor {
            generation: at.segment.generation(),
            pos: open.pos,
            crc: open.header.crc,
        })
    }

    /// The record handed out last, and its anchor.
    pub(crate) fn last(&self) -> Option<(Offset, Anchor)> {
        self.last
    }

    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<bool> {
        self.log.wait_beyond(self.next, self.visible, deadline)
    }

    /// The next record; `None` at the end of what is visible or of the range. Call again when there may be more.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at a damaged record: the reader stays before it, see [`Reader::skip_damage`]. [`Error::OutOfRange`]
    /// where retention has removed what comes next. [`Error::Io`].
    #[allow(
        clippy::should_implement_trait,
        reason = "the record borrows from the reader, which `Iterator` cannot say"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        if !self.ready()? {
            return Ok(None);
        }
        let offset = self.next;
        self.last = self.anchor().map(|anchor| (offset, anchor));
        let path = |at: &At| at.segment.path();
        let at = self.at.as_mut().expect("advanced to a record");
        let open = at.frame.as_mut().expect("advanced to a record");
        let (n, cursor) = (open.n, open.cursor);
        let (pos, header) = (open.pos, open.header);
        let payload_len = header.payload_len as usize;
        // Already in the buffer, and checked.
        if let Err(e) = at.walk.frames.unchecked_payload(pos, &header) {
            return Err(Error::io("read", path(at), e));
        }
        let payload = at.walk.frames.unchecked_payload(pos, &header).unwrap_or_default();
        debug_assert_eq!(payload.len(), payload_len);
        let (bytes, cursor) = frame::record(header.count, payload, n, cursor);
        self.next += 1;
        if n + 1 == header.count {
            at.frame = None;
        } else if let Some(open) = &mut at.frame {
            (open.n, open.cursor) = (n + 1, cursor);
        }
        Ok(Some(Record { offset, bytes }))
    }

    /// Moves to the frame that holds `next`. False at the end of what is visible.
    fn advance(&mut self) -> Result<bool> {
        loop {
            if self.next >= self.mark.offset && !self.look_again() {
                return Ok(false);
            }
            let mark = self.mark;
            let at = match &mut self.at {
                Some(at) => at,
                None => {
                    let at = self.locate(mark)?;
                    self.at.insert(at)
                }
            };
            if at.frame.is_some() {
                return Ok(true);
            }
            let step = at.walk.step();
            match step.map_err(|e| Error::io("read", at.segment.path(), e))? {
                Step::Frame { pos, header } => {
                    at.remember(pos, &header);
                    if header.kind == Kind::Data && header.end_offset() > self.next {
                        let frame = open(at, pos, header, self.next)?;
                        at.frame = Some(frame);
                    }
                }
                // Behind the last record of a segment only control frames can be damaged, and they carry none.
                Step::End | Step::Bad(_) if at.is_read_out(mark) => self.enter_next()?,
                Step::End => return Err(self.corruption(Damage::LostTail)),
                Step::Bad(damage) => {
                    let error = self.corruption(damage);
                    let Some(at) = &mut self.at else { return Err(error) };
                    // Damage to a record before the one wanted is not in its way.
                    let before = at.walk.expected < self.next;
                    let skipped = before
                        && at
                            .walk
                            .skip_damage()
                            .map_err(|e| Error::io("read", at.segment.path(), e))?;
                    if !skipped || at.walk.expected > self.next {
                        self.at = None;
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Asks how far may be read by now. False where it is not further than `next`.
    fn look_again(&mut self) -> bool {
        self.mark = self.log.watermark(self.visible);
        if self.next >= self.mark.offset {
            return false;
        }
        if let Some(at) = &mut self.at {
            if self.log.was_replaced(&at.segment) {
                // The log was reopened in place.
                self.at = None;
            } else {
                at.walk.frames.raise_limit(limit(&at.segment, self.mark));
            }
        }
        true
    }

    fn locate(&self, mark: Mark) -> Result<At> {
        if self.next < self.log.start() {
            return Err(self.log.out_of_range(self.next, self.visible));
        }
        let segment = self.log.segment_at(self.next);
        let segment = segment.ok_or_else(|| self.log.out_of_range(self.next, self.visible))?;
        self.removed_meanwhile(self.enter(segment, mark))
    }

    fn enter(&self, segment: Arc<Segment>, mark: Mark) -> Result<At> {
        let (base, pos) = segment.seek(self.next)?;
        let frames = segment.frames(limit(&segment, mark))?;
        let frames = if self.single { frames.for_one_record() } else { frames };
        let walk = Walk::from(frames, pos, base);
        Ok(At {
            segment,
            walk,
            noted: pos,
            frame: None,
        })
    }

    fn enter_next(&mut self) -> Result<()> {
        let generation = self.at.as_ref().map_or(0, |at| at.segment.generation());
        let next = self.log.segment_after(generation);
        // Not every generation has to be there: an empty segment goes with the one before it. But no offset may be missing.
        let Some(segment) = next.filter(|s| s.base_offset() <= self.next) else {
            return Err(self.log.out_of_range(self.next, self.visible));
        };
        self.at = Some(self.removed_meanwhile(self.enter(segment, self.mark))?);
        Ok(())
    }

    /// A segment that retention removed before it was opened is out of range, not an error of the disk.
    fn removed_meanwhile<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::Io { .. }) if self.next < self.log.start() => {
                Err(self.log.out_of_range(self.next, self.visible))
            }
            other => other,
        }
    }

    fn corruption(&self, damage: Damage) -> Error {
        let (file, pos) = match &self.at {
            Some(at) => (at.segment.path(), at.walk.pos),
            None => (String::new(), 0),
        };
        Corruption {
            file,
            pos,
            offset: self.next,
            damage,
            witness: None,
            dir: self.log.storage.root().to_path_buf(),
        }
        .into()
    }

    /// Goes on behind a damaged record, on purpose: to the next frame that can be read. Returns the offsets that were skipped,
    /// which are lost to this reader, or `None` where nothing more can be read.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn skip_damage(&mut self) -> Result<Option<std::ops::Range<Offset>>> {
        let lost = self.next;
        let mark = self.log.watermark(self.visible);
        if lost >= mark.offset {
            return Ok(None);
        }
        self.mark = mark;
        let mut at = self.locate(mark)?;
        loop {
            let failed = |at: &At, e| Error::io("read", at.segment.path(), e);
            let more = match at.walk.step().map_err(|e| failed(&at, e))? {
                Step::Frame { pos, header } => {
                    if header.kind == Kind::Data && header.end_offset() > lost {
                        self.next = header.base_offset.max(lost);
                        at.frame = Some(open(&mut at, pos, header, self.next)?);
                        self.at = Some(at);
                        return Ok(Some(lost..self.next));
                    }
                    true
                }
                Step::Bad(_) => at.walk.skip_damage().map_err(|e| failed(&at, e))?,
                Step::End => false,
            };
            if !more {
                match self.log.segment_after(at.segment.generation()) {
                    Some(segment) if segment.base_offset() < mark.offset => at = self.enter(segment, mark)?,
                    _ => return Ok(None),
                }
            }
        }
    }
}

/// How far a segment may be read.
pub(crate) fn limit(segment: &Segment, mark: Mark) -> u64 {
    if segment.generation() == mark.generation {
        mark.pos
    } else {
        segment.end().map_or(0, |end| end.pin.end_pos)
    }
}

/// Steps inside a frame to the record `wanted`.
fn open(at: &mut At, pos: u64, header: Header, wanted: Offset) -> Result<Open> {
    let payload = at.walk.frames.unchecked_payload(pos, &header);
    let payload = payload.map_err(|e| Error::io("read", at.segment.path(), e))?;
    let (mut n, mut cursor) = (0, 0);
    while header.base_offset + u64::from(n) < wanted {
        cursor = frame::record(header.count, payload, n, cursor).1;
        n += 1;
    }
    Ok(Open { pos, header, n, cursor })
}

/// A reader that waits at the end for more.
///
/// It sleeps until the durable end moves (or, for [`Visible::Written`], until more is written); it does not poll.
#[derive(Debug)]
pub struct Tail {
    reader: Reader,
}

impl Tail {
    pub(crate) fn new(reader: Reader) -> Self {
        Self { reader }
    }

    /// The offset of the record that comes next.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.reader.next
    }

    /// The next record, waiting for it. `None` when the log was closed and everything has been read.
    ///
    /// # Errors
    /// As [`Reader::next`], and [`Error::Poisoned`] when the log has stopped and there is nothing more to read.
    #[allow(
        clippy::should_implement_trait,
        reason = "the record borrows from the reader, which `Iterator` cannot say"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        self.reader.wait(None)?;
        self.reader.next()
    }

    /// As [`Tail::next`], waiting no longer than `timeout`. `None` then, too.
    ///
    /// # Errors
    /// As [`Tail::next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        self.reader.wait(Some(Instant::now() + timeout))?;
        self.reader.next()
    }
}
