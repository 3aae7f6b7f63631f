//! Finding an offset by time.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Log, reader};
use crate::clock::millis;
use crate::error::{Error, Result};
use crate::offset::Offset;
use crate::segment::stamp;
use crate::segment::walk::{Step, Walk};

impl Log {
    /// See [`crate::Wal::offset_at`].
    ///
    /// Two steps: the newest segment that was created at or before `time`, then the last time stamp in it that is not later. What
    /// follows that stamp may be as old as it, so it counts as later: the answer errs on the early side, also where a damaged frame
    /// ends the search.
    pub(crate) fn offset_at(self: &Arc<Self>, time: SystemTime) -> Result<Offset> {
        let wanted = time.duration_since(UNIX_EPOCH).map_or(0, millis);
        let mark = self.durable();
        if wanted >= self.now_ms() {
            return Ok(mark.offset);
        }
        let start = self.start();
        let segments = self.segments();
        let Some(segment) = segments.iter().rev().find(|s| s.header.created_ms <= wanted) else {
            return Ok(start);
        };
        let failed = |e| Error::io("read", segment.path(), e);
        let mut found = segment.base_offset();
        let mut walk = Walk::from_start(segment.frames(reader::limit(segment, mark))?, found);
        while let Step::Frame { pos, header } = walk.step().map_err(failed)? {
            if header.count > 0 {
                continue;
            }
            let payload = walk.frames.unchecked_payload(pos, &header).map_err(failed)?;
            match stamp(header.kind, payload) {
                Some(ms) if ms > wanted => break,
                Some(_) => found = header.base_offset,
                None => {}
            }
        }
        Ok(found.max(start))
    }
}
