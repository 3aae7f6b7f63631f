//! The ordinal number of a record.

/// The ordinal number of a record: 0, 1, 2, …, dense, never given to another record once durable.
///
/// Ranges of offsets are half-open, `[start, end)`, and every stored offset means "next to do". A byte place in a file is a
/// *position*, never an offset.
pub type Offset = u64;

/// The offset `count` records on, or `None` where the numbers end.
pub(crate) fn advance(offset: Offset, count: usize) -> Option<Offset> {
    // One number stays free, so that "one past the last" always exists.
    offset.checked_add(count as u64).filter(|end| *end < u64::MAX)
}
