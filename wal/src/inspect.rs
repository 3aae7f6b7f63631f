//! Looking at a log's files without a log: [`verify`] reads every byte, [`Survivors`] reads what damage has left.
//!
//! Nothing here takes a lock or writes, and nothing stops at the first thing found.

use std::ops::Range;
use std::sync::Arc;

use crate::codec::frame::{self, HEADER_LEN, Header, Kind};
use crate::codec::meta::{self, Meta};
use crate::codec::segment_header::{self, SegmentHeader};
use crate::codec::{LogId, cursor, slots};
use crate::error::{Corruption, Damage, Error, FrameError, Result};
use crate::log::open::examine_live;
use crate::log::reader::Record;
use crate::log::recovery::Examined;
use crate::offset::Offset;
use crate::report::{Cut, Note, RecoveryReport};
use crate::segment::Segment;
use crate::segment::files::Files;
use crate::segment::walk::{Step, Walk};
use crate::storage::{Access, Storage, read_full_at};

/// Everything that [`verify`] found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Verification {
    /// The first retained offset.
    pub start: Offset,
    /// One past the last record.
    pub end: Offset,
    /// One past the last record that the files prove durable.
    pub proven_end: Offset,
    /// Whether the log was closed in order.
    pub was_closed: bool,
    /// Records whose every byte was read and is right.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// The segments, oldest first.
    pub segments: Vec<SegmentInfo>,
    /// A torn tail, as a crash leaves it. Opening for writing cuts it off; no promise is broken.
    pub cut: Option<Cut>,
    /// Broken promises: records, files or positions that cannot be read as they were written.
    pub damage: Vec<Finding>,
    /// Oddities that cost nothing: a damaged second copy, bytes where there should be none.
    pub notes: Vec<Note>,
}

impl Verification {
    /// Whether no promise is broken. A torn tail is clean, and so are notes.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty()
    }
}

/// A segment, as its file is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentInfo {
    /// The file, as a path.
    pub file: String,
    /// Its number, from 1.
    pub generation: u64,
    /// The offset of its first record.
    pub base_offset: Offset,
    /// One past its last record.
    pub end_offset: Offset,
    /// Length of the file.
    pub file_bytes: u64,
    /// One past its last frame.
    pub end_pos: u64,
    /// When it was created, in milliseconds since 1970; 0 where its header is lost.
    pub created_ms: u64,
}

/// A piece of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What, where, and how it is known to be damage.
    pub corruption: Corruption,
    /// The offsets lost by it, as far as can be told; empty where no record is.
    pub lost: Range<Offset>,
}

/// What the headers of a log say, without reading its records.
///
/// # Errors
/// As [`crate::Options::open_read_only`].
pub fn survey(storage: &Arc<dyn Storage>) -> Result<(RecoveryReport, Vec<SegmentInfo>)> {
    let examined = examine_live(storage, 0)?;
    let mut infos = Vec::new();
    for part in parts(&examined)? {
        infos.push(part.info()?);
    }
    Ok((examined.report, infos))
}

/// The identity of the log in a directory; `None` where there is no log or it cannot be told.
#[must_use]
pub fn log_id(storage: &dyn Storage) -> Option<[u8; 16]> {
    let file = read(storage, meta::FILE_NAME, slots::FILE_LEN).ok()?;
    Meta::decode_file(&file).ok().map(|(meta, _)| meta.log)
}

/// Reads every byte of the log and of its consumers, goes on past damage, and lists all of it. Works beside a writer.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotALog`], [`Error::UnsupportedVersion`], [`Error::Io`]. Damage is no error: it is the answer.
pub fn verify(storage: &Arc<dyn Storage>) -> Result<Verification> {
    let mut found = Verification::default();
    let parts = match examine_live(storage, 0) {
        Ok(examined) => {
            let report = &examined.report;
            found.start = report.start;
            found.proven_end = report.proven_end;
            found.was_closed = report.was_closed;
            found.cut.clone_from(&report.cut);
            found.notes.clone_from(&report.notes);
            for cursor in &examined.cursors {
                if let Err(reason) = &cursor.cursor {
                    found.damage.push(lost_position(storage, &cursor.file, reason));
                }
            }
            parts(&examined)?
        }
        Err(Error::Corrupt(corruption)) => {
            let lost_to = corruption.witness.as_ref().and_then(|w| w.durable_end());
            found.proven_end = lost_to.unwrap_or(0);
            found.damage.push(Finding {
                lost: corruption.offset..lost_to.unwrap_or(corruption.offset).max(corruption.offset),
                corruption: *corruption,
            });
            remains(storage, &mut found.notes)?
        }
        Err(e) => return Err(e),
    };
    found.start = parts.first().map_or(found.start, |p| p.segment.base_offset());
    found.end = found.start;
    for part in parts {
        found.read_segment(storage, part)?;
    }
    found.end = found.end.max(found.start);
    found.read_small_files(storage)?;
    Ok(found)
}

fn lost_position(storage: &Arc<dyn Storage>, file: &str, reason: &str) -> Finding {
    Finding {
        corruption: Corruption {
            file: path(&**storage, file),
            pos: 0,
            offset: 0,
            damage: Damage::Position(reason.to_owned()),
            witness: None,
            dir: storage.root().to_path_buf(),
        },
        lost: 0..0,
    }
}

impl Verification {
    fn read_segment(&mut self, storage: &Arc<dyn Storage>, part: Part) -> Result<()> {
        if part.segment.base_offset() > self.end && self.end > self.start {
            self.add(Finding {
                lost: self.end..part.segment.base_offset(),
                corruption: corruption(storage, part.segment.path(), 0, self.end, Damage::LostTail),
            });
        }
        let mut info = part.info()?;
        let failed = |e| Error::io("read", info.file.clone(), e);
        let file = part.segment.file()?;
        let mut block = vec![0; segment_header::BLOCK];
        read_full_at(&*file, 0, &mut block).map_err(failed)?;
        if let Some(at) = segment_header::stray_bytes(&block) {
            self.stray(&info.file, at as u64);
        }
        let mut sweep = Sweep::new(storage, &part)?;
        loop {
            match sweep.next()? {
                Event::Frame { pos, header } => {
                    if header.kind == Kind::Data {
                        self.records += u64::from(header.count);
                        self.record_bytes += frame::record_bytes(&header);
                    }
                    let end = pos + HEADER_LEN as u64 + u64::from(header.payload_len);
                    let padding = usize::try_from(pos + header.frame_len() - end).expect("below 8");
                    let bytes = sweep.walk.frames.bytes(end, padding).map_err(failed)?;
                    if let Some(at) = bytes.iter().position(|b| *b != 0) {
                        self.stray(&info.file, end + at as u64);
                    }
                }
                Event::Lost(finding) => self.add(finding),
                Event::End => break,
            }
        }
        for skipped in &sweep.walk.skipped {
            self.notes.push(Note {
                file: info.file.clone(),
                pos: skipped.from,
                what: format!(
                    "a frame without records is damaged, or torn by a crash ({})",
                    skipped.error
                ),
            });
        }
        info.end_offset = sweep.walk.expected;
        info.end_pos = sweep.walk.pos;
        self.end = info.end_offset;
        self.segments.push(info);
        // The same oddity is met by recovery and by the walk.
        let mut seen = std::collections::BTreeSet::new();
        self.notes
            .retain(|n| seen.insert((n.file.clone(), n.pos, n.what.clone())));
        Ok(())
    }

    fn add(&mut self, finding: Finding) {
        let place = |f: &Finding| (f.corruption.file.clone(), f.corruption.pos);
        if let Some(known) = self.damage.iter_mut().find(|known| place(known) == place(&finding)) {
            // Recovery said what it is. What it costs the walk knows better, where it could go on behind it.
            if !finding.lost.is_empty() {
                known.lost = finding.lost;
            }
        } else if finding.lost.is_empty() && finding.lost.start >= self.proven_end {
            // Behind everything that is known to have been durable: a torn tail, beside the damage elsewhere.
            self.notes.push(Note {
                file: finding.corruption.file,
                pos: finding.corruption.pos,
                what: format!("a torn tail: {}", finding.corruption.damage),
            });
        } else {
            self.damage.push(finding);
        }
    }

    fn stray(&mut self, file: &str, pos: u64) {
        self.notes.push(Note {
            file: file.to_owned(),
            pos,
            what: "bytes that belong to nothing are not zero; they change no answer".to_owned(),
        });
    }

    /// The parts of the meta file and of the consumers' files that no checksum covers.
    fn read_small_files(&mut self, storage: &Arc<dyn Storage>) -> Result<()> {
        for name in storage.list().map_err(|e| Error::io("list", path(&**storage, ""), e))? {
            let len = match name.as_str() {
                meta::FILE_NAME => meta::LEN,
                name if cursor::is_file_name(name) => cursor::LEN,
                _ => continue,
            };
            if let Some(at) = slots::stray_bytes(&read(&**storage, &name, slots::FILE_LEN)?, len) {
                self.stray(&path(&**storage, &name), at as u64);
            }
        }
        Ok(())
    }
}

/// A segment and how much of it is to be read.
struct Part {
    segment: Arc<Segment>,
    limit: u64,
    /// One past its last record, where that is known from elsewhere.
    end: Option<Offset>,
}

impl Part {
    fn info(&self) -> Result<SegmentInfo> {
        let segment = &self.segment;
        let len = segment
            .file()?
            .len()
            .map_err(|e| Error::io("read the length of", segment.path(), e))?;
        Ok(SegmentInfo {
            file: segment.path(),
            generation: segment.generation(),
            base_offset: segment.base_offset(),
            end_offset: self.end.unwrap_or(segment.base_offset()),
            file_bytes: len,
            end_pos: self.limit,
            created_ms: segment.header.created_ms,
        })
    }
}

/// The segments of a log that opens.
fn parts(examined: &Examined) -> Result<Vec<Part>> {
    let tail = examined.tail.as_ref().map(|t| t.end);
    let end_of = |s: &Segment| s.end().or(tail);
    Ok(examined
        .segments
        .iter()
        .map(|segment| Part {
            segment: Arc::clone(segment),
            limit: end_of(segment).map_or(0, |end| end.pin.end_pos),
            end: end_of(segment).map(|end| end.offset),
        })
        .collect())
}

/// The segments of a log that does not open, as far as files and their names tell.
fn remains(storage: &Arc<dyn Storage>, notes: &mut Vec<Note>) -> Result<Vec<Part>> {
    let names = storage.list().map_err(|e| Error::io("list", path(&**storage, ""), e))?;
    let mut places: Vec<_> = names
        .iter()
        .filter_map(|n| segment_header::parse_file_name(n))
        .collect();
    places.sort_unstable_by_key(|(base, generation)| (*generation, *base));
    let mut headers = Vec::new();
    for &(base, generation) in &places {
        let block = read(
            &**storage,
            &segment_header::file_name(base, generation),
            segment_header::BLOCK,
        )?;
        let header = SegmentHeader::decode(&block).ok();
        headers.push(header.filter(|(h, _)| (h.generation, h.base_offset) == (generation, base)));
    }
    let meta = Meta::decode_file(&read(&**storage, meta::FILE_NAME, slots::FILE_LEN).unwrap_or_default());
    let (log, start_gen): (Option<LogId>, u64) = match &meta {
        Ok((meta, _)) => (Some(meta.log), meta.start_gen),
        Err(_) => (headers.iter().flatten().map(|(h, _)| h.log).next(), 0),
    };
    let Some(log) = log else { return Ok(Vec::new()) };
    let files = Arc::new(Files::new(Arc::clone(storage)));
    let mut parts: Vec<Part> = Vec::new();
    for ((base, generation), header) in places.into_iter().zip(headers) {
        if generation < start_gen {
            continue;
        }
        let header = match header {
            Some((header, one_bad)) => {
                if one_bad {
                    notes.push(Note {
                        file: path(&**storage, &segment_header::file_name(base, generation)),
                        pos: 0,
                        what: "one of the two copies of the header is damaged; the other is used".to_owned(),
                    });
                }
                header
            }
            // The name says all that reading needs.
            None => SegmentHeader {
                log,
                generation,
                base_offset: base,
                created_ms: 0,
                prev: None,
                reserved: 0,
            },
        };
        if let (Some(pin), Some(before)) = (header.prev, parts.last_mut())
            && before.segment.generation() == pin.generation
        {
            before.limit = before.limit.min(pin.end_pos);
            before.end = Some(base);
        }
        // Frames are read with the seed of the log, whatever the header says: foreign ones fail.
        let segment = Arc::new(Segment::new(&files, SegmentHeader { log, ..header }));
        let len = segment
            .file()?
            .len()
            .map_err(|e| Error::io("read the length of", segment.path(), e))?;
        parts.push(Part {
            segment,
            limit: len,
            end: None,
        });
    }
    Ok(parts)
}

enum Event {
    Frame { pos: u64, header: Header },
    Lost(Finding),
    End,
}

/// Reads one segment from end to end, past all damage.
struct Sweep {
    storage: Arc<dyn Storage>,
    file: String,
    walk: Walk,
    end: Option<Offset>,
    ended: bool,
}

impl Sweep {
    fn new(storage: &Arc<dyn Storage>, part: &Part) -> Result<Self> {
        Ok(Self {
            storage: Arc::clone(storage),
            file: part.segment.path(),
            walk: Walk::from_start(part.segment.frames(part.limit)?, part.segment.base_offset()),
            end: part.end,
            ended: false,
        })
    }

    fn next(&mut self) -> Result<Event> {
        if self.ended {
            return Ok(Event::End);
        }
        let file = self.file.clone();
        let failed = |e| Error::io("read", file.clone(), e);
        match self.walk.step().map_err(failed)? {
            Step::Frame { pos, header } => Ok(Event::Frame { pos, header }),
            Step::End => Ok(self.finish(Damage::LostTail)),
            Step::Bad(damage) => {
                let (pos, lost) = (self.walk.pos, self.walk.expected);
                let more = self.walk.skip_damage().map_err(failed)?;
                let blank = damage == Damage::Frame(FrameError::Blank);
                if !more && self.walk.pos == pos && (blank && self.end.is_none_or(|end| end == lost)) {
                    // The reserved space of a segment that nobody sealed.
                    self.ended = true;
                    return Ok(Event::End);
                }
                if !more && self.walk.expected == lost {
                    return Ok(self.finish(damage));
                }
                self.ended = !more;
                Ok(Event::Lost(self.finding(pos, lost..self.walk.expected, damage)))
            }
        }
    }

    /// Nothing more to read. Where more was known to be there, it is lost.
    fn finish(&mut self, damage: Damage) -> Event {
        self.ended = true;
        let (pos, lost) = (self.walk.pos, self.walk.expected);
        match self.end {
            Some(end) if end > lost => {
                self.walk.expected = end;
                Event::Lost(self.finding(pos, lost..end, damage))
            }
            Some(_) => Event::End,
            None if damage == Damage::LostTail => Event::End,
            None => Event::Lost(self.finding(pos, lost..lost, damage)),
        }
    }

    fn finding(&self, pos: u64, lost: Range<Offset>, damage: Damage) -> Finding {
        Finding {
            corruption: corruption(&self.storage, self.file.clone(), pos, lost.start, damage),
            lost,
        }
    }
}

fn corruption(storage: &Arc<dyn Storage>, file: String, pos: u64, offset: Offset, damage: Damage) -> Corruption {
    Corruption {
        file,
        pos,
        offset,
        damage,
        witness: None,
        dir: storage.root().to_path_buf(),
    }
}

/// What [`Survivors`] meets.
#[derive(Debug)]
pub enum Survivor<'a> {
    /// A record whose bytes are right.
    Record(Record<'a>),
    /// Damage, and the offsets it costs. Reading goes on behind it.
    Lost(Finding),
}

/// Reads all whole records of a log that may be damaged, in order of their offsets, and tells what is missing between them.
///
/// For getting data out of a log that does not open. It reads whatever is whole, also records that were never durable.
#[derive(Debug)]
pub struct Survivors {
    storage: Arc<dyn Storage>,
    parts: std::vec::IntoIter<Part>,
    sweep: Option<Sweep>,
    frame: Option<(u64, Header, u16, usize)>,
    next: Offset,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.segment.name)
    }
}

impl std::fmt::Debug for Sweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)
    }
}

impl Survivors {
    /// Reads from the first segment that is left.
    ///
    /// # Errors
    /// As [`verify`].
    pub fn open(storage: &Arc<dyn Storage>) -> Result<Self> {
        let parts = match examine_live(storage, 0) {
            Ok(examined) => parts(&examined)?,
            Err(Error::Corrupt(_)) => remains(storage, &mut Vec::new())?,
            Err(e) => return Err(e),
        };
        let next = parts.first().map_or(0, |p| p.segment.base_offset());
        Ok(Self {
            storage: Arc::clone(storage),
            parts: parts.into_iter(),
            sweep: None,
            frame: None,
            next,
        })
    }

    /// The next record or piece of damage; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`].
    #[allow(
        clippy::should_implement_trait,
        reason = "the record borrows from the reader, which `Iterator` cannot say"
    )]
    pub fn next(&mut self) -> Result<Option<Survivor<'_>>> {
        while self.frame.is_none() {
            let Some(sweep) = &mut self.sweep else {
                let Some(part) = self.parts.next() else { return Ok(None) };
                let (file, base) = (part.segment.path(), part.segment.base_offset());
                self.sweep = Some(Sweep::new(&self.storage, &part)?);
                if base > self.next {
                    let lost = std::mem::replace(&mut self.next, base)..base;
                    let corruption = corruption(&self.storage, file, 0, lost.start, Damage::Missing);
                    return Ok(Some(Survivor::Lost(Finding { corruption, lost })));
                }
                continue;
            };
            match sweep.next()? {
                Event::Frame { pos, header } if header.kind == Kind::Data => self.frame = Some((pos, header, 0, 0)),
                Event::Frame { .. } => {}
                Event::Lost(finding) => {
                    self.next = sweep.walk.expected;
                    return Ok(Some(Survivor::Lost(finding)));
                }
                Event::End => self.sweep = None,
            }
        }
        let (Some((pos, header, n, at)), Some(sweep)) = (self.frame, &mut self.sweep) else {
            return Ok(None);
        };
        let payload = sweep.walk.frames.unchecked_payload(pos, &header);
        let payload = payload.map_err(|e| Error::io("read", sweep.file.clone(), e))?;
        let (bytes, after) = frame::record(header.count, payload, n, at);
        self.frame = (n + 1 < header.count).then_some((pos, header, n + 1, after));
        let offset = header.base_offset + u64::from(n);
        self.next = offset + 1;
        Ok(Some(Survivor::Record(Record { offset, bytes })))
    }
}

/// One frame, decoded from bytes at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame<'a> {
    /// Offset of its first record; of the next record where it has none.
    pub base_offset: Offset,
    /// How many records it has; 0 for control frames.
    pub count: u16,
    /// Everything below was durable when it was written.
    pub durable_end: Offset,
    /// Bytes it takes, padding included.
    pub len: u64,
    /// Its payload: the record, or a batch's lengths and records.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The records.
    pub fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (count, payload) = (self.count, self.payload);
        (0..count).scan(0, move |at, n| {
            let (record, after) = frame::record(count, payload, n, *at);
            *at = after;
            Some(record)
        })
    }
}

/// Decodes and checks the frame at the beginning of `bytes`, which stand at `pos` in the segment `generation` of the log `log`.
///
/// This is the decoder that recovery and readers use, for tools and for fuzzing.
///
/// # Errors
/// What is wrong with it.
pub fn decode_frame<'a>(bytes: &'a [u8], log: &[u8; 16], generation: u64, pos: u64) -> Result<Frame<'a>, FrameError> {
    let header = frame::decode_header(bytes, frame::Seed::new(log, generation), pos, bytes.len() as u64)?;
    let payload = bytes
        .get(HEADER_LEN..HEADER_LEN + header.payload_len as usize)
        .ok_or(FrameError::Truncated)?;
    frame::check_payload(&header, payload)?;
    Ok(Frame {
        base_offset: header.base_offset,
        count: header.count,
        durable_end: header.durable_end,
        len: header.frame_len(),
        payload,
    })
}

/// Encodes a frame of records as [`crate::Wal`] would write it there; the inverse of [`decode_frame`]. `None` for no records, more than
/// 65,535, more than 1 GiB of them, or a `durable_end` above `base_offset`.
#[must_use]
pub fn encode_frame<R: AsRef<[u8]>>(
    records: &[R],
    base_offset: Offset,
    durable_end: Offset,
    log: &[u8; 16],
    generation: u64,
    pos: u64,
) -> Option<Vec<u8>> {
    if records.is_empty() || durable_end > base_offset || !pos.is_multiple_of(frame::ALIGN) {
        return None;
    }
    crate::offset::advance(base_offset, records.len())?;
    let payload = crate::log::append::Payload::batch(records, frame::PAYLOAD_MAX as u64).ok()?;
    let mut out = Vec::new();
    payload.encode(
        &mut out,
        base_offset,
        durable_end,
        frame::Seed::new(log, generation),
        pos,
    );
    Some(out)
}

fn path(storage: &dyn Storage, name: &str) -> String {
    storage.root().join(name).display().to_string()
}

fn read(storage: &dyn Storage, name: &str, len: usize) -> Result<Vec<u8>> {
    let file = storage
        .open(name, Access::Read)
        .map_err(|e| Error::io("open", path(storage, name), e))?;
    let mut bytes = vec![0; len];
    let got = read_full_at(&*file, 0, &mut bytes).map_err(|e| Error::io("read", path(storage, name), e))?;
    bytes.truncate(got);
    Ok(bytes)
}
