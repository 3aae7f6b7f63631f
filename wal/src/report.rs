//! What recovery found, as data.

use crate::error::Witness;
use crate::offset::Offset;

/// What opening a log found and did, with the evidence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the log was created by this open.
    pub created: bool,
    /// Whether it had been closed in order. If not, its last segment was scanned.
    pub was_closed: bool,
    /// The first retained offset.
    pub start: Offset,
    /// One past the last record.
    pub end: Offset,
    /// One past the last record that the files themselves prove to have been durable before this open.
    pub proven_end: Offset,
    /// Who proves it; `None` where the segments before the last do.
    pub witness: Option<Witness>,
    /// Segments of the log.
    pub segments: usize,
    /// Bytes of frames that were read and checked.
    pub scanned_bytes: u64,
    /// Bytes that were written again, unchanged, and synced, because nothing proved that they had reached the disk.
    pub resynced_bytes: u64,
    /// Torn bytes that were cut off. They were never promised to anybody.
    pub cut: Option<Cut>,
    /// Damage that cost no record: second copies, control frames, left-over files.
    pub notes: Vec<Note>,
}

/// A torn tail that was cut off: bytes that a crash left half-written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file, as a path. Its bytes stay as they are, as evidence, until retention removes the segment.
    pub file: String,
    /// Position of the first byte cut.
    pub pos: u64,
    /// Bytes up to the last one that is not zero.
    pub bytes: u64,
    /// The offset that the torn record would have had; the next append gets it.
    pub offset: Offset,
    /// Why this is a torn write and not damage.
    pub evidence: TornEvidence,
}

/// What shows that bytes are a torn write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TornEvidence {
    /// A later frame survived that was written before these bytes were durable: proof.
    LaterFrame,
    /// The frame ends behind the end of the file, or has a blank sector inside: the shape of a torn write.
    Incomplete,
    /// Neither. It may be a torn sector, or damage within the last sync before the crash: the one case that no log can decide. See
    /// `docs/recovery.md`.
    Undecided,
}

impl std::fmt::Display for TornEvidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LaterFrame => "a later frame was written before these bytes were durable",
            Self::Incomplete => "the frame is incomplete",
            Self::Undecided => "no sign either way; nothing proves that these bytes were ever durable",
        })
    }
}

/// Something found that cost no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The file, as a path.
    pub file: String,
    /// Byte position, 0 for the file as a whole.
    pub pos: u64,
    /// What was found.
    pub what: String,
}
