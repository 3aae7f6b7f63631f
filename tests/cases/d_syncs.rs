//! D: syncs, their order, and acknowledgements.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Durability, Error};

use super::*;

/// All that a power cut now may leave, or the extremes and a sample of it.
fn each_cut(disk: &SimStorage, check: impl FnMut(SimStorage)) {
    disk.for_each_crash_image(400, 7, check);
}

#[test]
fn d01_a_failed_sync_is_never_passed_over() {
    for fault in [
        FaultKind::SyncFails { drop_dirty: true },
        FaultKind::SyncFails { drop_dirty: false },
        FaultKind::SyncFindsNoSpace,
    ] {
        let disk = SimStorage::new();
        let log = try_open_manual(&disk).unwrap();
        let mut told = Vec::new();
        for n in 0..5u64 {
            if n == 2 {
                disk.inject(Fault::new(OpKind::SyncData, fault).on_file(".wal"));
            }
            let appended = log.append(mark(n, 100));
            told.push(appended.and_then(|_| log.sync()).is_ok());
        }
        assert_eq!(told, [true, true, false, false, false], "{fault:?}");
        assert_eq!(log.durable_end(), 2);
        assert!(read_all(&log) == marks(0..2, 100));
        assert!(log.close().is_err());
        disk.power_cut(1);
        let end = open(&disk).end();
        assert!((2..=3).contains(&end), "{fault:?}: {end}");
        goes_on(&disk, marks(0..end, 100));
    }
    // The same of the directory, of a consumer's file, and of a checkpoint.
    let disk = SimStorage::new();
    let log = open(&disk);
    disk.inject(Fault::new(OpKind::SyncDir, FaultKind::Error(ErrorKind::Other)));
    assert!(log.append("a").is_err() && log.append("b").is_err() && log.sync().is_err());
    kill(&disk, log);
    goes_on(&disk, Vec::new());

    let disk = SimStorage::new();
    let log = filled(&disk, &marks(0..4, 100));
    let mut consumer = log.consumer("reader").open().unwrap();
    consumer.next().unwrap();
    consumer.commit().unwrap();
    consumer.next().unwrap();
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: true }).on_file(".offset"));
    assert!(consumer.commit().is_err());
    assert!(matches!(consumer.commit(), Err(Error::Poisoned { .. })));
    assert_eq!(consumer.committed(), 1);
    each_cut(&disk, |image| {
        let log = open(&image);
        assert!((1..=2).contains(&log.consumer("reader").open().unwrap().committed()));
    });

    let disk = SimStorage::new();
    let store = open_store(&disk);
    store.put("k", "v").unwrap();
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFindsNoSpace).on_file("checkpoint"));
    assert!(store.checkpoint().is_err());
    each_cut(&disk, |image| {
        assert_eq!(&open_store(&image).get("k").unwrap().unwrap()[..], b"v")
    });
    store.checkpoint().unwrap();
    each_cut(&disk, |image| {
        assert_eq!(&open_store(&image).get("k").unwrap().unwrap()[..], b"v")
    });
}

#[test]
fn d02_what_fails_in_the_background_is_told() {
    let interval = || options().policy(FsyncPolicy::Interval(Duration::from_millis(2)));
    for fault in [FaultKind::SyncFails { drop_dirty: true }, FaultKind::Panic] {
        let disk = SimStorage::new();
        let log = interval().open_storage(shared(&disk)).unwrap();
        log.append("a").unwrap();
        log.sync().unwrap();
        disk.inject(Fault::new(OpKind::SyncData, fault).on_file(".wal"));
        log.append("b").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while log.failure().is_none() {
            assert!(Instant::now() < deadline, "{fault:?}: nobody is told");
            std::thread::yield_now();
        }
        assert!(matches!(log.append("c"), Err(Error::Poisoned { .. })));
        assert!(matches!(log.sync(), Err(Error::Poisoned { .. })));
        assert_eq!(log.durable_end(), 1);
        assert!(log.close().is_err());
    }
}

#[test]
fn d05_a_new_file_has_a_durable_name_before_anything_in_it_is_acknowledged() {
    // From the directory itself on: none of it is there yet.
    let disk = SimStorage::missing();
    let log = open(&disk);
    let mut expected = Vec::new();
    for n in 0..10 {
        expected.push(mark(n, 1500));
        log.append(expected.last().unwrap()).unwrap();
        each_cut(&disk, |image| assert!(read_all(&open(&image)) == expected));
    }
    assert!(segments(&disk).len() > 2);
    let mut consumer = log.consumer("reader").open().unwrap();
    consumer.next().unwrap();
    consumer.commit().unwrap();
    each_cut(&disk, |image| {
        assert_eq!(open(&image).consumer("reader").open_existing().unwrap().committed(), 1);
    });
    drop((consumer, log));
    let disk = SimStorage::missing();
    let store = open_store(&disk);
    store.put("k", "v").unwrap();
    store.checkpoint().unwrap();
    each_cut(&disk, |image| {
        let store = open_store(&image);
        assert_eq!((store.report().checkpoint, store.len()), (Some(1), 1));
    });
}

#[test]
fn d06_the_old_is_there_until_the_new_is_durable() {
    let make = || kv::Options::new().log(options()).checkpoint_bytes(0);
    let disk = SimStorage::new();
    let store = make().open_storage(shared(&disk)).unwrap();
    let mut feed = store.consumer("feed").open().unwrap();
    for n in 0..30u64 {
        store.put((n % 7).to_le_bytes(), mark(n, 500)).unwrap();
    }
    store.checkpoint().unwrap();
    store.put("last", "last").unwrap();
    while feed.next().unwrap().is_some() {}
    drop(feed);
    kill(&disk, store);
    // A checkpoint, a commit, and the removal of what they no longer need, cut off anywhere.
    let work = |disk: &SimStorage| -> kv::Result<()> {
        let store = make().open_storage(shared(disk))?;
        store.checkpoint()?;
        let mut feed = store.consumer("feed").open()?;
        feed.poll(100)?;
        feed.commit()?;
        store.put("again", "again")?;
        store.checkpoint()?;
        Ok(())
    };
    let whole = disk.fork();
    work(&whole).unwrap();
    assert!(segments(&whole).len() < segments(&disk).len(), "nothing was removed");
    for step in 0..whole.mutations() {
        let disk = disk.fork();
        disk.crash_at(step);
        let _ = work(&disk);
        disk.for_each_crash_image(100, step, |image| {
            let store = make()
                .open_storage(shared(&image))
                .unwrap_or_else(|e| panic!("{step}: {e}"));
            assert!(store.len() >= 8, "{step}");
            assert_eq!(&store.get("last").unwrap().unwrap()[..], b"last", "{step}");
            let committed = store.consumer("feed").open_existing().unwrap().committed();
            assert!(committed == 0 || committed == 31, "{step}: {committed}");
        });
    }
}

#[test]
fn d07_small_files_that_lost_their_content() {
    let disk = SimStorage::new();
    let store = open_store(&disk);
    let mut feed = store.consumer("feed").open().unwrap();
    for n in 0..20u64 {
        store.put(n.to_le_bytes(), mark(n, 300)).unwrap();
    }
    feed.poll(10).unwrap();
    feed.commit().unwrap();
    drop(feed);
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    for file in disk.file_names().iter().filter(|name| !name.ends_with(".wal")) {
        let len = disk.read_file(file).unwrap().len();
        for kept in [0, 1, len / 2, usize::MAX] {
            let disk = disk.fork();
            if kept == usize::MAX {
                disk.write_file(file, &vec![0; len]);
            } else {
                disk.truncate_file(file, kept);
            }
            let Ok(store) = try_open_store(&disk) else {
                assert_eq!(file, "log.meta", "a lost {file} is no reason to stop");
                continue;
            };
            assert_eq!(store.len(), 20, "{file} of {kept}");
            match store.consumer("feed").open() {
                Ok(feed) => assert_eq!(feed.committed(), 10, "{file} of {kept}"),
                Err(e) => assert!(matches!(e, Error::ConsumerDamaged { .. }), "{file} of {kept}: {e}"),
            }
        }
    }
}

#[test]
fn d08_a_sync_covers_all_segments() {
    let disk = SimStorage::new();
    let log = try_open_manual(&disk).unwrap();
    let records = marks(0..12, 1000);
    for record in &records {
        log.append(record).unwrap();
    }
    assert!(segments(&disk).len() >= 4);
    // Without a sync: any prefix, and only a prefix.
    each_cut(&disk, |image| assert!(records.starts_with(&judged(&image).unwrap())));
    log.sync().unwrap();
    each_cut(&disk, |image| assert!(judged(&image).unwrap() == records));
    // The old segment cannot be synced while the next one is begun.
    let first = segments(&disk).pop().unwrap();
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: true }).on_file(&first));
    let failed = (0..8).map(|n| log.append(mark(n, 1000))).find_map(Result::err);
    assert!(matches!(failed, Some(Error::Poisoned { .. })), "{failed:?}");
    assert_eq!(log.durable_end(), 12);
}

#[test]
fn d11_what_is_read_is_durable() {
    let disk = SimStorage::new();
    let log = try_open_manual(&disk).unwrap();
    for record in marks(0..5, 100) {
        log.append(record).unwrap();
    }
    log.sync().unwrap();
    for record in marks(5..10, 100) {
        log.append(record).unwrap();
    }
    let mut consumer = log.consumer("reader").open().unwrap();
    let seen = consumer.poll(100).unwrap();
    assert_eq!(seen.len(), 5);
    consumer.commit().unwrap();
    assert!(consumer.commit_to(6).is_err());
    let mut tail = log.tail(5).unwrap();
    assert!(tail.next_timeout(Duration::from_millis(1)).unwrap().is_none());
    each_cut(&disk, |image| {
        let log = open(&image);
        log.append("another").unwrap();
        for (offset, bytes) in &seen {
            assert!(
                log.read(*offset).unwrap() == *bytes,
                "a record that was read is another now"
            );
        }
        assert_eq!(log.consumer("reader").open().unwrap().committed(), 5);
    });
}

#[test]
fn d13_the_default_is_the_strong_one() {
    assert_eq!(FsyncPolicy::default(), FsyncPolicy::Always);
    assert_eq!(FsyncPolicy::default().durability(), Durability::Durable);
    let disk = SimStorage::new();
    let log = Options::new().open_storage(shared(&disk)).unwrap();
    assert_eq!(log.policy(), FsyncPolicy::Always);
    log.append("safe").unwrap();
    each_cut(&disk, |image| assert_eq!(open(&image).read(0).unwrap(), b"safe"));
    let disk = SimStorage::new();
    let store = kv::Options::new().open_storage(shared(&disk)).unwrap();
    store.put("safe", "safe").unwrap();
    each_cut(&disk, |image| {
        assert!(open_store(&image).get("safe").unwrap().is_some())
    });
}

#[test]
fn d14_a_sync_covers_the_length_it_needs() {
    // Appends that make the file longer, each synced with `sync_data` alone: the length is durable with them.
    let disk = SimStorage::new();
    let log = options().segment_bytes(1 << 20).open_storage(shared(&disk)).unwrap();
    let mut expected = Vec::new();
    for n in 0..6 {
        expected.push(mark(n, 60_000));
        log.append(expected.last().unwrap()).unwrap();
        each_cut(&disk, |image| assert!(read_all(&open(&image)) == expected));
    }
}

#[test]
fn d15_closing_tells_and_dropping_loses_nothing() {
    // Forgotten: as if the process had been aborted.
    let disk = SimStorage::new();
    let log = open(&disk);
    log.append("a").unwrap();
    std::mem::forget(log);
    disk.process_kill();
    assert_eq!(read_all(&open(&disk)), [b"a"]);
    // Dropped without a close: closed in order, and the next open says so.
    for policy in [FsyncPolicy::Os, FsyncPolicy::Interval(Duration::from_secs(3600))] {
        let disk = SimStorage::new();
        let log = options().policy(policy).open_storage(shared(&disk)).unwrap();
        log.append_with("a", Durability::Buffered).unwrap();
        drop(log);
        each_cut(&disk, |image| assert_eq!(read_all(&open(&image)), [b"a"]));
        assert!(open(&disk).report().was_closed);
        // Something fails at the end.
        for op in [OpKind::Write, OpKind::SyncData] {
            for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
                let disk = SimStorage::new();
                let log = options().policy(policy).open_storage(shared(&disk)).unwrap();
                log.append("a").unwrap();
                disk.inject(Fault::new(op, FaultKind::Error(kind)).on_file(".wal").forever());
                assert!(log.close().is_err(), "{op:?} {kind:?}");
                drop(log);
                disk.clear_faults();
                let log = open(&disk);
                assert!(!log.report().was_closed);
                assert_eq!(log.end(), 1);
            }
        }
    }
    // Dropped while a panic unwinds, on a disk that fails.
    let disk = SimStorage::new();
    let dropped = AtomicBool::new(false);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let log = try_open_manual(&disk).unwrap();
        log.append("a").unwrap();
        disk.inject(Fault::new(OpKind::SyncData, FaultKind::Error(ErrorKind::Other)).forever());
        dropped.store(true, Ordering::SeqCst);
        std::panic::resume_unwind(Box::new("the application's own"));
    }));
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(
        *unwound.unwrap_err().downcast_ref::<&str>().unwrap(),
        "the application's own"
    );
}
