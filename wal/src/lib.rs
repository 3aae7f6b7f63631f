//! A segmented append-only log that tells rot from a torn write, with durable named consumers.
//!
//! ```
//! # let dir = tempfile::tempdir()?; let path = dir.path().join("log");
//! let log = wal::Options::new().open(&path)?;
//! assert_eq!(log.append(b"first")?, 0); // durable when it returns
//! assert_eq!(log.append_batch(&[b"second", b"third!"])?, 1..3);
//!
//! let mut consumer = log.consumer("printer").open()?;
//! while let Some(record) = consumer.next()? {
//!     println!("{}: {}", record.offset, record.bytes.escape_ascii());
//!     consumer.commit()?;
//! }
//! log.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Options`] opens a [`Wal`]; its methods append, read and retain. [`Wal::consumer`] makes named readers that own their place.
//! [`inspect`] looks at a directory without opening it. [`storage`] is the seam to the disk, with a simulated one for crash tests
//! (feature `sim`). What a crash can lose is a table at [`FsyncPolicy`]. The [`manual`] has the format, recovery, consumers and the design.

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
mod threads;
mod wal;

/// The manual: how it is built, and why.
pub mod manual {
    #[doc = include_str!("../docs/format.md")]
    pub mod format {}
    #[doc = include_str!("../docs/recovery.md")]
    pub mod recovery {}
    #[doc = include_str!("../docs/consumers.md")]
    pub mod consumers {}
    #[doc = include_str!("../docs/design.md")]
    pub mod design {}
    #[doc = include_str!("../docs/testing.md")]
    pub mod testing {}
}

pub use codec::FORMAT_VERSION;
pub use consumer::{Consumer, ConsumerInfo, ConsumerOptions, Start};
pub use error::{Corruption, Damage, Error, FrameError, Result, Witness};
pub use log::reader::{Reader, Record, Tail, Visible};
pub use log::retention::{Pin, RetentionReport};
pub use offset::Offset;
pub use options::{Delivery, Durability, FsyncPolicy, Options, Reset, Retention, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
pub use report::{Cut, Note, RecoveryReport, TornEvidence};
pub use stats::Stats;
pub use wal::{ReadOnlyWal, Ticket, Wal};
