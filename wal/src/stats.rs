//! Numbers about a running log.

use std::time::Duration;

/// What the log has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) appends: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) syncs: u64,
    pub(crate) sync_time: Duration,
    pub(crate) marks: u64,
    pub(crate) seals: u64,
    pub(crate) segments_begun: u64,
}

/// A moment's view of a log. Counts start at opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The first retained offset.
    pub start: u64,
    /// One past the last record appended.
    pub end: u64,
    /// One past the last record handed to the operating system.
    pub written_end: u64,
    /// One past the last record known to be durable.
    pub durable_end: u64,
    /// Segments on disk.
    pub segments: u64,
    /// Calls that appended, a batch counting once.
    pub appends: u64,
    /// Records appended.
    pub records: u64,
    /// Bytes of records appended, with the length table of batches.
    pub bytes: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes written, with headers and padding.
    pub written_bytes: u64,
    /// Data syncs of the active segment. `appends / syncs` is what group commit saves.
    pub syncs: u64,
    /// Time spent in them.
    pub sync_time: Duration,
    /// Marks written while idle.
    pub marks: u64,
    /// Segments sealed.
    pub seals: u64,
    /// Segments begun.
    pub segments_begun: u64,
    /// Registered consumers.
    pub consumers: u64,
}

impl Stats {
    pub(crate) fn of(counters: &Counters) -> Self {
        Self {
            appends: counters.appends,
            records: counters.records,
            bytes: counters.bytes,
            writes: counters.writes,
            written_bytes: counters.written_bytes,
            syncs: counters.syncs,
            sync_time: counters.sync_time,
            marks: counters.marks,
            seals: counters.seals,
            segments_begun: counters.segments_begun,
            ..Self::default()
        }
    }
}
