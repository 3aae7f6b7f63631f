//! What can go wrong, in the words of whoever has to act on it.
//!
//! Each layer adds what it alone knows: the codec says *what* ([`FrameError`]), the segment *where*, recovery *whether it was
//! promised* ([`Corruption`]).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::offset::Offset;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation did not succeed.
///
/// After an error from an append the outcome is *unknown* where bytes may have reached the disk ([`Error::Poisoned`],
/// [`Error::Io`]): the record may be there after reopening. All other errors mean that nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation. Check the path, permissions and the device, then try again.
    #[error("{op} failed on {file}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file, as a path.
        file: String,
        /// The system's answer.
        source: Arc<io::Error>,
    },

    /// The disk is full. Nothing was written and nothing is lost: free space and append again. Reading and retention work
    /// meanwhile.
    #[error("no space left for {file}; free some and try again, nothing was written")]
    NoSpace {
        /// The file that could not grow.
        file: String,
    },

    /// Data that was promised durable is wrong or missing. Nothing was changed on disk.
    #[error("{0}")]
    Corrupt(Box<Corruption>),

    /// The file was written by a newer version of this format. Open it with a newer version of this crate.
    #[error("{file} has format version {found}, this version reads up to {newest}; open it with a newer version")]
    UnsupportedVersion {
        /// The file.
        file: String,
        /// Its version.
        found: u16,
        /// The newest that this code reads.
        newest: u16,
    },

    /// There is no log here and creating one was not asked for.
    #[error("there is no log at {}", dir.display())]
    NotFound {
        /// The directory.
        dir: PathBuf,
    },

    /// The path is not a directory of ours: a file, or a directory that holds other things. Nothing was created in it.
    #[error("{} is not a log's directory: {reason}", dir.display())]
    NotALog {
        /// The path.
        dir: PathBuf,
        /// What was found instead.
        reason: String,
    },

    /// Another writer has the log open. Close it there, or open read-only.
    #[error("{} is open for writing elsewhere ({owner}); close it there or open read-only", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// Who holds the lock, in its own words.
        owner: String,
    },

    /// An option is out of range, or at odds with another.
    #[error("option {option}: {reason}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },

    /// The record is larger than `record_bytes_max` allows. Nothing was appended.
    #[error("a record of {bytes} bytes is over the limit of {max}")]
    RecordTooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },

    /// The batch has too many records or bytes for one atomic append. Nothing was appended; split it.
    #[error(
        "a batch of {records} records and {bytes} bytes is over the limit of {records_max} records or {bytes_max} bytes"
    )]
    BatchTooLarge {
        /// Records in the batch.
        records: usize,
        /// Bytes they take when stored together.
        bytes: u64,
        /// Most records.
        records_max: usize,
        /// Most bytes.
        bytes_max: u64,
    },

    /// Offsets have come to their end at 2⁶⁴ - 1.
    #[error("offsets are used up")]
    OffsetsExhausted,

    /// The offset is not in the log. Choose one in `start..end`.
    #[error("offset {wanted} is outside of the log, which has {start}..{end}")]
    OutOfRange {
        /// The offset asked for.
        wanted: Offset,
        /// The first offset that is retained.
        start: Offset,
        /// One past the last offset that may be read.
        end: Offset,
    },

    /// An earlier write or sync failed, so the log takes no more appends. Reads up to the durable end go on. `Wal::reopen` or
    /// opening anew recovers.
    #[error("the log stopped after an earlier failure ({cause}); reopen it to recover")]
    Poisoned {
        /// The failure.
        cause: Arc<Error>,
    },

    /// The log was closed.
    #[error("the log is closed")]
    Closed,

    /// No consumer has this name. Create it first; `Wal::consumers` lists those there are.
    #[error("there is no consumer named {name:?}")]
    UnknownConsumer {
        /// The name.
        name: String,
    },

    /// A consumer's name is not 1 to 128 bytes of UTF-8.
    #[error("a consumer's name has 1 to 128 bytes, this one has {bytes}")]
    ConsumerName {
        /// Its length.
        bytes: usize,
    },

    /// The consumer is open already; a consumer has one reader at a time.
    #[error("consumer {name:?} is open already")]
    ConsumerBusy {
        /// The name.
        name: String,
    },

    /// The consumer's own file is damaged or gone, so its position is unknown. It is never taken for 0: reset it to an offset
    /// by name, or remove it.
    #[error("the position of consumer {name:?} is lost ({reason}); reset it to an offset of your choice, or remove it")]
    ConsumerDamaged {
        /// The name.
        name: String,
        /// What is wrong.
        reason: String,
    },

    /// The log holds another record below the consumer's position than the one it committed: one of the two was
    /// restored or exchanged. Reset the consumer to an offset of your choice.
    #[error(
        "consumer {name:?} committed {committed}, but the log holds another record there now; reset it to an offset of your choice"
    )]
    ConsumerDiverged {
        /// The name.
        name: String,
        /// Its committed offset.
        committed: Offset,
    },

    /// A commit below the committed offset, or beyond what was handed out. To move on purpose, `seek`.
    #[error(
        "consumer {name:?} cannot commit {wanted}: it has committed {committed} and was handed records up to {handed}; to move it on purpose, seek"
    )]
    CommitOutOfRange {
        /// The name.
        name: String,
        /// The offset asked for.
        wanted: Offset,
        /// The committed offset.
        committed: Offset,
        /// One past the last record handed out.
        handed: Offset,
    },
}

impl Error {
    /// An I/O error with its place, for those who keep files of their own beside the log. A full disk has a variant of its own.
    #[must_use]
    pub fn from_io(op: &'static str, file: impl Into<String>, source: io::Error) -> Self {
        Self::io(op, file, source)
    }

    pub(crate) fn io(op: &'static str, file: impl Into<String>, source: io::Error) -> Self {
        let file = file.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { file },
            _ => Self::in_doubt(op, file, source),
        }
    }

    /// An I/O error after which nobody knows what reached the disk, whatever the system called it: never [`Error::NoSpace`], which
    /// says that nothing was written and that trying again helps.
    pub(crate) fn in_doubt(op: &'static str, file: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            op,
            file: file.into(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn invalid(option: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidOption {
            option,
            reason: reason.into(),
        }
    }

    /// Whether this says that bytes on disk are damaged.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        matches!(
            self,
            Self::Corrupt(_) | Self::ConsumerDamaged { .. } | Self::ConsumerDiverged { .. }
        )
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(Box::new(corruption))
    }
}

/// Damage to data that was promised durable: what, where, and how it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The damaged file, as a path.
    pub file: String,
    /// Byte position of the damage in the file.
    pub pos: u64,
    /// The first offset that cannot be read because of it.
    pub offset: Offset,
    /// What is wrong there.
    pub damage: Damage,
    /// What shows that it is damage and not a torn write. `None` where the place alone says so: everything but the newest
    /// segment was synced before its successor appeared.
    pub witness: Option<Witness>,
    /// The directory, for the next step.
    pub dir: PathBuf,
}

impl std::fmt::Display for Corruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "corruption in {} at byte {}: offset {} cannot be read ({})",
            self.file, self.pos, self.offset, self.damage
        )?;
        if let Some(witness) = &self.witness {
            write!(f, "; it was durable: {witness}")?;
        }
        write!(f, "; nothing was changed; next: walctl verify {}", self.dir.display())
    }
}

impl std::error::Error for Corruption {}

/// What is wrong at a damaged place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A frame that cannot be read.
    #[error("{0}")]
    Frame(FrameError),
    /// A whole frame that does not continue the log.
    #[error("the frame there says offset {found}")]
    WrongOffset {
        /// The offset it carries.
        found: Offset,
    },
    /// A header of a segment or of the log that cannot be read.
    #[error("its header cannot be read")]
    Header,
    /// A file that must be there and is not.
    #[error("the file is missing")]
    Missing,
    /// A file that ends before its successor says so.
    #[error("the file ends at byte {len}, its successor says {expected}")]
    Shortened {
        /// Its length.
        len: u64,
        /// The length it must have at least.
        expected: u64,
    },
    /// A file that belongs to another log or another place.
    #[error("the file does not belong here: {0}")]
    Foreign(&'static str),
    /// A consumer's position that cannot be read.
    #[error("a consumer's position is lost: {0}")]
    Position(String),
    /// The log ends before an offset that is known to have been durable.
    #[error("the log ends there")]
    LostTail,
}

/// Why a frame could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Zeros: nothing was ever written here, or it was wiped.
    #[error("blank")]
    Blank,
    /// A header whose fields contradict each other.
    #[error("the frame's header makes no sense")]
    Header,
    /// A header whose checksum fails.
    #[error("the header's checksum is {computed:08x}, stored is {stored:08x}")]
    HeaderChecksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// A frame of a kind that this version does not know.
    #[error("unknown kind of frame {0}")]
    UnknownKind(u8),
    /// A frame that ends beyond the segment.
    #[error("the frame is cut short")]
    Truncated,
    /// A payload whose digest fails.
    #[error("the payload's digest is {computed:016x}, stored is {stored:016x}")]
    PayloadChecksum {
        /// As stored.
        stored: u64,
        /// As computed.
        computed: u64,
    },
    /// A batch whose record lengths do not add up.
    #[error("the batch's record lengths do not add up")]
    BatchLengths,
}

/// Who says that an offset was durable. Each is written only after the sync that made it true.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Witness {
    /// A later frame, written when the durable end was already `durable_end`.
    #[error("the frame at byte {pos} of {file} was written when everything below {durable_end} was")]
    Frame {
        /// The file.
        file: String,
        /// Position of the frame.
        pos: u64,
        /// What it states.
        durable_end: Offset,
    },
    /// The log's meta file.
    #[error("{file} says that everything below {durable_end} was")]
    Meta {
        /// The file.
        file: String,
        /// What it states.
        durable_end: Offset,
    },
    /// The meta file, about a whole segment.
    #[error("{file} names segment generation {generation}")]
    NewestSegment {
        /// The file.
        file: String,
        /// The generation that must exist.
        generation: u64,
    },
    /// A consumer, which commits only what is durable.
    #[error("consumer {name:?} committed {committed}")]
    Consumer {
        /// Its name.
        name: String,
        /// Its committed offset.
        committed: Offset,
    },
    /// The caller, through `Options::known_durable`.
    #[error("the opener knows of everything below {durable_end}")]
    Caller {
        /// What it states.
        durable_end: Offset,
    },
}

impl Witness {
    /// One past the last offset it vouches for; `None` where it vouches for a file.
    #[must_use]
    pub fn durable_end(&self) -> Option<Offset> {
        match self {
            Self::Frame { durable_end, .. } | Self::Meta { durable_end, .. } | Self::Caller { durable_end } => {
                Some(*durable_end)
            }
            Self::Consumer { committed, .. } => Some(*committed),
            Self::NewestSegment { .. } => None,
        }
    }
}
