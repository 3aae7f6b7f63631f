//! The commit path under many orders of events: who wakes whom, who leads a sync, what happens when it fails. A scheduler (shuttle) runs one
//! thread at a time and chooses at every lock who goes on; a thread that nobody wakes is a deadlock, and told.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release --test schedules --target-dir target/shuttle
//! ```
//!
//! Without that this file is empty.

#![cfg(shuttle)]

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;
use wal::storage::Storage;
use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Durability, Error, FsyncPolicy, Options, Wal};

/// Schedules for each test: half of them at random, half by PCT (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of
/// Finding Bugs", ASPLOS 2010), which finds rare orders more surely.
fn try_schedules(test: impl Fn() + Send + Sync + Clone + 'static) {
    let asked = std::env::var("SCHEDULES").ok().and_then(|n| n.parse().ok());
    let half = asked.unwrap_or(4000) / 2;
    shuttle::check_random(test.clone(), half);
    shuttle::check_pct(test, half, 4);
}

fn options(policy: FsyncPolicy) -> Options {
    Options::new()
        .segment_bytes(1024)
        .mark_delay(Duration::from_secs(3600))
        .policy(policy)
}

fn open(disk: &SimStorage, policy: FsyncPolicy) -> Wal {
    // Others may go on while the disk works.
    disk.on_op(|_| thread::yield_now());
    options(policy)
        .open_storage(Arc::new(disk.clone()) as Arc<dyn Storage>)
        .unwrap_or_else(|e| panic!("{e}"))
}

/// What a power cut now leaves at least.
fn survives(disk: &SimStorage, offset: u64) {
    let image = disk.fork();
    image.power_cut(offset);
    assert!(
        open(&image, FsyncPolicy::Always).end() > offset,
        "an acknowledged record is gone"
    );
}

#[test]
fn l2_whoever_is_acknowledged_is_durable_and_nobody_sleeps_for_ever() {
    let group = FsyncPolicy::Group {
        max_delay: Duration::from_micros(10),
    };
    for policy in [FsyncPolicy::Always, group, FsyncPolicy::Os] {
        try_schedules(move || {
            let disk = SimStorage::new();
            let log = open(&disk, policy);
            let threads: Vec<_> = (0..3u8)
                .map(|n| {
                    let (log, disk) = (log.clone(), disk.clone());
                    thread::spawn(move || {
                        for _ in 0..2 {
                            // One writes, perhaps during the sync of another, and then asks for its own.
                            let offset = if n == 0 {
                                let offset = log.append_with([n; 50], Durability::Written).unwrap();
                                log.sync().unwrap();
                                offset
                            } else {
                                log.append_with([n; 50], Durability::Durable).unwrap()
                            };
                            survives(&disk, offset);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(log.durable_end(), 6);
            log.close().unwrap();
        });
    }
}

#[test]
fn l6_a_failed_sync_tells_every_waiter() {
    try_schedules(|| {
        let disk = SimStorage::new();
        let log = open(&disk, FsyncPolicy::Always);
        log.append("first").unwrap();
        disk.inject(
            Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: true })
                .on_file(".wal")
                .nth(2),
        );
        let threads: Vec<_> = (0..3u8)
            .map(|n| {
                let (log, disk) = (log.clone(), disk.clone());
                thread::spawn(move || {
                    for _ in 0..3 {
                        match log.append([n; 50]) {
                            Ok(offset) => survives(&disk, offset),
                            Err(Error::Poisoned { .. }) => return,
                            Err(e) => panic!("{e}"),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        // Others may have shared all syncs there were.
        if let Some(cause) = log.failure() {
            assert!(matches!(*cause, Error::Io { op: "sync", .. }));
            log.reopen().unwrap();
        }
        log.append("after").unwrap();
        log.close().unwrap();
    });
}

#[test]
fn l1_l3_appends_meet_rotation_and_retention() {
    try_schedules(|| {
        let disk = SimStorage::new();
        let log = open(&disk, FsyncPolicy::Always);
        let writers: Vec<_> = (0..2u8)
            .map(|n| {
                let (log, disk) = (log.clone(), disk.clone());
                thread::spawn(move || {
                    for _ in 0..3 {
                        let offset = log.append([n; 400]).unwrap();
                        survives(&disk, offset);
                        assert!(log.durable_end() > offset, "the durable end moved back");
                    }
                })
            })
            .collect();
        let keeper = {
            let log = log.clone();
            thread::spawn(move || {
                log.rotate().unwrap();
                log.remove_before(log.durable_end()).unwrap();
            })
        };
        writers.into_iter().for_each(|t| t.join().unwrap());
        keeper.join().unwrap();
        let mut reader = log.reader(log.start()).unwrap();
        let mut next = log.start();
        while let Some(record) = reader.next().unwrap() {
            assert_eq!(record.offset, next);
            next += 1;
        }
        assert_eq!(next, 6);
        log.close().unwrap();
    });
}

#[test]
fn l9_a_tail_is_woken_by_every_record_and_by_the_end() {
    try_schedules(|| {
        let disk = SimStorage::new();
        let log = open(&disk, FsyncPolicy::Always);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let log = log.clone();
                thread::spawn(move || {
                    let mut tail = log.tail(0).unwrap();
                    let mut seen = 0;
                    while let Some(record) = tail.next().unwrap() {
                        assert_eq!(record.offset, seen);
                        seen += 1;
                    }
                    assert_eq!(seen, 3);
                })
            })
            .collect();
        for n in 0..3u8 {
            log.append([n; 400]).unwrap();
        }
        log.close().unwrap();
        readers.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn l6_reopening_meets_waiters_of_the_life_before() {
    try_schedules(|| {
        let disk = SimStorage::new();
        let log = open(&disk, FsyncPolicy::Always);
        log.append("first").unwrap();
        disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: false }).on_file(".wal"));
        let threads: Vec<_> = (0..2u8)
            .map(|n| {
                let (log, disk) = (log.clone(), disk.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        match log.append([n; 50]) {
                            Ok(offset) => survives(&disk, offset),
                            // Whoever comes first reopens it for all.
                            Err(Error::Poisoned { .. }) => match log.reopen() {
                                Ok(()) | Err(Error::InvalidOption { .. }) => {}
                                Err(e) => panic!("{e}"),
                            },
                            Err(e) => panic!("{e}"),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        if log.failure().is_some() {
            log.reopen().unwrap();
        }
        let offset = log.append("after").unwrap();
        survives(&disk, offset);
        log.close().unwrap();
    });
}

#[test]
fn l10_consumers_meet_retention_and_the_end() {
    try_schedules(|| {
        let disk = SimStorage::new();
        let log = open(&disk, FsyncPolicy::Always);
        let consumer = {
            let log = log.clone();
            thread::spawn(move || {
                let mut consumer = log.consumer("reader").open().unwrap();
                let mut handled = Vec::new();
                for _ in 0..3 {
                    if let Some(record) = consumer.next().unwrap() {
                        handled.push(record.offset);
                    }
                    match consumer.commit() {
                        Ok(_) | Err(Error::Closed) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
                assert!(handled.windows(2).all(|pair| pair[0] + 1 == pair[1]));
            })
        };
        for n in 0..3u8 {
            log.append([n; 600]).unwrap();
            log.remove_before(log.durable_end()).unwrap();
        }
        consumer.join().unwrap();
        log.close().unwrap();
    });
}
