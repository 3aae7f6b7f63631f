//! Walks the frames of a segment in order, as recovery, readers and `verify` all do.
//!
//! A frame continues the walk when its header and payload check out and its base offset is the one expected. Damage to a
//! *control* frame loses no record: where the frame with the expected offset follows further on, the walk goes on there and remembers
//! what it stepped over.

use std::io;

use super::frames::FrameReader;
use crate::codec::frame::{ALIGN, HEADER_LEN, Header, Kind};
use crate::codec::segment_header::BLOCK_LEN;
use crate::error::{Damage, FrameError};
use crate::offset::Offset;

/// What a walk met.
#[derive(Debug)]
pub(crate) enum Step {
    /// A frame that continues the log.
    Frame {
        /// Its position.
        pos: u64,
        /// Its header.
        header: Header,
    },
    /// The limit.
    End,
    /// Bytes at the walk's position that do not continue the log.
    Bad(Damage),
}

/// Bytes of control frames that the walk stepped over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) error: FrameError,
}

#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) frames: FrameReader,
    /// Where the next frame begins.
    pub(crate) pos: u64,
    /// The offset it must carry.
    pub(crate) expected: Offset,
    pub(crate) skipped: Vec<Skipped>,
}

impl Walk {
    /// A walk from a place where the frame with `expected` begins.
    pub(crate) fn from(frames: FrameReader, pos: u64, expected: Offset) -> Self {
        Self {
            frames,
            pos,
            expected,
            skipped: Vec::new(),
        }
    }

    /// A walk from the segment's first frame.
    pub(crate) fn from_start(frames: FrameReader, base: Offset) -> Self {
        Self::from(frames, BLOCK_LEN, base)
    }

    /// The next frame. After [`Step::Bad`] the walk stays where it is.
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        loop {
            if self.pos >= self.frames.limit() {
                return Ok(Step::End);
            }
            let error = match self.frames.header(self.pos)? {
                Err(e) => e,
                Ok(header) if header.base_offset != self.expected => {
                    return Ok(Step::Bad(Damage::WrongOffset {
                        found: header.base_offset,
                    }));
                }
                Ok(header) => match self.frames.payload(self.pos, &header)? {
                    Ok(_) => {
                        let pos = self.pos;
                        self.pos += header.frame_len();
                        self.expected = header.end_offset();
                        return Ok(Step::Frame { pos, header });
                    }
                    // The header is sound, so it is known what is lost: nothing, unless it is a record.
                    Err(error) if header.kind != Kind::Data => {
                        let to = self.pos + header.frame_len();
                        self.skip(to, error);
                        continue;
                    }
                    Err(e) => e,
                },
            };
            match self.resync()? {
                Some(to) => self.skip(to, error),
                None => return Ok(Step::Bad(Damage::Frame(error))),
            }
        }
    }

    /// Goes on behind what [`Step::Bad`] told of, to the next place that may continue the log, perhaps with a later offset. False
    /// where there is none.
    pub(crate) fn skip_damage(&mut self) -> io::Result<bool> {
        match self.frames.header(self.pos)? {
            // The header is sound, so its length can be believed: the next frame begins behind it.
            Ok(header) if header.base_offset <= self.expected => {
                self.pos += header.frame_len();
                self.expected = self.expected.max(header.end_offset());
            }
            Ok(header) => self.expected = header.base_offset,
            Err(_) => match Headers::after(&mut self.frames, self.pos, self.expected).next()? {
                Some((pos, header)) => {
                    self.pos = pos;
                    self.expected = header.base_offset;
                }
                None => return Ok(false),
            },
        }
        Ok(self.pos < self.frames.limit())
    }

    fn skip(&mut self, to: u64, error: FrameError) {
        self.skipped.push(Skipped {
            from: self.pos,
            to,
            error,
        });
        self.pos = to;
    }

    /// Where the frame with the expected offset begins behind damaged control frames. A frame with a later offset means that a
    /// record is lost, and ends the search.
    fn resync(&mut self) -> io::Result<Option<u64>> {
        let mut headers = Headers::after(&mut self.frames, self.pos, self.expected);
        Ok(headers
            .next()?
            .filter(|(_, header)| header.base_offset == self.expected)
            .map(|(pos, _)| pos))
    }
}

/// Searches for frame headers behind a place where the chain of frames broke. Payloads are not looked at: a sound header is a
/// statement, whatever became of its record.
pub(crate) struct Headers<'a> {
    frames: &'a mut FrameReader,
    pos: u64,
    at_least: Offset,
}

impl<'a> Headers<'a> {
    /// Headers behind `pos` with a base offset of `at_least` or more.
    pub(crate) fn after(frames: &'a mut FrameReader, pos: u64, at_least: Offset) -> Self {
        Self {
            frames,
            pos: pos + ALIGN,
            at_least,
        }
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, Header)>> {
        while self.pos < self.frames.limit() {
            let pos = self.pos;
            self.pos += ALIGN;
            // The file may be shorter than it is known to have been.
            if self.frames.bytes(pos, HEADER_LEN)?.len() < HEADER_LEN {
                break;
            }
            if let Ok(header) = self.frames.header(pos)?
                && header.base_offset >= self.at_least
            {
                return Ok(Some((pos, header)));
            }
        }
        Ok(None)
    }
}
