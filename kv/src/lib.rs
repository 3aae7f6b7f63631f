//! An embedded key-value store whose source of truth is a write-ahead log.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "figures in tests are small"))]

mod batch;
mod checkpoint;
mod command;
mod error;
mod feed;
mod load;
mod map;
mod options;
mod snapshot;
mod state;
mod stats;
mod store;
mod typed;
mod verify;

pub use batch::Batch;
pub use error::{Error, Result};
pub use feed::{Change, Committed, Watch};
pub use load::OpenReport;
pub use map::{Entries, Key, Value};
pub use options::{History, KEY_BYTES_MAX, Options};
pub use snapshot::Snapshot;
pub use stats::Stats;
pub use store::{Store, Swap, Update};
pub use typed::Typed;
pub use verify::{CheckpointInfo, Fold, Verification, verify};
pub use wal::{Durability, FsyncPolicy, Offset};
