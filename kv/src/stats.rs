//! Numbers about a running store.

use wal::Offset;

/// A moment's view of a store. Counts start at opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys.
    pub keys: u64,
    /// Bytes of all keys and values.
    pub bytes: u64,
    /// One past the last write that readers see.
    pub applied: Offset,
    /// Applied offsets of the checkpoints that are kept, newest first.
    pub checkpoints: Vec<Offset>,
    /// Checkpoints made.
    pub checkpoints_made: u64,
    /// Bytes of the last checkpoint's file; 0 before the first.
    pub checkpoint_file_bytes: u64,
    /// Bytes of writes applied since the last checkpoint: what the next open would replay.
    pub bytes_since_checkpoint: u64,
    /// The log underneath.
    pub log: wal::Stats,
}
