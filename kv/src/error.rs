//! What can go wrong in the store. Everything about the log itself is [`wal::Error`].

use wal::Offset;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log refused; its error says what and what next. After [`wal::Error::Poisoned`] the write may be there once the store is
    /// reopened; after all others it is not.
    #[error(transparent)]
    Log(#[from] wal::Error),

    /// A key is over the limit. Nothing was written.
    #[error("a key of {bytes} bytes is over the limit of {max}")]
    KeyTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },

    /// A write takes more bytes than the log takes for one record. Nothing was written; split it, or raise
    /// [`wal::Options::record_bytes_max`].
    #[error("a write of {bytes} bytes is over the limit of {max} bytes")]
    WriteTooLarge {
        /// Bytes of the write as it would be logged.
        bytes: u64,
        /// The limit.
        max: u64,
    },

    /// A record of the log is no write of a store, or one of a newer version: this is another program's log, or a newer one's.
    #[error("the record at offset {offset} is not a write that this version knows ({reason})")]
    NotAWrite {
        /// Its offset.
        offset: Offset,
        /// What is wrong with it.
        reason: String,
    },

    /// No checkpoint can be used, and the log no longer reaches back to its beginning. Nothing was changed. Restore a backup, or repair the
    /// checkpoint file from a copy.
    #[error("no checkpoint can be used ({}) and the log begins at offset {log_start}; restore a checkpoint file or a backup", reasons.join("; "))]
    NoUsableCheckpoint {
        /// The log's first retained offset.
        log_start: Offset,
        /// Each checkpoint, and why it cannot be used.
        reasons: Vec<String>,
    },

    /// The store cannot be shown as it stood at that offset: its history goes from `start` to `end`, both included.
    #[error("the store cannot be shown at offset {wanted}; its history goes from {start} to {end}")]
    OutOfRange {
        /// The offset asked for.
        wanted: Offset,
        /// The oldest.
        start: Offset,
        /// The newest.
        end: Offset,
    },

    /// A typed value could not be encoded or decoded.
    #[error("a value could not be {what}: {reason}")]
    Value {
        /// `encoded` or `decoded`.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(op: &'static str, file: String, source: std::io::Error) -> Self {
        Self::Log(wal::Error::from_io(op, file, source))
    }
}
