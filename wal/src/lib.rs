//! A segmented append-only log that tells rot from a torn write, with durable named consumers.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "figures in tests are small"))]

mod backup;
pub mod clock;
mod codec;
mod consumer;
mod error;
pub mod inspect;
mod log;
mod offset;
mod options;
mod report;
mod segment;
mod stats;
pub mod storage;
mod wal;

pub use codec::FORMAT_VERSION;
pub use consumer::{Consumer, ConsumerInfo, ConsumerOptions, Delivery, Reset, Start};
pub use error::{Corruption, Damage, Error, FrameError, Result, Witness};
pub use log::reader::{Reader, Record, Tail, Visible};
pub use log::retention::{Pin, RetentionReport};
pub use offset::Offset;
pub use options::{Durability, FsyncPolicy, Options, Retention, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
pub use report::{Cut, Note, RecoveryReport, TornEvidence};
pub use stats::Stats;
pub use wal::{ReadOnlyWal, Ticket, Wal};
