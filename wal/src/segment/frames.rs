//! Reads frames of one segment through a buffer.
//!
//! Reads ahead in chunks, so that walking a segment costs few system calls; memory is the chunk, or one frame where that is
//! larger. Never reads at or behind `limit`: what lies there may be half-written or not of this log.

use std::io;
use std::sync::Arc;

use crate::codec::frame::{self, HEADER_LEN, Header, Seed};
use crate::error::FrameError;
use crate::storage::{StorageFile, read_full_at};

/// Bytes read at once when frames are walked through.
const CHUNK: usize = 128 << 10;
/// Bytes read at once when one record is wanted.
const POINT_CHUNK: usize = 8 << 10;

#[derive(Debug)]
pub(crate) struct FrameReader {
    file: Arc<dyn StorageFile>,
    seed: Seed,
    limit: u64,
    chunk: usize,
    /// Bytes of the file from `start` on.
    buf: Vec<u8>,
    start: u64,
}

impl FrameReader {
    pub(crate) fn new(file: Arc<dyn StorageFile>, seed: Seed, limit: u64) -> Self {
        Self {
            file,
            seed,
            limit,
            chunk: CHUNK,
            buf: Vec::new(),
            start: 0,
        }
    }

    /// Reads ahead no more than one record is worth.
    pub(crate) fn for_one_record(mut self) -> Self {
        self.chunk = POINT_CHUNK;
        self
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Moves the limit up, after more has been written.
    pub(crate) fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Makes the buffer hold `len` bytes from `pos` on, or as many as there are before the limit and the file's end. Returns where
    /// in the buffer they begin and how many there are.
    fn fill(&mut self, pos: u64, len: usize) -> io::Result<(usize, usize)> {
        let len = usize::try_from(self.limit.saturating_sub(pos)).map_or(len, |room| room.min(len));
        let buffered = self.start..self.start + self.buf.len() as u64;
        if buffered.contains(&pos) && pos + len as u64 <= buffered.end {
            return Ok((offset_in(pos, self.start), len));
        }
        if buffered.contains(&pos) {
            self.buf.drain(..offset_in(pos, self.start));
        } else {
            self.buf.clear();
        }
        self.start = pos;
        let have = self.buf.len();
        let room = usize::try_from(self.limit.saturating_sub(pos)).unwrap_or(usize::MAX);
        let want = len.max(self.chunk).min(room);
        if want > have {
            self.buf.resize(want, 0);
            let got = read_full_at(&*self.file, pos + have as u64, &mut self.buf[have..]);
            self.buf.truncate(have + *got.as_ref().unwrap_or(&0));
            got?;
        }
        Ok((0, len.min(self.buf.len())))
    }

    /// The bytes from `pos` on, `len` of them or as many as there are.
    pub(crate) fn bytes(&mut self, pos: u64, len: usize) -> io::Result<&[u8]> {
        let (at, len) = self.fill(pos, len)?;
        Ok(&self.buf[at..at + len])
    }

    /// The header at `pos`.
    pub(crate) fn header(&mut self, pos: u64) -> io::Result<Result<Header, FrameError>> {
        let (seed, room) = (self.seed, self.limit.saturating_sub(pos));
        let bytes = self.bytes(pos, HEADER_LEN)?;
        Ok(frame::decode_header(bytes, seed, pos, room))
    }

    /// The checked payload of the frame at `pos`.
    pub(crate) fn payload(&mut self, pos: u64, header: &Header) -> io::Result<Result<&[u8], FrameError>> {
        let payload = self.unchecked_payload(pos, header)?;
        if payload.len() < header.payload_len as usize {
            return Ok(Err(FrameError::Truncated));
        }
        Ok(frame::check_payload(header, payload).map(|()| payload))
    }

    /// The payload of a frame that was checked before and may still be in the buffer.
    pub(crate) fn unchecked_payload(&mut self, pos: u64, header: &Header) -> io::Result<&[u8]> {
        self.bytes(pos + HEADER_LEN as u64, header.payload_len as usize)
    }
}

fn offset_in(pos: u64, start: u64) -> usize {
    usize::try_from(pos - start).expect("a place in a buffer")
}
