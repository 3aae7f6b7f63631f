//! Models: what the log and the store do, held against a vector and a map of ours, in histories that proptest makes up and makes small. And
//! histories of several threads, held against every order in which their calls may have taken effect.

mod linear;
mod log;
mod store;

use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::Config;
use wal::storage::Storage;
use wal::storage::sim::SimStorage;

/// Small segments, and no marks by the clock, so that a history is the same whenever it is tried again.
fn options() -> wal::Options {
    wal::Options::new()
        .segment_bytes(2048)
        .mark_delay(Duration::from_secs(3600))
}

fn shared(disk: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(disk.clone())
}

/// So many histories; `PROPTEST_CASES` says otherwise.
fn config() -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    Config {
        cases: asked.unwrap_or(200),
        // A failure prints its history; nothing is kept in the sources.
        failure_persistence: None,
        ..Config::default()
    }
}
