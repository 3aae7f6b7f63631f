//! The disks that are damaged: small logs and stores that use everything, closed in order or killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wal::storage::Storage;
use wal::storage::sim::SimStorage;
use wal::{Durability, FsyncPolicy, Options, Wal};

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

pub struct Scene {
    pub name: &'static str,
    pub disk: SimStorage,
    /// Another of the same shape, made by the same steps.
    pub other: SimStorage,
    /// The same one at an earlier time.
    pub earlier: SimStorage,
    pub truth: Truth,
}

/// What is known of it.
pub struct Truth {
    pub contents: Contents,
    /// So many records were acknowledged as durable.
    pub acknowledged: u64,
    /// So many are vouched for outside of the last segment.
    pub witnessed_elsewhere: u64,
    /// What is vouched for inside.
    pub statements: Vec<Statement>,
}

pub enum Contents {
    Log {
        records: Vec<Vec<u8>>,
        consumer: u64,
    },
    /// The state after each write.
    Store(Vec<Map>),
}

/// A frame of the last segment whose header, at `pos`, states that everything below `durable_end` is durable.
#[derive(Debug, Clone, Copy)]
pub struct Statement {
    pub pos: usize,
    pub durable_end: u64,
}

/// The file of the last segment, and its generation.
pub fn last_segment(disk: &SimStorage) -> (String, u64) {
    let names = disk.file_names().into_iter().filter_map(|name| {
        let (_, generation) = name.strip_suffix(".wal")?.split_once('-')?;
        let generation = u64::from_str_radix(generation, 16).ok()?;
        Some((name, generation))
    });
    names.max_by_key(|(_, generation)| *generation).unwrap_or_default()
}

fn statements(disk: &SimStorage) -> Vec<Statement> {
    walk_last(disk).0
}

/// Whether there are only zeros behind the last frame that continues the log.
pub fn blank_behind(disk: &SimStorage) -> bool {
    let (_, rest) = walk_last(disk);
    rest.iter().all(|byte| *byte == 0)
}

/// The statements of the last segment, and what is behind its last whole frame.
fn walk_last(disk: &SimStorage) -> (Vec<Statement>, Vec<u8>) {
    let (name, generation) = last_segment(disk);
    let content = disk.read_file(&name).unwrap_or_default();
    let id = wal::inspect::log_id(disk).unwrap_or_default();
    let mut pos = 4096;
    let mut found = Vec::new();
    let rest = |pos: usize| content.get(pos..).unwrap_or_default();
    while let Ok(frame) = wal::inspect::decode_frame(rest(pos), &id, generation, pos as u64) {
        let durable_end = frame.durable_end;
        found.push(Statement { pos, durable_end });
        pos += frame.len as usize;
    }
    (found, rest(pos).to_vec())
}

pub const SEGMENT_BYTES: u64 = 1024;

pub fn options(policy: FsyncPolicy) -> Options {
    // Marks come by the clock; here every run is the same.
    Options::new()
        .policy(policy)
        .segment_bytes(SEGMENT_BYTES)
        .mark_delay(Duration::from_secs(3600))
}

pub fn store_options() -> kv::Options {
    kv::Options::new()
        .log(options(FsyncPolicy::Always))
        .checkpoint_bytes(0)
        .history(kv::History::Everything)
}

fn share(disk: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(disk.clone())
}

pub fn all() -> Vec<Scene> {
    let hour = Duration::from_secs(3600);
    let group = FsyncPolicy::Group {
        max_delay: Duration::from_micros(10),
    };
    vec![
        log("always, closed", FsyncPolicy::Always, true),
        log("always, killed", FsyncPolicy::Always, false),
        log("group, killed", group, false),
        log("interval, killed", FsyncPolicy::Interval(hour), false),
        log("os, closed", FsyncPolicy::Os, true),
        log("os, killed", FsyncPolicy::Os, false),
        store("store, closed", true),
        store("store, killed", false),
    ]
}

fn log(name: &'static str, policy: FsyncPolicy, close: bool) -> Scene {
    let (disk, earlier, truth) = live(policy, close);
    let (other, ..) = live(policy, close);
    Scene {
        name,
        disk,
        other,
        earlier,
        truth,
    }
}

/// Three segments with single records, batches and empty ones, and a consumer; then a few records that are durable, or only written.
fn live(policy: FsyncPolicy, close: bool) -> (SimStorage, SimStorage, Truth) {
    let disk = SimStorage::new();
    let log = options(policy)
        .open_storage(share(&disk))
        .unwrap_or_else(|e| panic!("{e}"));
    let mut records = Vec::new();
    let mut earlier = disk.fork();
    for n in 0..3u8 {
        append(&log, &mut records, vec![n; 300]);
        append(&log, &mut records, format!("text {n}").into_bytes());
        append(&log, &mut records, Vec::new());
        let batch = vec![vec![n + 100; 40], vec![n + 200; 333]];
        log.append_batch(&batch).unwrap_or_else(|e| panic!("{e}"));
        records.extend(batch);
        if n < 2 {
            log.rotate().unwrap_or_else(|e| panic!("{e}"));
        }
        if n == 1 {
            consume(&log, 3);
            earlier = disk.fork();
        }
    }
    let elsewhere = 10;
    log.sync().unwrap_or_else(|e| panic!("{e}"));
    let synced = records.len() as u64;
    // The records after it state that those before are durable. The last has nobody.
    append(&log, &mut records, b"the last but one".to_vec());
    append(&log, &mut records, b"the last".to_vec());
    consume(&log, 4);
    let end = records.len() as u64;
    if close {
        log.close().unwrap_or_else(|e| panic!("{e}"));
    } else {
        disk.process_kill();
    }
    drop(log);
    let durable = policy.durability() == Durability::Durable;
    let truth = Truth {
        contents: Contents::Log { records, consumer: 7 },
        acknowledged: if close || durable { end } else { synced },
        witnessed_elsewhere: if close { end } else { elsewhere },
        statements: statements(&disk),
    };
    (disk, earlier, truth)
}

fn append(log: &Wal, records: &mut Vec<Vec<u8>>, record: Vec<u8>) {
    let offset = log.append(&record).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(offset, records.len() as u64);
    records.push(record);
}

/// Takes some more, and commits.
fn consume(log: &Wal, more: usize) {
    let mut consumer = log.consumer("c").open().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(consumer.poll(more).map(|r| r.len()).ok(), Some(more));
    consumer.commit().unwrap_or_else(|e| panic!("{e}"));
}

/// Two checkpoints, with writes before, between and after.
fn live_store(close: bool) -> (SimStorage, SimStorage, Truth) {
    let disk = SimStorage::new();
    let store = store_options()
        .open_storage(share(&disk))
        .unwrap_or_else(|e| panic!("{e}"));
    let mut states = vec![Map::new()];
    let mut earlier = disk.fork();
    for n in 0..9u8 {
        let mut state = states.last().cloned().unwrap_or_default();
        let (key, value) = (vec![b'k', n % 5], vec![n; 20 * usize::from(n)]);
        let mut batch = kv::Batch::new();
        batch.put(&key, &value).delete([b'k', (n + 3) % 5]);
        state.insert(key, value);
        state.remove(&[b'k', (n + 3) % 5][..]);
        store.write(&batch).unwrap_or_else(|e| panic!("{e}"));
        states.push(state);
        if n == 3 || n == 6 {
            store.checkpoint().unwrap_or_else(|e| panic!("{e}"));
        }
        if n == 4 {
            earlier = disk.fork();
        }
    }
    if close {
        store.close().unwrap_or_else(|e| panic!("{e}"));
    } else {
        disk.process_kill();
    }
    drop(store);
    let end = states.len() as u64 - 1;
    let truth = Truth {
        contents: Contents::Store(states),
        acknowledged: end,
        // The second checkpoint is of the state after seven writes.
        witnessed_elsewhere: if close { end } else { 7 },
        statements: statements(&disk),
    };
    (disk, earlier, truth)
}

fn store(name: &'static str, close: bool) -> Scene {
    let (disk, earlier, truth) = live_store(close);
    let (other, ..) = live_store(close);
    Scene {
        name,
        disk,
        other,
        earlier,
        truth,
    }
}
