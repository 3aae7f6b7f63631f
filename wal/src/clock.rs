//! Where the log takes the time from.
//!
//! Time decides nothing about order or durability. It stamps segments and marks, so that offsets can be found by
//! time and retention can go by age.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time; tests may bring their own.
pub trait Clock: Debug + Send + Sync {
    /// Milliseconds since the Unix epoch, by the wall clock, which may jump.
    fn unix_ms(&self) -> u64;

    /// Time since some fixed moment, which never jumps.
    fn monotonic(&self) -> Duration;
}

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// The system's clocks, the monotonic one counted from now.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn unix_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Whole milliseconds of a duration, saturating.
pub(crate) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// The log's own time: the wall clock as read once when the log was opened, carried on by the monotonic clock. A wall
/// clock that jumps while the log is open changes nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    wall_ms: u64,
    monotonic: Duration,
}

impl Epoch {
    pub(crate) fn start(clock: &dyn Clock) -> Self {
        Self {
            wall_ms: clock.unix_ms(),
            monotonic: clock.monotonic(),
        }
    }

    /// The wall clock when this epoch began.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    /// Milliseconds since this epoch began.
    pub(crate) fn elapsed_ms(&self, clock: &dyn Clock) -> u64 {
        millis(clock.monotonic().saturating_sub(self.monotonic))
    }

    /// The log's present, in milliseconds since the Unix epoch.
    pub(crate) fn now_ms(&self, clock: &dyn Clock) -> u64 {
        self.wall_ms.saturating_add(self.elapsed_ms(clock))
    }
}
