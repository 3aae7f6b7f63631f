//! What goes wrong while the log runs: nothing is acknowledged that does not hold, and nobody is left waiting.

use std::io::ErrorKind;
use std::sync::Arc;

use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Durability, Error};

use super::{open, options, read_all, try_open};

#[test]
fn l6_a_failed_sync_stops_the_log_and_is_never_tried_again() {
    for drop_dirty in [false, true] {
        let disk = SimStorage::new();
        let log = open(&disk);
        log.append(b"safe").unwrap();
        disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty }).on_file(".wal"));
        let error = log.append(b"lost?").unwrap_err();
        assert!(
            matches!(&error, Error::Poisoned { cause } if matches!(**cause, Error::Io { op: "sync", .. })),
            "{error}"
        );
        assert_eq!(log.durable_end(), 1);
        let syncs = disk.mutations();
        for _ in 0..3 {
            assert!(matches!(log.append(b"more"), Err(Error::Poisoned { .. })));
            assert!(matches!(log.sync(), Err(Error::Poisoned { .. })));
        }
        assert_eq!(disk.mutations(), syncs, "the disk was touched again");
        assert_eq!(log.read(0).unwrap(), b"safe");
        log.reopen().unwrap();
        let end = log.end();
        assert!((1..=2).contains(&end));
        log.append(b"after").unwrap();
        disk.power_cut(7);
        drop(log);
        let log = open(&disk);
        assert_eq!(log.read(0).unwrap(), b"safe");
        assert_eq!(log.read(end).unwrap(), b"after");
        assert_eq!(log.end(), end + 1);
    }
}

#[test]
fn l6_every_waiter_is_told_and_none_hangs() {
    let disk = SimStorage::new();
    let log = open(&disk);
    log.append(b"first").unwrap();
    disk.inject(
        Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: false })
            .on_file(".wal")
            .nth(3),
    );
    let acknowledged: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8u8)
            .map(|n| {
                let log = log.clone();
                scope.spawn(move || {
                    let mut acknowledged = Vec::new();
                    for _ in 0..10_000 {
                        match log.append([n; 20]) {
                            Ok(offset) => acknowledged.push(offset),
                            Err(Error::Poisoned { .. }) => return acknowledged,
                            Err(e) => panic!("{e}"),
                        }
                    }
                    panic!("a failed sync was passed over")
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let durable = log.durable_end();
    assert!(acknowledged.iter().all(|offset| *offset < durable));
    disk.power_cut(3);
    drop(log);
    let log = open(&disk);
    assert!(log.end() >= durable);
}

#[test]
fn l6_a_failure_at_any_operation_keeps_every_acknowledgement() {
    let kinds = [
        (OpKind::Write, FaultKind::Error(ErrorKind::Other)),
        (OpKind::Write, FaultKind::NoSpace),
        (OpKind::Write, FaultKind::Short(7)),
        (OpKind::Write, FaultKind::Interrupted),
        (OpKind::SyncData, FaultKind::SyncFails { drop_dirty: true }),
        (OpKind::SyncDir, FaultKind::Error(ErrorKind::Other)),
        (OpKind::Rename, FaultKind::Error(ErrorKind::Other)),
        (OpKind::Create, FaultKind::NoSpace),
        (OpKind::Remove, FaultKind::Error(ErrorKind::PermissionDenied)),
        (OpKind::SetLen, FaultKind::Error(ErrorKind::Other)),
        (OpKind::Read, FaultKind::Error(ErrorKind::Other)),
        (OpKind::Open, FaultKind::Error(ErrorKind::Other)),
    ];
    for (op, fault) in kinds {
        for nth in 1.. {
            let disk = SimStorage::new();
            disk.inject(Fault::new(op, fault).nth(nth));
            let mut acknowledged = Vec::new();
            if let Ok(log) = try_open(&disk) {
                for n in 0..40u8 {
                    let record = vec![n; 300];
                    match log.append(&record) {
                        Ok(offset) => {
                            assert_eq!(offset, acknowledged.len() as u64, "{op:?} {fault:?} {nth}");
                            acknowledged.push(record);
                        }
                        Err(Error::Poisoned { .. }) => {
                            // Recovers in place, or says why not.
                            if log.reopen().is_err() {
                                break;
                            }
                            // The one that failed may be there.
                            if log.end() > acknowledged.len() as u64 {
                                acknowledged.push(record);
                            }
                        }
                        Err(Error::NoSpace { .. } | Error::Io { .. }) => {
                            assert_eq!(log.end(), acknowledged.len() as u64)
                        }
                        Err(e) => panic!("{op:?} {fault:?} {nth}: {e}"),
                    }
                    if n == 25 {
                        let _ = log.remove_before(5);
                    }
                }
                disk.power_cut(nth);
            }
            let hit = disk.faults_hit();
            disk.clear_faults();
            let log = open(&disk);
            assert!(
                log.end() >= acknowledged.len() as u64,
                "{op:?} {fault:?} {nth}: {} of {}",
                log.end(),
                acknowledged.len()
            );
            let start = log.start();
            assert!(
                read_all(&log, start).unwrap()[..] == acknowledged[start as usize..log.end() as usize],
                "{op:?} {fault:?} {nth}"
            );
            drop(log);
            if hit == 0 {
                assert!(nth > 1, "{op:?} never happens");
                break;
            }
        }
    }
}

#[test]
fn l6_a_full_disk_is_told_before_anything_is_acknowledged_and_nothing_is_lost() {
    let disk = SimStorage::new();
    let log = options()
        .segment_bytes(64 << 10)
        .open_storage(Arc::new(disk.clone()))
        .unwrap();
    let mut records = Vec::new();
    disk.set_capacity(Some(200_000));
    let error = loop {
        let record = vec![records.len() as u8; 1000];
        match log.append(&record) {
            Ok(offset) => {
                assert_eq!(offset, records.len() as u64);
                records.push(record);
            }
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(log.failure().is_none(), "a full disk stops nothing");
    assert!(records.len() > 100);
    assert!(read_all(&log, 0).unwrap() == records);
    // With no byte free: reading, retention, closing and opening.
    disk.set_capacity(Some(0));
    log.close().unwrap();
    let log = options()
        .segment_bytes(64 << 10)
        .open_storage(Arc::new(disk.clone()))
        .unwrap();
    assert!(read_all(&log, 0).unwrap() == records);
    let removed = log.remove_before(70).unwrap();
    assert!(removed.segments_removed > 0);
    disk.process_kill();
    drop(log);
    let log = options()
        .segment_bytes(64 << 10)
        .open_storage(Arc::new(disk.clone()))
        .unwrap();
    assert_eq!(log.end(), records.len() as u64);
    assert!(matches!(log.append([9; 1000]), Err(Error::NoSpace { .. })));
    disk.set_capacity(None);
    assert_eq!(log.append(b"there is space again").unwrap(), records.len() as u64);
    let start = log.start();
    assert!(read_all(&log, start).unwrap()[..records.len() - start as usize] == records[start as usize..]);
}

#[test]
fn l2_a_waiter_is_acknowledged_only_by_a_sync_that_began_after_its_bytes_were_written() {
    use std::sync::mpsc::channel;
    let disk = SimStorage::new();
    let log = open(&disk);
    log.append(b"make the segment").unwrap();
    let (entered, at_sync) = channel();
    let (release, go) = channel::<()>();
    let go = std::sync::Mutex::new(go);
    disk.on_op(move |op| {
        if op.kind == OpKind::SyncData && op.file.contains(".wal") {
            let _ = entered.send(());
            let _ = go.lock().unwrap().recv();
        }
    });
    let first = std::thread::spawn({
        let log = log.clone();
        move || log.append(b"first").unwrap()
    });
    at_sync
        .recv_timeout(std::time::Duration::from_secs(20))
        .expect("no sync came");
    // The first sync is under way. What is written now is not its business.
    let ticket = log.sequence(b"second", Durability::Durable).unwrap();
    ticket.wait_for(Durability::Written).unwrap();
    release.send(()).unwrap();
    assert_eq!(first.join().unwrap(), 1);
    assert!(
        !ticket.is_durable(),
        "acknowledged by a sync that began before it was written"
    );
    release.send(()).unwrap();
    ticket.wait_for(Durability::Durable).unwrap();
    assert!(ticket.is_durable());
    drop(release);
}

#[test]
fn l6_a_panic_in_the_storage_leaves_nobody_waiting() {
    let disk = SimStorage::new();
    let log = open(&disk);
    log.append(b"safe").unwrap();
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::Panic).on_file(".wal"));
    let panicked = std::thread::spawn({
        let log = log.clone();
        move || log.append(b"x")
    });
    assert!(panicked.join().is_err());
    assert!(matches!(log.append(b"y"), Err(Error::Poisoned { .. })));
    log.reopen().unwrap();
    log.append(b"z").unwrap();
    assert_eq!(log.read(0).unwrap(), b"safe");
}

#[test]
fn l2_threads_share_their_syncs() {
    const THREADS: u64 = 16;
    const EACH: u64 = 100;
    // On a disk whose syncs take a while: on one where they cost nothing there is nothing to share.
    let disk = SimStorage::new();
    disk.set_sync_delay(std::time::Duration::from_millis(1));
    let log = wal::Options::new().open_storage(Arc::new(disk)).unwrap();
    std::thread::scope(|scope| {
        for n in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for _ in 0..EACH {
                    log.append([n as u8; 128]).unwrap();
                }
            });
        }
    });
    let stats = log.stats();
    assert_eq!(stats.appends, THREADS * EACH);
    assert_eq!(stats.durable_end, THREADS * EACH);
    assert!(
        stats.syncs * 4 < stats.appends,
        "{} syncs for {} appends",
        stats.syncs,
        stats.appends
    );
}

#[test]
fn l6_no_segment_goes_on_the_word_of_a_meta_file_that_may_not_be_durable() {
    let disk = SimStorage::new();
    let log = open(&disk);
    for n in 0..3u8 {
        log.append([n; 3000]).unwrap();
    }
    // The new start is written, but not durable; memory shows it to whoever opens next, who finds left-overs below it.
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: false }).on_file("log.meta"));
    log.remove_before(2).unwrap_err();
    assert_eq!(disk.faults_hit(), 1);
    log.reopen().unwrap();
    assert!(log.start() > 0);
    disk.for_each_crash_image(1000, 1, |image| {
        assert_eq!(open(&image).end(), 3);
    });
}

#[test]
fn l2_a_new_log_s_directory_is_durable_whoever_made_it() {
    // Made by one who failed to make it durable.
    let disk = SimStorage::missing();
    disk.inject(Fault::new(
        OpKind::CreateRoot,
        FaultKind::SyncFails { drop_dirty: false },
    ));
    try_open(&disk).unwrap_err();
    let log = open(&disk);
    log.append(b"there").unwrap();
    disk.for_each_crash_image(1000, 1, |image| {
        assert_eq!(open(&image).read(0).unwrap(), b"there");
    });
}

#[test]
fn l6_a_sync_that_finds_no_space_has_lost_what_it_was_to_write() {
    let two_records = || {
        let disk = SimStorage::new();
        let log = open(&disk);
        log.append(b"safe").unwrap();
        (disk, log)
    };
    let full = || Fault::new(OpKind::SyncData, FaultKind::SyncFindsNoSpace).on_file(".wal");
    // Of an append: it may be there or not, which is more than "nothing was written".
    let (disk, log) = two_records();
    disk.inject(full());
    let error = log.append(b"lost?").unwrap_err();
    assert!(
        matches!(&error, Error::Poisoned { cause } if matches!(**cause, Error::Io { op: "sync", .. })),
        "{error}"
    );
    log.reopen().unwrap();
    log.append(b"after").unwrap();

    // Of the bytes that recovery found readable and writes again: they are gone, so nothing may follow them.
    let (disk, log) = two_records();
    log.append_with(b"readable", Durability::Written).unwrap();
    disk.process_kill();
    drop(log);
    disk.inject(full());
    if let Ok(log) = try_open(&disk) {
        let _ = log.append(b"behind a hole");
        assert!(
            log.durable_end() <= 1 || log.read(1).is_ok(),
            "a lost record is called durable"
        );
        disk.process_kill();
    }
    let log = open(&disk);
    assert_eq!(log.read(0).unwrap(), b"safe");
    log.append(b"after").unwrap();
}
