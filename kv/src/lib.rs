//! An embedded key-value store whose source of truth is a write-ahead log.
//!
//! ```
//! # let dir = tempfile::tempdir()?; let path = dir.path().join("store");
//! let store = kv::Options::new().open(&path)?;
//! let offset = store.put("user:1", "Ada")?; // durable when it returns
//! assert_eq!(store.get("user:1")?.unwrap(), b"Ada");
//!
//! let mut batch = kv::Batch::new();
//! batch.put("user:2", "Grace").delete("user:1");
//! store.write(&batch)?; // both or neither
//! for (key, value) in store.prefix("user:") {
//!     println!("{key:?} = {value:?}");
//! }
//! let then = store.at(offset + 1)?; // before the batch
//! assert_eq!(then.get("user:1").unwrap(), b"Ada");
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Options`] opens a [`Store`]. [`Snapshot`] is one instant of it, [`Watch`] its changes in order, [`Typed`] a view over serde types. A store's
//! directory is a log's: the tools and consumers of [`wal`] work on it. [`verify`] proves it. The [`manual`] tells how and why.

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

/// The manual: how it is built, and why. The log's is [`wal::manual`].
pub mod manual {
    #[doc = include_str!("../docs/store.md")]
    pub mod store {}
    #[doc = include_str!("../docs/map.md")]
    pub mod map {}
}

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

/// The examples in the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
