//! Sound disks to do harm to. Each is made once and forked for every run.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wal::storage::sim::SimStorage;

pub fn log_options() -> wal::Options {
    wal::Options::new()
        .segment_bytes(1024)
        .record_bytes_max(1 << 20)
        .mark_delay(Duration::from_secs(3600))
}

pub fn store_options() -> kv::Options {
    kv::Options::new()
        .log(log_options())
        .checkpoint_bytes(0)
        .history(kv::History::Everything)
}

/// A log of several segments, with a consumer. Its end is as a close leaves it, or as a kill does.
pub fn sound_log(closed: bool) -> SimStorage {
    static MADE: [OnceLock<SimStorage>; 2] = [OnceLock::new(), OnceLock::new()];
    let made = MADE[usize::from(closed)].get_or_init(|| {
        let disk = SimStorage::new();
        let log = log_options()
            .open_storage(Arc::new(disk.clone()))
            .expect("a new log opens");
        for n in 0..20u8 {
            log.append(vec![n; usize::from(n) * 9]).expect("appends");
        }
        log.append_batch(&[vec![1; 10], Vec::new(), vec![3; 30]])
            .expect("appends");
        let mut consumer = log.consumer("c").open().expect("opens");
        consumer.poll(9).expect("polls");
        consumer.commit().expect("commits");
        log.append(b"the end").expect("appends");
        if closed {
            log.close().expect("closes");
        } else {
            disk.process_kill();
        }
        disk
    });
    made.fork()
}

/// The records of [`sound_log`].
pub fn sound_records() -> &'static [Vec<u8>] {
    static MADE: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut records: Vec<_> = (0..20u8).map(|n| vec![n; usize::from(n) * 9]).collect();
        records.extend([vec![1; 10], Vec::new(), vec![3; 30], b"the end".to_vec()]);
        records
    })
}

/// A store with two checkpoints and its whole log.
pub fn sound_store() -> SimStorage {
    static MADE: OnceLock<SimStorage> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let disk = SimStorage::new();
        let store = store_options()
            .open_storage(Arc::new(disk.clone()))
            .expect("a new store opens");
        for n in 0..30u8 {
            store.put([n % 17], vec![n; usize::from(n)]).expect("puts");
            if n == 10 || n == 20 {
                store.checkpoint().expect("makes a checkpoint");
            }
        }
        store.delete([3]).expect("deletes");
        store.close().expect("closes");
        disk
    });
    made.fork()
}
