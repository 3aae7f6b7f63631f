//! I: threads.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Durability, Retention};

use super::*;

#[test]
fn i01_concurrent_appends() {
    const THREADS: u64 = 16;
    const EACH: u64 = 500;
    let disk = SimStorage::new();
    let log = try_open_manual(&disk).unwrap();
    let told: Mutex<BTreeMap<u64, (u64, u64)>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, told) = (&log, &told);
            scope.spawn(move || {
                for seq in 0..EACH {
                    let record = [thread.to_le_bytes(), seq.to_le_bytes()].concat();
                    let level = [Durability::Buffered, Durability::Written][(seq % 2) as usize];
                    let offset = log.append_with(record, level).unwrap();
                    assert!(
                        told.lock().unwrap().insert(offset, (thread, seq)).is_none(),
                        "{offset} was given twice"
                    );
                }
            });
        }
    });
    log.sync().unwrap();
    let told = told.into_inner().unwrap();
    let check = |log: &Wal| {
        let mut next = [0; THREADS as usize];
        for (n, record) in read_all(log).iter().enumerate() {
            let number = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
            let (thread, seq) = (number(0), number(8));
            assert_eq!(told[&(n as u64)], (thread, seq));
            assert_eq!(std::mem::replace(&mut next[thread as usize], seq + 1), seq);
        }
        assert_eq!(next, [EACH; THREADS as usize]);
    };
    check(&log);
    kill(&disk, log);
    check(&open(&disk));
    // Two that write one key: what is seen last is what replay shows.
    for round in 0..200u64 {
        let disk = SimStorage::new();
        let store = open_store(&disk);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let store = &store;
                scope.spawn(move || {
                    (0..5).for_each(|n: u64| assert!(store.put("key", [round, thread, n].map(|n| n as u8)).is_ok()))
                });
            }
        });
        let live = store.get("key").unwrap();
        kill(&disk, store);
        assert_eq!(open_store(&disk).get("key").unwrap(), live);
    }
}

#[test]
fn i02_everything_at_once() {
    let seed = AtomicU64::new(1);
    for round in 0..25u64 {
        let disk = SimStorage::new();
        // Threads meet at other places in every round.
        let seed = seed.fetch_add(1, Ordering::SeqCst);
        disk.on_op(move |op| {
            if (op.index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed).is_multiple_of(5) {
                std::thread::yield_now();
            }
        });
        let store = kv::Options::new()
            .log(
                options()
                    .segment_bytes(2048)
                    .policy([FsyncPolicy::Always, FsyncPolicy::Os][(round % 2) as usize]),
            )
            .checkpoint_bytes(4000)
            .open_storage(shared(&disk))
            .unwrap();
        let durable = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (store, durable, done) = (&store, &durable, &done);
            let writers: Vec<_> = (0..3u64)
                .map(|thread| {
                    scope.spawn(move || {
                        for n in 0..60u64 {
                            let mut batch = kv::Batch::new();
                            batch.put([thread as u8, n as u8], mark(n, 60));
                            let offset = store.write_with(&batch, Durability::Durable).unwrap();
                            durable.fetch_max(offset + 1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                let mut feed = store.consumer("feed").open().unwrap();
                let mut expected = feed.position();
                while !done.load(Ordering::SeqCst) {
                    for (offset, _) in feed.poll(7).unwrap() {
                        assert_eq!(offset, expected);
                        expected += 1;
                    }
                    feed.commit().unwrap();
                }
            });
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    store.checkpoint().unwrap();
                    store.sync().unwrap();
                    let snapshot = store.snapshot();
                    assert!(
                        snapshot
                            .iter()
                            .all(|(key, value)| value[..] == mark(u64::from(key[1]), 60))
                    );
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::SeqCst);
        });
        disk.power_cut(round);
        drop(store);
        let store = open_store(&disk);
        assert_eq!(store.len(), 180, "round {round}");
        assert!(store.applied() >= durable.load(Ordering::SeqCst));
        assert!(kv::verify(&shared(&disk)).unwrap().is_clean());
    }
}

#[test]
fn i04_no_work_before_recovery_is_done() {
    let disk = SimStorage::new();
    let store = kv::Options::new()
        .log(options().segment_bytes(1024))
        .checkpoint_bytes(0)
        .open_storage(shared(&disk))
        .unwrap();
    for n in 0..120u64 {
        store.put((n % 30).to_be_bytes(), mark(n, 700)).unwrap();
    }
    kill(&disk, store);
    assert!(segments(&disk).len() > 100);
    let quiet: Vec<_> = open_store(&disk.fork()).snapshot().iter().collect();
    let restless = Retention {
        bytes_max: Some(1024),
        age_max: Some(Duration::from_millis(1)),
        ..Retention::default()
    };
    let busy = disk.fork();
    busy.inject(Fault::new(OpKind::Read, FaultKind::Short(200)).forever());
    busy.start_trace();
    let store = kv::Options::new()
        .log(options().segment_bytes(1024).retention(restless))
        .checkpoint_bytes(1)
        .open_storage(shared(&busy))
        .unwrap();
    let read: Vec<_> = store.snapshot().iter().collect();
    assert!(read == quiet);
    assert!(store.report().replayed == 120);
    let removed_while_replaying = {
        let trace = busy.trace();
        let last_read = trace
            .iter()
            .rposition(|op| op.kind == OpKind::Read && op.file.ends_with(".wal"))
            .unwrap();
        trace[..last_read]
            .iter()
            .any(|op| op.kind == OpKind::Remove && op.file.ends_with(".wal"))
    };
    assert!(!removed_while_replaying);
    kill(&busy, store);
    assert!(open_store(&busy).snapshot().iter().eq(quiet));
}
