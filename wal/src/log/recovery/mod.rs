//! Reads a log's directory and decides what of it is the log. Changes nothing.
//!
//! The decision procedure, with its reasons, is `docs/recovery.md`. In short: the meta file says which segments must exist. Each
//! segment but the last ends where its successor says. In the last, the walk stops at the first place `P` that does not continue the log, at
//! offset `E`. If anything that was written after a completed sync says that record `E` was durable, it is damage: an
//! error. If nothing does, the bytes behind `P` were never promised, and are cut.

mod directory;
mod headers;

use std::sync::Arc;

use crate::codec::cursor::Cursor;
use crate::codec::frame::{CLOSE_LEN, HEADER_LEN, Kind};
use crate::codec::meta::{self, Meta};
use crate::codec::registry;
use crate::codec::segment_header::{BLOCK_LEN, Pin};
use crate::error::{Corruption, Damage, Error, FrameError, Result, Witness};
use crate::offset::Offset;
use crate::report::{Cut, Note, RecoveryReport, TornEvidence};
use crate::segment::files::Files;
use crate::segment::walk::{Headers, Step, Walk};
use crate::segment::{Segment, SegmentEnd};
use crate::storage::{Access, Storage, StorageFile, read_full_at};

pub(crate) use directory::{LOCK_FILE, check_vacant};
use directory::{Listing, list, without_meta};

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
    /// Whether the list of consumers has it. Its file had a durable name before that.
    pub(crate) listed: bool,
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
            self.compare_with_registry(&mut cursors, &meta)?;
        } else if !cursors.is_empty() {
            let what = "the list of consumers is missing, or a crash came before it was made; it is made anew with the next one";
            self.note(self.path(registry::FILE_NAME), 0, what);
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
        let mut may_be_short = false;
        let damage = loop {
            match walk.step().map_err(|e| Error::io("read", last.path(), e))? {
                Step::Frame { pos, header } => {
                    (last_pos, last_crc) = (pos, header.crc);
                    may_be_short |= matches!(header.kind, Kind::Seal | Kind::Close);
                    if header.kind == Kind::Data {
                        last.note(header.base_offset, pos);
                    }
                    proof.offer(header.durable_end, || frame_witness(last, pos, header.durable_end));
                }
                Step::End => break None,
                Step::Bad(damage) => break Some(damage),
            }
        };
        let (pos, offset) = (walk.pos, walk.expected);
        // No crash does that, and nothing shows whether records went with it.
        if file_len < last.header.reserved && !may_be_short {
            let made = last.header.reserved;
            let what = format!("the file has {file_len} bytes and was made with {made}: what was behind is gone");
            self.note(last.path(), file_len, what);
        }
        self.report.scanned_bytes = pos - BLOCK_LEN;
        for skipped in walk.skipped {
            self.note(
                last.path(),
                skipped.from,
                format!(
                    "a frame without records is damaged, or torn by a crash ({})",
                    skipped.error
                ),
            );
        }
        Ok(Stop {
            pos,
            offset,
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
