//! A segment: one file of frames behind a header block.
//!
//! The *active* segment is the last and grows; all others are *sealed*, their end is known and never changes. This module knows
//! names, headers, and where in the file an offset may be looked for. What the frames mean for the log is `log`'s business.

pub(crate) mod files;
pub(crate) mod frames;
pub(crate) mod walk;

use std::sync::{Arc, OnceLock};

use crate::codec::frame::{self, Kind, Seed};
use crate::codec::segment_header::{self, Pin, SegmentHeader};
use crate::codec::{u32_at, u64_at};
use crate::error::{Error, Result};
use crate::offset::Offset;
use crate::storage::StorageFile;
use crate::threads::Mutex;

use files::{Files, Slot};
use frames::FrameReader;

/// Distance between two entries of the sparse index: what a random read may have to walk.
pub(crate) const INDEX_STRIDE: u64 = 8 << 10;

/// Where a segment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentEnd {
    /// One past its last record.
    pub(crate) offset: Offset,
    /// What its successor pins.
    pub(crate) pin: Pin,
}

/// One segment, open or not.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) name: String,
    pub(crate) seed: Seed,
    files: Arc<Files>,
    file: Slot,
    end: OnceLock<SegmentEnd>,
    index: Mutex<Index>,
}

/// Known places of frames, sorted: a cache that writers and readers add to, and that may always be incomplete.
#[derive(Debug, Default)]
struct Index {
    entries: Vec<(Offset, u64)>,
    seal_read: bool,
}

impl Index {
    fn add(&mut self, offset: Offset, pos: u64) {
        let at = self.entries.partition_point(|e| e.1 <= pos);
        let after_previous = at == 0 || pos - self.entries[at - 1].1 >= INDEX_STRIDE;
        let before_next = self.entries.get(at).is_none_or(|e| e.1 - pos >= INDEX_STRIDE);
        if after_previous && before_next {
            self.entries.insert(at, (offset, pos));
        }
    }
}

impl Segment {
    pub(crate) fn new(files: &Arc<Files>, header: SegmentHeader) -> Self {
        Self {
            name: segment_header::file_name(header.base_offset, header.generation),
            seed: Seed::new(&header.log, header.generation),
            header,
            files: Arc::clone(files),
            file: Slot::default(),
            end: OnceLock::new(),
            index: Mutex::default(),
        }
    }

    pub(crate) fn base_offset(&self) -> Offset {
        self.header.base_offset
    }

    pub(crate) fn generation(&self) -> u64 {
        self.header.generation
    }

    /// The segment's path, for messages.
    pub(crate) fn path(&self) -> String {
        self.files.storage.root().join(&self.name).display().to_string()
    }

    /// The file, opened for reading where it is not open.
    pub(crate) fn file(&self) -> Result<Arc<dyn StorageFile>> {
        self.files
            .open(&self.name, &self.file)
            .map_err(|e| Error::io("open", self.path(), e))
    }

    /// The writer's own open file, for readers to share while the writer has it.
    pub(crate) fn set_file(&self, file: &Arc<dyn StorageFile>) {
        self.file.set(file);
    }

    /// Closes the file, unless somebody reads it: it is about to be removed.
    pub(crate) fn forget_file(&self) {
        self.files.forget(&self.file);
    }

    /// Where the segment ends; `None` while it is active.
    pub(crate) fn end(&self) -> Option<SegmentEnd> {
        self.end.get().copied()
    }

    pub(crate) fn set_end(&self, end: SegmentEnd) {
        let known = self.end.get_or_init(|| end);
        debug_assert_eq!(*known, end, "a sealed segment never changes");
    }

    /// Frames up to position `limit`.
    pub(crate) fn frames(&self, limit: u64) -> Result<FrameReader> {
        Ok(FrameReader::new(self.file()?, self.seed, limit))
    }

    /// Forgets the index of a segment that was sealed: it is in the seal, for whoever wants it.
    pub(crate) fn forget_index(&self) {
        *self.index.lock() = Index::default();
    }

    /// Remembers that the frame at `pos` begins with `offset`.
    pub(crate) fn note(&self, offset: Offset, pos: u64) {
        self.index.lock().add(offset, pos);
    }

    /// A place at or before the frame that holds `offset`, from where to walk. Reads the seal's index when first asked.
    pub(crate) fn seek(&self, offset: Offset) -> Result<(Offset, u64)> {
        let mut index = self.index.lock();
        if !index.seal_read
            && let Some(end) = self.end()
        {
            // A damaged seal only makes the walk longer; `verify` is who reports it.
            for (offset, pos) in self.read_seal(&end)?.unwrap_or_default() {
                index.add(offset, pos);
            }
            index.seal_read = true;
        }
        let at = index.entries.partition_point(|e| e.0 <= offset);
        Ok(match at.checked_sub(1) {
            Some(at) => index.entries[at],
            None => (self.base_offset(), segment_header::BLOCK_LEN),
        })
    }

    fn read_seal(&self, end: &SegmentEnd) -> Result<Option<Vec<(Offset, u64)>>> {
        if end.pin.last_pos == 0 || end.pin.cut {
            return Ok(None);
        }
        let mut frames = self.frames(end.pin.end_pos)?;
        let read = (|| {
            let Ok(header) = frames.header(end.pin.last_pos)? else {
                return Ok(None);
            };
            if header.kind != Kind::Seal {
                return Ok(None);
            }
            Ok(frames
                .payload(end.pin.last_pos, &header)?
                .ok()
                .map(|payload| decode_seal(payload, self.base_offset())))
        })();
        read.map_err(|e| Error::io("read", self.path(), e))
    }

    /// Most bytes that the seal of a segment with `used` bytes of frames takes.
    pub(crate) fn seal_len_max(used: u64) -> u64 {
        let entries = used / INDEX_STRIDE + 2;
        (frame::HEADER_LEN + frame::STAMP_LEN) as u64 + entries * 8
    }

    /// The payload of this segment's seal: the time, then the sparse index.
    pub(crate) fn encode_seal(&self, now_ms: u64) -> Vec<u8> {
        let mut payload = now_ms.to_le_bytes().to_vec();
        for (offset, pos) in &self.index.lock().entries {
            // An entry that does not fit its 32 bits is left out; the index may always be incomplete.
            if let (Ok(delta), Ok(place)) = (
                u32::try_from(offset - self.base_offset()),
                u32::try_from(pos / frame::ALIGN),
            ) {
                payload.extend_from_slice(&delta.to_le_bytes());
                payload.extend_from_slice(&place.to_le_bytes());
            }
        }
        payload
    }
}

fn decode_seal(payload: &[u8], base: Offset) -> Vec<(Offset, u64)> {
    let entries = payload.get(frame::STAMP_LEN..).unwrap_or_default();
    entries
        .chunks_exact(8)
        .map(|e| (base + u64::from(u32_at(e, 0)), u64::from(u32_at(e, 4)) * frame::ALIGN))
        .collect()
}

/// The time in a mark, a seal or a close.
pub(crate) fn stamp(kind: Kind, payload: &[u8]) -> Option<u64> {
    let stamped = matches!(kind, Kind::Mark | Kind::Seal | Kind::Close);
    (stamped && payload.len() >= frame::STAMP_LEN).then(|| u64_at(payload, 0))
}
