//! Reads a log's directory and decides what of it is the log. Changes nothing.
//!
//! The decision procedure, with its reasons, is `docs/recovery.md`. In short: the meta file says which segments must exist. Each
//! segment but the last ends where its successor says. In the last, the walk stops at the first place `P` that does not continue the log, at
//! offset `E`. If anything that was written after a completed sync says that record `E` was durable, it is damage: an
//! error. If nothing does, the bytes behind `P` were never promised, and are cut.

use std::sync::Arc;

use crate::codec::cursor::{self, Cursor};
use crate::codec::frame::{CLOSE_LEN, HEADER_LEN, Kind};
use crate::codec::meta::{self, Meta};
use crate::codec::segment_header::{self, BLOCK_LEN, Pin, SegmentHeader};
use crate::codec::{FORMAT_VERSION, HeaderError, registry, slots};
use crate::error::{Corruption, Damage, Error, FrameError, Result, Witness};
use crate::offset::Offset;
use crate::report::{Cut, Note, RecoveryReport, TornEvidence};
use crate::segment::files::Files;
use crate::segment::walk::{Headers, Step, Walk};
use crate::segment::{Segment, SegmentEnd};
use crate::storage::{Access, Storage, StorageFile, read_full_at};

const SECTOR: u64 = 512;

/// What a directory holds.
#[derive(Debug)]
pub(crate) enum Contents {
    /// Nothing, or the remains of a creation that was interrupted.
    Empty {
        /// Left-over files of ours.
        leftovers: Vec<String>,
    },
    /// A log.
    Log(Box<Examined>),
}

/// A log as found.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) meta: Meta,
    pub(crate) files: Arc<Files>,
    /// By generation. All but the last have their end set.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// How the last of them ends; `None` where there is none.
    pub(crate) tail: Option<Tail>,
    pub(crate) cursors: Vec<CursorFile>,
    /// Files of ours that are no part of the log: to be removed by a writer.
    pub(crate) leftovers: Vec<String>,
    pub(crate) report: RecoveryReport,
}

/// Where and how the log ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail {
    /// Ends with a close frame, so appending may go on in the same file.
    pub(crate) closed: bool,
    pub(crate) end: SegmentEnd,
    /// From this position of the last segment on, nothing proves the frames durable.
    pub(crate) unproven_pos: u64,
    /// Length of the last segment's file.
    pub(crate) file_len: u64,
}

/// The file of a consumer, read.
#[derive(Debug, Clone)]
pub(crate) struct CursorFile {
    pub(crate) file: String,
    /// The cursor, or in words why there is none.
    pub(crate) cursor: Result<Cursor, String>,
}

/// Names in a directory, sorted by what they are.
#[derive(Debug, Default)]
struct Listing {
    has_meta: bool,
    segments: Vec<(u64, Offset)>,
    cursors: Vec<String>,
    has_registry: bool,
    tmp: Vec<String>,
    foreign: Vec<String>,
}

pub(crate) const LOCK_FILE: &str = "LOCK";

fn list(storage: &dyn Storage) -> Result<Listing> {
    let root = || storage.root().to_path_buf();
    let names = storage.list().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound { dir: root() },
        std::io::ErrorKind::NotADirectory => Error::NotALog {
            dir: root(),
            reason: "it is a file".to_owned(),
        },
        _ => Error::io("list", root().display().to_string(), e),
    })?;
    let mut listing = Listing::default();
    for name in names {
        if name == meta::FILE_NAME {
            listing.has_meta = true;
        } else if let Some((base, generation)) = segment_header::parse_file_name(&name) {
            listing.segments.push((generation, base));
        } else if cursor::is_file_name(&name) {
            listing.cursors.push(name);
        } else if name == registry::FILE_NAME {
            listing.has_registry = true;
        } else if is_temporary(&name) {
            listing.tmp.push(name);
        } else if name != LOCK_FILE {
            listing.foreign.push(name);
        }
    }
    listing.segments.sort_unstable();
    listing.cursors.sort_unstable();
    Ok(listing)
}

/// Whether a name is that of a file of this crate that was being made. Other people's `*.tmp` files are theirs.
fn is_temporary(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|name| {
        name == meta::FILE_NAME
            || name == registry::FILE_NAME
            || segment_header::parse_file_name(name).is_some()
            || cursor::is_file_name(name)
    })
}

/// Reads the directory of `storage`. `known_durable` is a witness of the caller's.
pub(crate) fn examine(storage: &Arc<dyn Storage>, known_durable: Offset) -> Result<Contents> {
    let listing = list(&**storage)?;
    if !listing.has_meta {
        return without_meta(&**storage, listing);
    }
    Examination {
        storage,
        files: Arc::new(Files::new(Arc::clone(storage))),
        report: RecoveryReport::default(),
        leftovers: listing.tmp.clone(),
    }
    .run(&listing, known_durable)
}

/// Checks that a directory without a meta file holds nothing of anybody.
pub(crate) fn check_vacant(storage: &dyn Storage) -> Result<()> {
    without_meta(storage, list(storage)?).map(drop)
}

/// Creation makes the meta file first: without it there is no log yet, or it was lost.
fn without_meta(storage: &dyn Storage, listing: Listing) -> Result<Contents> {
    if let Some(&(_, offset)) = listing.segments.first() {
        return Err(Corruption {
            file: storage.root().join(meta::FILE_NAME).display().to_string(),
            pos: 0,
            offset,
            damage: Damage::Missing,
            witness: None,
            dir: storage.root().to_path_buf(),
        }
        .into());
    }
    let other = listing.foreign.first().or(listing.cursors.first());
    match other {
        Some(name) => Err(Error::NotALog {
            dir: storage.root().to_path_buf(),
            reason: format!("it has no {} but holds {name}", meta::FILE_NAME),
        }),
        None => Ok(Contents::Empty { leftovers: listing.tmp }),
    }
}

struct Examination<'a> {
    storage: &'a Arc<dyn Storage>,
    files: Arc<Files>,
    report: RecoveryReport,
    leftovers: Vec<String>,
}

/// Where the walk through the last segment ended.
struct Stop {
    pos: u64,
    offset: Offset,
    last_pos: u64,
    last_crc: u32,
    /// What is at `pos`; `None` at the end of the file.
    damage: Option<Damage>,
    closed: bool,
}

impl Examination<'_> {
    fn run(mut self, listing: &Listing, known_durable: Offset) -> Result<Contents> {
        let meta = self.read_meta()?;
        let mut cursors = self.read_cursors(&listing.cursors, &meta)?;
        if listing.has_registry {
            cursors.extend(self.missing_cursors(&listing.cursors, &meta)?);
        }
        let segments = self.read_headers(listing, &meta)?;
        let Some(last) = segments.last() else {
            return self.unborn(meta, cursors, known_durable);
        };
        self.check_sealed(&segments)?;

        let file_len = self.file_len(last)?;
        let mut proof = Proof::new(last.base_offset());
        let stop = match self.closed_tail(last, file_len)? {
            Some(stop) => stop,
            None => self.walk_last(last, file_len, &mut proof)?,
        };
        if stop.closed {
            proof.offer(stop.offset, || Witness::Frame {
                file: last.path(),
                pos: stop.last_pos,
                durable_end: stop.offset,
            });
        }
        proof.offer(meta.durable_end, || Witness::Meta {
            file: self.path(meta::FILE_NAME),
            durable_end: meta.durable_end,
        });
        for cursor in cursors.iter().filter_map(|c| c.cursor.as_ref().ok()) {
            proof.offer(cursor.committed, || Witness::Consumer {
                name: cursor.name.clone(),
                committed: cursor.committed,
            });
        }
        proof.offer(known_durable, || Witness::Caller {
            durable_end: known_durable,
        });

        if !stop.closed {
            self.judge(last, &stop, file_len, &mut proof)?;
        }
        if proof.end > stop.offset {
            return Err(self.corruption(
                last.path(),
                stop.pos,
                stop.offset,
                match stop.damage {
                    None | Some(Damage::Frame(FrameError::Blank)) => Damage::LostTail,
                    Some(damage) => damage,
                },
                proof.witness,
            ));
        }

        let generation = last.generation();
        let unproven_pos = if proof.end == stop.offset {
            stop.pos
        } else {
            self.locate(last, proof.end, stop.pos)?
        };
        self.report.was_closed = stop.closed;
        self.report.start = segments[0].base_offset();
        self.report.end = stop.offset;
        self.report.proven_end = proof.end;
        self.report.witness = proof.witness;
        self.report.segments = segments.len();
        Ok(Contents::Log(Box::new(Examined {
            meta,
            files: self.files,
            segments,
            tail: Some(Tail {
                closed: stop.closed,
                end: SegmentEnd {
                    offset: stop.offset,
                    pin: Pin {
                        generation,
                        end_pos: stop.pos,
                        last_pos: stop.last_pos,
                        last_crc: stop.last_crc,
                        cut: true,
                    },
                },
                unproven_pos,
                file_len,
            }),
            cursors,
            leftovers: self.leftovers,
            report: self.report,
        })))
    }

    /// A log whose creation got as far as the meta file.
    fn unborn(mut self, meta: Meta, cursors: Vec<CursorFile>, known_durable: Offset) -> Result<Contents> {
        if known_durable > meta.start_offset {
            let witness = Witness::Caller {
                durable_end: known_durable,
            };
            let (file, offset) = (self.path(meta::FILE_NAME), meta.start_offset);
            return Err(self.corruption(file, 0, offset, Damage::LostTail, Some(witness)));
        }
        self.report.start = meta.start_offset;
        self.report.end = meta.start_offset;
        self.report.proven_end = meta.start_offset;
        Ok(Contents::Log(Box::new(Examined {
            meta,
            files: self.files,
            segments: Vec::new(),
            tail: None,
            cursors,
            leftovers: self.leftovers,
            report: self.report,
        })))
    }

    fn path(&self, name: &str) -> String {
        self.storage.root().join(name).display().to_string()
    }

    fn note(&mut self, file: String, pos: u64, what: impl Into<String>) {
        let what = what.into();
        self.report.notes.push(Note { file, pos, what });
    }

    fn corruption(&self, file: String, pos: u64, offset: Offset, damage: Damage, witness: Option<Witness>) -> Error {
        Corruption {
            file,
            pos,
            offset,
            damage,
            witness,
            dir: self.storage.root().to_path_buf(),
        }
        .into()
    }

    fn read_file(&self, name: &str, len: usize) -> Result<Vec<u8>> {
        let file = self.storage.open(name, Access::Read);
        let file = file.map_err(|e| Error::io("open", self.path(name), e))?;
        let there = file
            .len()
            .map_err(|e| Error::io("read the length of", self.path(name), e))?;
        let mut bytes = vec![0; usize::try_from(there).map_or(len, |there| there.min(len))];
        let got = read_full_at(&*file, 0, &mut bytes).map_err(|e| Error::io("read", self.path(name), e))?;
        bytes.truncate(got);
        Ok(bytes)
    }

    fn file_len(&self, segment: &Segment) -> Result<u64> {
        segment
            .file()?
            .len()
            .map_err(|e| Error::io("read the length of", segment.path(), e))
    }

    fn read_meta(&mut self) -> Result<Meta> {
        let file = self.path(meta::FILE_NAME);
        match Meta::decode_file(&self.read_file(meta::FILE_NAME, slots::FILE_LEN)?) {
            Ok((meta, one_bad)) => {
                if one_bad {
                    self.note(
                        file,
                        0,
                        "a copy of its value is damaged, or torn by a crash; another is used",
                    );
                }
                Ok(meta)
            }
            Err(HeaderError::Version { found, .. }) => Err(unsupported(file, found)),
            Err(HeaderError::Blank | HeaderError::Damaged) => Err(self.corruption(file, 0, 0, Damage::Header, None)),
        }
    }

    fn read_cursors(&mut self, names: &[String], meta: &Meta) -> Result<Vec<CursorFile>> {
        let mut cursors = Vec::new();
        for name in names {
            let cursor = match Cursor::decode_file(&self.read_file(name, slots::FILE_LEN)?) {
                Ok((cursor, _)) if cursor.log != meta.log => Err("its file belongs to another log".to_owned()),
                Ok((cursor, _)) if cursor::file_name(&cursor.name) != *name => {
                    Err(format!("its file is that of consumer {:?}", cursor.name))
                }
                Ok((cursor, one_bad)) => {
                    if one_bad {
                        let what = "a copy of its value is damaged, or torn by a crash; another is used";
                        self.note(self.path(name), 0, what);
                    }
                    Ok(cursor)
                }
                Err(HeaderError::Version { found, .. }) => return Err(unsupported(self.path(name), found)),
                Err(HeaderError::Blank) => Err("its file is blank".to_owned()),
                Err(HeaderError::Damaged) => Err("its file is damaged".to_owned()),
            };
            if let Err(reason) = &cursor {
                self.note(
                    self.path(name),
                    0,
                    format!("the position of this consumer is lost: {reason}"),
                );
            }
            cursors.push(CursorFile {
                file: name.clone(),
                cursor,
            });
        }
        Ok(cursors)
    }

    /// Consumers that are registered and have no file: their positions are lost, and must not be taken for new ones.
    fn missing_cursors(&mut self, there: &[String], meta: &Meta) -> Result<Vec<CursorFile>> {
        let path = self.path(registry::FILE_NAME);
        let bytes = match self.read_file(registry::FILE_NAME, registry::LEN_MAX) {
            Ok(bytes) => bytes,
            // Replaced meanwhile by a writer.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let registered = match registry::decode(&bytes) {
            Ok((log, files)) if log == meta.log => files,
            Err(HeaderError::Version { found, sure: true }) => return Err(unsupported(path, found)),
            Ok(_) | Err(_) => {
                self.note(
                    path,
                    0,
                    "the list of consumers is damaged or of another log; it is made anew with the next consumer",
                );
                return Ok(Vec::new());
            }
        };
        let mut missing = Vec::new();
        for file in registered.into_iter().filter(|file| !there.contains(file)) {
            let reason = "its file is missing".to_owned();
            self.note(
                self.path(&file),
                0,
                format!("the position of this consumer is lost: {reason}"),
            );
            missing.push(CursorFile {
                file,
                cursor: Err(reason),
            });
        }
        Ok(missing)
    }

    /// Reads the headers of all segments from the start on, and checks that they are the ones that must be there.
    fn read_headers(&mut self, listing: &Listing, meta: &Meta) -> Result<Vec<Arc<Segment>>> {
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        for &(generation, base) in &listing.segments {
            let name = segment_header::file_name(base, generation);
            if generation < meta.start_gen {
                self.leftovers.push(name);
                continue;
            }
            let expected = segments.last().map_or(meta.start_gen, |s| s.generation() + 1);
            if generation != expected {
                return Err(self.missing(segments.last(), expected, meta));
            }
            let path = self.path(&name);
            let header = match SegmentHeader::decode(&self.read_file(&name, segment_header::BLOCK)?) {
                Ok((header, one_bad)) => {
                    if one_bad {
                        self.note(
                            path.clone(),
                            0,
                            "one of the two copies of the header is damaged; the other is used",
                        );
                    }
                    header
                }
                Err(HeaderError::Version { found, .. }) => return Err(unsupported(path, found)),
                // Not yet named in the meta file: no record in it was ever acknowledged.
                Err(HeaderError::Blank) if generation > meta.newest_gen => {
                    self.note(path, 0, "a segment whose creation was interrupted; ignored");
                    self.leftovers.push(name);
                    continue;
                }
                Err(HeaderError::Blank | HeaderError::Damaged) => {
                    return Err(self.corruption(path, 0, base, Damage::Header, None));
                }
            };
            let foreign = if header.log != meta.log {
                Some("its header names another log")
            } else if (header.generation, header.base_offset) != (generation, base) {
                Some("its header names another place in the log")
            } else if header.prev.map(|p| p.generation) != (generation > 1).then(|| generation - 1) {
                Some("its header names another predecessor")
            } else {
                None
            };
            if let Some(why) = foreign {
                return Err(self.corruption(path, 0, base, Damage::Foreign(why), None));
            }
            segments.push(Arc::new(Segment::new(&self.files, header)));
        }
        let newest = segments.last().map_or(0, |s| s.generation());
        if newest < meta.newest_gen {
            let expected = segments.last().map_or(meta.start_gen, |s| s.generation() + 1);
            return Err(self.missing(segments.last(), expected, meta));
        }
        Ok(segments)
    }

    fn missing(&self, before: Option<&Arc<Segment>>, expected: u64, meta: &Meta) -> Error {
        // The lost segment's first offset is where the one before it ends, which only a walk could tell; its base bounds it.
        let offset = match before {
            None => meta.start_offset,
            Some(before) => self.end_by_walk(before).unwrap_or(before.base_offset()),
        };
        let file = self.path(&format!("{offset:020}-{expected:016x}.wal"));
        let witness = (expected <= meta.newest_gen).then(|| Witness::NewestSegment {
            file: self.path(meta::FILE_NAME),
            generation: meta.newest_gen,
        });
        self.corruption(file, 0, offset, Damage::Missing, witness)
    }

    fn end_by_walk(&self, segment: &Segment) -> Result<Offset> {
        let mut walk = Walk::from_start(segment.frames(self.file_len(segment)?)?, segment.base_offset());
        loop {
            match walk.step().map_err(|e| Error::io("read", segment.path(), e))? {
                Step::Frame { .. } => {}
                Step::End | Step::Bad(_) => return Ok(walk.expected),
            }
        }
    }

    /// Checks, without reading bodies, that each sealed segment ends where and as its successor says.
    fn check_sealed(&mut self, segments: &[Arc<Segment>]) -> Result<()> {
        for pair in segments.windows(2) {
            let (segment, successor) = (&pair[0], &pair[1]);
            let pin = successor.header.prev.expect("checked with the header");
            segment.set_end(SegmentEnd {
                offset: successor.base_offset(),
                pin,
            });
            let len = self.file_len(segment)?;
            let whole = len >= pin.end_pos && self.last_frame_matches(segment, &pin)?;
            if whole {
                continue;
            }
            // Something is wrong at the end. A walk tells whether a record is.
            let mut walk = Walk::from_start(segment.frames(pin.end_pos.min(len))?, segment.base_offset());
            let damage = loop {
                match walk.step().map_err(|e| Error::io("read", segment.path(), e))? {
                    Step::Frame { .. } => {}
                    Step::Bad(damage) => break damage,
                    Step::End => {
                        break Damage::Shortened {
                            len,
                            expected: pin.end_pos,
                        };
                    }
                }
            };
            if walk.expected != successor.base_offset() {
                let damage = if len < pin.end_pos {
                    Damage::Shortened {
                        len,
                        expected: pin.end_pos,
                    }
                } else {
                    damage
                };
                return Err(self.corruption(segment.path(), walk.pos, walk.expected, damage, None));
            }
            self.note(
                segment.path(),
                walk.pos,
                "the seal of this segment is damaged; all its records are there",
            );
        }
        Ok(())
    }

    fn last_frame_matches(&self, segment: &Segment, pin: &Pin) -> Result<bool> {
        if pin.last_pos == 0 {
            return Ok(true);
        }
        let mut frames = segment.frames(pin.end_pos)?;
        let header = frames
            .header(pin.last_pos)
            .map_err(|e| Error::io("read", segment.path(), e))?;
        Ok(header.is_ok_and(|h| h.crc == pin.last_crc && pin.last_pos + h.frame_len() == pin.end_pos))
    }

    /// A log that was closed in order ends with a close frame that ends the file. Then nothing needs to be scanned.
    fn closed_tail(&self, last: &Segment, file_len: u64) -> Result<Option<Stop>> {
        let Some(pos) = file_len
            .checked_sub(CLOSE_LEN)
            .filter(|pos| *pos >= BLOCK_LEN && pos % 8 == 0)
        else {
            return Ok(None);
        };
        let mut frames = last.frames(file_len)?;
        let read = (|| {
            let Ok(header) = frames.header(pos)? else {
                return Ok(None);
            };
            let sound = header.kind == Kind::Close && header.base_offset >= last.base_offset();
            let sound = sound && header.durable_end == header.base_offset && frames.payload(pos, &header)?.is_ok();
            Ok(sound.then_some(header))
        })();
        let close = read.map_err(|e| Error::io("read", last.path(), e))?;
        Ok(close.map(|header| Stop {
            pos: file_len,
            offset: header.base_offset,
            last_pos: pos,
            last_crc: header.crc,
            damage: None,
            closed: true,
        }))
    }

    fn walk_last(&mut self, last: &Segment, file_len: u64, proof: &mut Proof) -> Result<Stop> {
        let mut walk = Walk::from_start(last.frames(file_len)?, last.base_offset());
        let (mut last_pos, mut last_crc) = (0, 0);
        let damage = loop {
            match walk.step().map_err(|e| Error::io("read", last.path(), e))? {
                Step::Frame { pos, header } => {
                    (last_pos, last_crc) = (pos, header.crc);
                    if header.kind == Kind::Data {
                        last.note(header.base_offset, pos);
                    }
                    proof.offer(header.durable_end, || frame_witness(last, pos, header.durable_end));
                }
                Step::End => break None,
                Step::Bad(damage) => break Some(damage),
            }
        };
        self.report.scanned_bytes = walk.pos - BLOCK_LEN;
        for skipped in walk.skipped {
            self.note(
                last.path(),
                skipped.from,
                format!("a control frame is damaged ({}); it carries no record", skipped.error),
            );
        }
        Ok(Stop {
            pos: walk.pos,
            offset: walk.expected,
            last_pos,
            last_crc,
            damage,
            closed: false,
        })
    }

    /// Torn or corrupt? Collects what the frames behind the stop state, and labels what would be cut.
    fn judge(&mut self, last: &Segment, stop: &Stop, file_len: u64, proof: &mut Proof) -> Result<()> {
        let Some(damage) = &stop.damage else {
            return Ok(());
        };
        let io = |e| Error::io("read", last.path(), e);
        // A sound header was written here, by this log, and no crash gives it another kind or offset: cutting would lose data.
        if let Damage::Frame(FrameError::UnknownKind(_)) | Damage::WrongOffset { .. } = damage {
            return Err(self.corruption(last.path(), stop.pos, stop.offset, damage.clone(), None));
        }
        let mut frames = last.frames(file_len)?;
        let mut later = false;
        let mut headers = Headers::after(&mut frames, stop.pos, stop.offset);
        while let Some((pos, header)) = headers.next().map_err(io)? {
            later = true;
            proof.offer(header.durable_end, || frame_witness(last, pos, header.durable_end));
        }
        let own = frames.header(stop.pos).map_err(io)?;
        let Some(end) = last_nonzero(&mut frames, stop.pos, file_len).map_err(io)? else {
            return Ok(());
        };
        let frame_end = own.map_or(end, |h| stop.pos + h.frame_len()).min(file_len);
        let incomplete = matches!(damage, Damage::Frame(FrameError::Truncated))
            || stop.pos + HEADER_LEN as u64 > file_len
            || has_blank_sector(&mut frames, stop.pos, frame_end).map_err(io)?;
        self.report.cut = Some(Cut {
            file: last.path(),
            pos: stop.pos,
            bytes: end - stop.pos,
            offset: stop.offset,
            evidence: if later {
                TornEvidence::LaterFrame
            } else if incomplete {
                TornEvidence::Incomplete
            } else {
                TornEvidence::Undecided
            },
        });
        Ok(())
    }

    /// The position of the first frame of the last segment that holds records at or behind `offset`.
    fn locate(&self, last: &Segment, offset: Offset, limit: u64) -> Result<u64> {
        let (base, pos) = last.seek(offset)?;
        let mut walk = Walk::from(last.frames(limit)?, pos, base);
        loop {
            match walk.step().map_err(|e| Error::io("read", last.path(), e))? {
                Step::Frame { .. } if walk.expected <= offset => {}
                Step::Frame { pos, .. } => return Ok(pos),
                Step::End | Step::Bad(_) => return Ok(walk.pos),
            }
        }
    }
}

/// The furthest durable end that anything vouches for.
struct Proof {
    end: Offset,
    witness: Option<Witness>,
}

impl Proof {
    /// Everything before the last segment was durable before that segment appeared.
    fn new(base: Offset) -> Self {
        Self {
            end: base,
            witness: None,
        }
    }

    fn offer(&mut self, end: Offset, witness: impl FnOnce() -> Witness) {
        if end > self.end {
            self.end = end;
            self.witness = Some(witness());
        }
    }
}

fn frame_witness(segment: &Segment, pos: u64, durable_end: Offset) -> Witness {
    Witness::Frame {
        file: segment.path(),
        pos,
        durable_end,
    }
}

fn unsupported(file: String, found: u16) -> Error {
    Error::UnsupportedVersion {
        file,
        found,
        newest: FORMAT_VERSION,
    }
}

/// One past the last byte in `from..to` that is not zero.
fn last_nonzero(frames: &mut crate::segment::frames::FrameReader, from: u64, to: u64) -> std::io::Result<Option<u64>> {
    let (mut pos, mut last) = (from, None);
    while pos < to {
        let bytes = frames.bytes(pos, 64 << 10)?;
        if bytes.is_empty() {
            break;
        }
        if let Some(at) = bytes.iter().rposition(|b| *b != 0) {
            last = Some(pos + at as u64 + 1);
        }
        pos += bytes.len() as u64;
    }
    Ok(last)
}

/// Whether a sector, or the part of it that lies in `from..to`, is blank.
fn has_blank_sector(frames: &mut crate::segment::frames::FrameReader, from: u64, to: u64) -> std::io::Result<bool> {
    let mut pos = from;
    while pos < to {
        let end = (pos / SECTOR + 1) * SECTOR;
        let len = usize::try_from(end.min(to) - pos).expect("at most a sector");
        let bytes = frames.bytes(pos, len)?;
        if bytes.len() == len && bytes.iter().all(|b| *b == 0) {
            return Ok(true);
        }
        pos = end;
    }
    Ok(false)
}

/// Opens the last segment's file for writing on.
pub(crate) fn open_for_writing(storage: &dyn Storage, segment: &Segment) -> Result<Arc<dyn StorageFile>> {
    storage
        .open(&segment.name, Access::ReadWrite)
        .map_err(|e| Error::io("open", segment.path(), e))
}
