//! What each policy and level can lose, on a process kill and on a power cut.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Durability, Error, FsyncPolicy};

use super::{open, open_with, options};

/// How many of `n` acknowledged records are there after each kind of crash: fewest and most.
fn survivors(policy: FsyncPolicy, durability: Option<Durability>) -> [(u64, u64); 2] {
    const RECORDS: u64 = 5;
    let (mut kill, mut cut) = ((u64::MAX, 0), (u64::MAX, 0));
    let disk = SimStorage::new();
    let log = open_with(&disk, policy);
    log.sync().unwrap();
    for _ in 0..RECORDS {
        match durability {
            Some(level) => log.append_with([1; 100], level).unwrap(),
            None => log.append([1; 100]).unwrap(),
        };
    }
    let killed = disk.fork();
    let count = |disk: SimStorage, range: &mut (u64, u64)| {
        let end = open(&disk).end();
        *range = (range.0.min(end), range.1.max(end));
    };
    disk.for_each_crash_image(300, 9, |image| count(image, &mut cut));
    count(killed, &mut kill);
    [kill, cut]
}

#[test]
fn l12_each_policy_loses_no_more_than_it_says() {
    let hour = Duration::from_secs(3600);
    let group = FsyncPolicy::Group {
        max_delay: Duration::from_micros(100),
    };
    for policy in [FsyncPolicy::Always, group] {
        assert_eq!(survivors(policy, None), [(5, 5), (5, 5)], "{policy:?}");
        // Asked for less, it may lose more.
        assert_eq!(
            survivors(policy, Some(Durability::Written)),
            [(5, 5), (0, 5)],
            "{policy:?} written"
        );
    }
    for policy in [FsyncPolicy::Interval(hour), FsyncPolicy::Os] {
        assert_eq!(survivors(policy, None), [(5, 5), (0, 5)], "{policy:?}");
        assert_eq!(
            survivors(policy, Some(Durability::Durable)),
            [(5, 5), (5, 5)],
            "{policy:?} durable"
        );
    }
}

#[test]
fn l12_buffered_records_are_written_within_moments() {
    let disk = SimStorage::new();
    let log = open_with(&disk, FsyncPolicy::Os);
    let offset = log.append_with(b"in memory", Durability::Buffered).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while log.written_end() <= offset {
        assert!(Instant::now() < deadline, "never written");
        std::thread::yield_now();
    }
}

#[test]
fn l12_interval_syncs_when_traffic_stops_and_its_failure_reaches_the_caller() {
    let disk = SimStorage::new();
    let log = open_with(&disk, FsyncPolicy::Interval(Duration::from_millis(5)));
    let offset = log.append(b"a").unwrap();
    assert!(log.wait_durable(offset + 1, Duration::from_secs(30)).unwrap());
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: true }).on_file(".wal"));
    log.append(b"b").unwrap();
    assert!(matches!(
        log.wait_durable(offset + 2, Duration::from_secs(30)),
        Err(Error::Poisoned { .. })
    ));
    assert!(matches!(log.append(b"c"), Err(Error::Poisoned { .. })));
    assert!(matches!(log.close(), Err(Error::Poisoned { .. })));
}

#[test]
fn l12_options_may_change_between_runs() {
    let disk = SimStorage::new();
    let mut end = 0;
    for (n, bytes) in [1024, 1 << 20, 4096, 2048].into_iter().enumerate() {
        let policy = if n % 2 == 0 {
            FsyncPolicy::Always
        } else {
            FsyncPolicy::Os
        };
        let log = options()
            .segment_bytes(bytes)
            .policy(policy)
            .open_storage(Arc::new(disk.clone()))
            .unwrap();
        for _ in 0..50 {
            assert_eq!(log.append([n as u8; 100]).unwrap(), end);
            end += 1;
        }
        log.close().unwrap();
    }
    assert_eq!(super::read_all(&open(&disk), 0).unwrap().len() as u64, end);
}
