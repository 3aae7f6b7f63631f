//! Reads everything but the records: the meta file, the consumers' files, the headers of the segments, and where the sealed ones end.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::directory::Listing;
use super::{CursorFile, Examination};
use crate::codec::cursor::{self, Cursor};
use crate::codec::meta::{self, Meta};
use crate::codec::segment_header::{self, Pin, SegmentHeader};
use crate::codec::slots::{self, Health};
use crate::codec::{FORMAT_VERSION, HeaderError, registry};
use crate::error::{Damage, Error, Result, Witness};
use crate::offset::Offset;
use crate::segment::walk::{Step, Walk};
use crate::segment::{Segment, SegmentEnd};

const COPY_LOST: &str = "a copy of its value is damaged, or torn by a crash; another is used";

impl Examination<'_> {
    pub(super) fn read_meta(&mut self) -> Result<Meta> {
        let file = self.path(meta::FILE_NAME);
        match Meta::decode_file(&self.read_file(meta::FILE_NAME, slots::FILE_LEN)?) {
            Ok((meta, health)) => {
                // The last change of the meta file can be told from the segments, so what is left of it will do.
                match health {
                    Health::Sound => {}
                    Health::CopyLost => self.note(file, 0, COPY_LOST),
                    Health::SlotLost => {
                        self.note(file, 0, "half of its values are lost; the newest of the others is used")
                    }
                }
                Ok(meta)
            }
            Err(HeaderError::Version { found, .. }) => Err(unsupported(file, found)),
            Err(HeaderError::Blank | HeaderError::Damaged) => Err(self.corruption(file, 0, 0, Damage::Header, None)),
        }
    }

    pub(super) fn read_cursors(&mut self, names: &[String], meta: &Meta) -> Result<Vec<CursorFile>> {
        let mut cursors = Vec::new();
        for name in names {
            let cursor = match Cursor::decode_file(&self.read_file(name, slots::FILE_LEN)?) {
                Ok((cursor, _)) if cursor.log != meta.log => Err("its file belongs to another log".to_owned()),
                Ok((cursor, _)) if cursor::file_name(&cursor.name) != *name => {
                    Err(format!("its file is that of consumer {:?}", cursor.name))
                }
                Ok((_, Health::SlotLost)) => Err("half of its file is lost, perhaps the newer".to_owned()),
                Ok((cursor, health)) => {
                    if health == Health::CopyLost {
                        self.note(self.path(name), 0, COPY_LOST);
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
                listed: false,
            });
        }
        Ok(cursors)
    }

    /// Marks the consumers that the list has, and adds those that have no file: their positions are lost, and must not be taken for new ones.
    pub(super) fn compare_with_registry(&mut self, cursors: &mut Vec<CursorFile>, meta: &Meta) -> Result<()> {
        let path = self.path(registry::FILE_NAME);
        let bytes = match self.read_file(registry::FILE_NAME, registry::LEN_MAX) {
            Ok(bytes) => bytes,
            // Replaced meanwhile by a writer.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(()),
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
                return Ok(());
            }
        };
        let there: BTreeMap<String, usize> = cursors.iter().enumerate().map(|(n, c)| (c.file.clone(), n)).collect();
        for file in registered {
            if let Some(n) = there.get(&file) {
                cursors[*n].listed = true;
                continue;
            }
            let reason = "its file is missing".to_owned();
            self.note(
                self.path(&file),
                0,
                format!("the position of this consumer is lost: {reason}"),
            );
            cursors.push(CursorFile {
                file,
                cursor: Err(reason),
                listed: true,
            });
        }
        Ok(())
    }

    /// Reads the headers of all segments from the start on, and checks that they are the ones that must be there.
    pub(super) fn read_headers(&mut self, listing: &Listing, meta: &Meta) -> Result<Vec<Arc<Segment>>> {
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
            } else if generation == meta.start_gen && base != meta.start_offset {
                Some("the meta file names another offset as the log's start")
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

    pub(super) fn missing(&self, before: Option<&Arc<Segment>>, expected: u64, meta: &Meta) -> Error {
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

    pub(super) fn end_by_walk(&self, segment: &Segment) -> Result<Offset> {
        let mut walk = Walk::from_start(segment.frames(self.file_len(segment)?)?, segment.base_offset());
        loop {
            match walk.step().map_err(|e| Error::io("read", segment.path(), e))? {
                Step::Frame { .. } => {}
                Step::End | Step::Bad(_) => return Ok(walk.expected),
            }
        }
    }

    /// Checks, without reading bodies, that each sealed segment ends where and as its successor says.
    pub(super) fn check_sealed(&mut self, segments: &[Arc<Segment>]) -> Result<()> {
        for pair in segments.windows(2) {
            let (segment, successor) = (&pair[0], &pair[1]);
            let pin = successor.header.prev.expect("checked with the header");
            let offset = successor.base_offset();
            let len = self.file_len(segment)?;
            let whole = len >= pin.end_pos && self.last_frame_matches(segment, &pin)?;
            if whole {
                segment.set_end(SegmentEnd { offset, pin });
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
            if walk.expected != offset {
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
            // Believed as far as there are frames: nothing that counts bytes may run on behind the end of the file.
            let end_pos = walk.pos;
            segment.set_end(SegmentEnd {
                offset,
                pin: Pin { end_pos, ..pin },
            });
            self.note(
                segment.path(),
                walk.pos,
                "the seal of this segment is damaged, or torn by a crash; all its records are there",
            );
        }
        Ok(())
    }

    pub(super) fn last_frame_matches(&self, segment: &Segment, pin: &Pin) -> Result<bool> {
        if pin.last_pos == 0 {
            return Ok(true);
        }
        let mut frames = segment.frames(pin.end_pos)?;
        let header = frames
            .header(pin.last_pos)
            .map_err(|e| Error::io("read", segment.path(), e))?;
        Ok(header.is_ok_and(|h| h.crc == pin.last_crc && pin.last_pos + h.frame_len() == pin.end_pos))
    }
}

fn unsupported(file: String, found: u16) -> Error {
    Error::UnsupportedVersion {
        file,
        found,
        newest: FORMAT_VERSION,
    }
}
