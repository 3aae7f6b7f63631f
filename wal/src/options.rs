//! What can be chosen when a log is opened. Options may change from one run to the next; none is stored.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::codec::frame;
use crate::error::{Error, Result};
use crate::offset::Offset;

/// When an append is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// It is in this process's memory and will be written within about a millisecond. Killing the process may lose it.
    Buffered,
    /// It was handed to the operating system. Killing the process loses nothing; a power cut may.
    Written,
    /// It was synced to the disk. Nothing short of damage to the disk loses it.
    Durable,
}

/// When the log is synced, and so what an append waits for by default.
///
/// | policy | an append returns when | a process kill loses | a power cut loses |
/// |---|---|---|---|
/// | `Always` | durable | nothing acknowledged | nothing acknowledged |
/// | `Group` | durable | nothing acknowledged | nothing acknowledged |
/// | `Interval` | written | nothing acknowledged | at most what was appended in the last interval and the sync that follows it |
/// | `Os` | written | nothing acknowledged | what the system had not yet written; at most since the last rotation or `sync` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FsyncPolicy {
    /// Every append waits for a sync; threads that append at the same time share one.
    #[default]
    Always,
    /// As `Always`, but a sync first waits up to `max_delay` for more appends to share it. Trades latency for fewer syncs.
    Group {
        /// The longest extra wait, up to one second.
        max_delay: Duration,
    },
    /// A background thread syncs this long after the first un-synced append, also when traffic stops. A failed sync is
    /// told to every later append, `sync` and `close`.
    Interval(Duration),
    /// Synced only when a segment is full, by `sync` and at close.
    Os,
}

impl FsyncPolicy {
    /// What an append waits for when it does not say.
    #[must_use]
    pub fn durability(self) -> Durability {
        match self {
            Self::Always | Self::Group { .. } => Durability::Durable,
            Self::Interval(_) | Self::Os => Durability::Written,
        }
    }
}

/// Which sealed segments may be removed. Nothing is removed that a pin or a registered consumer still needs, unless
/// `lag_*_max` bounds what a lagging consumer may hold back.
///
/// Whole sealed segments go, oldest first, when **any** of `bytes_max` and `age_max` says so. The active segment always stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Remove the oldest segments while all of them together take more bytes than this.
    pub bytes_max: Option<u64>,
    /// Remove segments whose newest record is older than this.
    pub age_max: Option<Duration>,
    /// A consumer further behind the durable end than this many records no longer holds segments back.
    pub lag_records_max: Option<u64>,
    /// A consumer whose unread segments take more bytes than this no longer holds them back.
    pub lag_bytes_max: Option<u64>,
    /// A consumer no longer holds back segments whose newest record is older than this.
    pub lag_age_max: Option<Duration>,
}

/// What a crash does to a record that was being handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Delivery {
    /// Commit after the work: a crash repeats at most what was not committed, and skips nothing.
    #[default]
    AtLeastOnce,
    /// The offset is committed, durably, before a record is handed out: a crash skips at most what was handed out last, and
    /// repeats nothing.
    AtMostOnce,
}

/// What a consumer does when retention has removed its next record, after the error has been returned once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reset {
    /// Every read fails until [`crate::Consumer::seek`].
    #[default]
    Fail,
    /// Goes on at the first retained record.
    Earliest,
    /// Goes on at the durable end.
    Latest,
}

/// Builds a [`crate::Wal`].
///
/// ```
/// # let dir = tempfile::tempdir()?; let path = dir.path().join("log");
/// use wal::{FsyncPolicy, Options};
/// let log = Options::new().policy(FsyncPolicy::Always).segment_bytes(16 << 20).open(&path)?;
/// assert_eq!(log.append(b"first")?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) policy: FsyncPolicy,
    pub(crate) segment_bytes: u64,
    pub(crate) record_bytes_max: u64,
    pub(crate) create: bool,
    pub(crate) retention: Retention,
    pub(crate) known_durable: Offset,
    pub(crate) mark_delay: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Smallest `segment_bytes`.
pub const SEGMENT_BYTES_MIN: u64 = 1 << 10;
/// Largest `segment_bytes`: positions in a segment stay below 32 GiB.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 34;

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The defaults: `Always`, segments of 64 MiB, records up to 64 MiB, no retention, created where missing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            policy: FsyncPolicy::default(),
            segment_bytes: 64 << 20,
            record_bytes_max: 64 << 20,
            create: true,
            retention: Retention::default(),
            known_durable: 0,
            mark_delay: Duration::from_millis(100),
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// When the log is synced. Default: [`FsyncPolicy::Always`].
    #[must_use]
    pub fn policy(mut self, policy: FsyncPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Bytes of frames after which a segment is sealed and the next begun: 1 KiB..=16 GiB, default 64 MiB. A larger
    /// append gets a segment of its own. Small logs take little disk whatever this says.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Largest record that an append takes, and most bytes that a batch may take together: 1..=1 GiB, default 64 MiB. Lowering it
    /// does not make older, larger records unreadable.
    #[must_use]
    pub fn record_bytes_max(mut self, bytes: u64) -> Self {
        self.record_bytes_max = bytes;
        self
    }

    /// Whether to create the log, and its directory, where it is missing. The directory's parent must exist. Default: yes.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Which old segments may go. Default: none.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Vouches, from outside the log, that every record below `offset` was durable: for callers that keep state derived from the
    /// log in durable files of their own. A log that ends before it has lost data, and is refused instead of cut.
    #[must_use]
    pub fn known_durable(mut self, offset: Offset) -> Self {
        self.known_durable = offset;
        self
    }

    /// How long the log must be idle before a mark is written, which proves its last records durable to readers in other
    /// processes and to recovery. Default 100 ms; up to one hour.
    #[must_use]
    pub fn mark_delay(mut self, delay: Duration) -> Self {
        self.mark_delay = delay;
        self
    }

    /// Where time comes from. Default: the system.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Whether the options are in range and agree with each other.
    pub(crate) fn check(&self) -> Result<()> {
        let outside = |option, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(Error::invalid(
                    option,
                    format!("{value} is outside of {low}..={high} bytes"),
                ))
            }
        };
        outside(
            "segment_bytes",
            self.segment_bytes,
            SEGMENT_BYTES_MIN,
            SEGMENT_BYTES_MAX,
        )?;
        outside("record_bytes_max", self.record_bytes_max, 1, frame::PAYLOAD_MAX as u64)?;
        let delay = |option, value: Duration, high: Duration| {
            if value <= high {
                Ok(())
            } else {
                Err(Error::invalid(option, format!("{value:?} is above {high:?}")))
            }
        };
        delay("mark_delay", self.mark_delay, Duration::from_secs(3600))?;
        match self.policy {
            FsyncPolicy::Group { max_delay } => delay("policy", max_delay, Duration::from_secs(1))?,
            FsyncPolicy::Interval(every) => {
                delay("policy", every, Duration::from_secs(3600))?;
                if every.is_zero() {
                    return Err(Error::invalid("policy", "an interval of 0 is `Always`; choose that"));
                }
            }
            FsyncPolicy::Always | FsyncPolicy::Os => {}
        }
        if self.retention.bytes_max.is_some_and(|max| max < self.segment_bytes) {
            return Err(Error::invalid(
                "retention.bytes_max",
                format!(
                    "is below segment_bytes ({}), so nothing could be kept",
                    self.segment_bytes
                ),
            ));
        }
        Ok(())
    }
}
