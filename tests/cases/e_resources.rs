//! E: full disks, short writes, interrupted calls.

use std::io::ErrorKind;

use wal::Error;
use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};

use super::*;

#[test]
fn e01_nothing_is_reached_only_through_what_was_left_half_written() {
    for error in [
        ErrorKind::StorageFull,
        ErrorKind::QuotaExceeded,
        ErrorKind::Other,
        ErrorKind::WouldBlock,
        ErrorKind::WriteZero,
    ] {
        for written in (0..=40).chain([90, 130, 135, 136]) {
            let disk = SimStorage::new();
            let log = open(&disk);
            log.append(mark(0, 100)).unwrap();
            // The call is cut short, and the one for the rest fails.
            if written > 0 {
                disk.inject(Fault::new(OpKind::Write, FaultKind::Short(written)).on_file(".wal"));
            }
            disk.inject(Fault::new(OpKind::Write, FaultKind::Error(error)).on_file(".wal"));
            let failed = log.append(mark(1, 100));
            assert_eq!(failed.is_err(), written < 136, "{error:?} after {written}");
            disk.clear_faults();
            if failed.is_err() {
                assert!(matches!(log.append(mark(2, 100)), Err(Error::Poisoned { .. })));
                log.reopen().unwrap();
            }
            let end = log.end();
            assert!((1..=2).contains(&end));
            log.append(mark(3, 100)).unwrap();
            log.append(mark(4, 100)).unwrap();
            disk.power_cut(written as u64);
            drop(log);
            let read = judged(&disk).unwrap();
            assert!(read[0] == mark(0, 100) && read[end as usize..] == marks(3..5, 100));
            assert!(end == 1 || read[1] == mark(1, 100));
        }
    }
    // A disk that fills up, wherever that is, and is given space again.
    for free in (0..20_000).step_by(523) {
        let disk = SimStorage::new();
        let log = filled(&disk, &marks(0..3, 100));
        let used: usize = disk.file_names().iter().map(|n| disk.read_file(n).unwrap().len()).sum();
        disk.set_capacity(Some((used + free) as u64));
        let mut expected = marks(0..3, 100);
        let error = loop {
            let record = mark(expected.len() as u64, 900);
            match log.append(&record) {
                Ok(_) => expected.push(record),
                Err(e) => break e,
            }
        };
        assert!(matches!(error, Error::NoSpace { .. }), "{free}: {error}");
        assert!(read_all(&log) == expected);
        disk.set_capacity(None);
        expected.push(mark(100, 900));
        log.append(mark(100, 900)).unwrap();
        disk.power_cut(free as u64);
        drop(log);
        assert!(judged(&disk).unwrap() == expected);
    }
}

#[test]
fn e02_short_and_interrupted_writes() {
    let live = |disk: &SimStorage| {
        let log = open(disk);
        for n in 0..30u64 {
            log.append_batch(&marks(10 * n..10 * n + 7, 100)).unwrap();
        }
        log.close().unwrap();
        read_all(&open(disk))
    };
    let quiet = live(&SimStorage::new());
    for most in [1, 3, 100] {
        let disk = SimStorage::new();
        disk.inject(Fault::new(OpKind::Write, FaultKind::Short(most)).forever());
        assert!(live(&disk) == quiet, "{most} bytes at a time");
    }
    let disk = SimStorage::new();
    for op in [OpKind::Write, OpKind::Read] {
        let every_third = move |op: &wal::storage::sim::Op, _: Option<&_>| op.index.is_multiple_of(3);
        disk.inject(Fault::new(op, FaultKind::Interrupted).only_if(every_third).forever());
        disk.inject(Fault::new(op, FaultKind::Short(50)).forever());
    }
    assert!(live(&disk) == quiet, "interrupted");
}

#[test]
fn e04_a_full_disk_can_be_opened_read_and_made_room_on() {
    let disk = SimStorage::new();
    let mut expected = marks(0..40, 500);
    let log = filled(&disk, &expected);
    log.append_with(mark(40, 3000), wal::Durability::Written).unwrap();
    kill(&disk, log);
    let (file, at) = find(&disk, &mark(40, 3000));
    zero(&disk, &file, at.start + 1000..at.end);
    let used: usize = disk.file_names().iter().map(|n| disk.read_file(n).unwrap().len()).sum();
    disk.set_capacity(Some(used as u64));
    assert!(judged(&disk).unwrap() == expected);
    assert!(verify(&disk).is_clean());
    let log = open(&disk);
    assert!(matches!(log.append(mark(41, 3000)), Err(Error::NoSpace { .. })));
    assert!(read_all(&log) == expected);
    // No byte is free, and retention gives some back.
    assert!(log.remove_before(20).unwrap().bytes_removed > 0);
    expected.drain(..log.start() as usize);
    expected.push(mark(41, 3000));
    log.append(mark(41, 3000)).unwrap();
    kill(&disk, log);
    assert!(judged(&disk).unwrap() == expected);
}

#[test]
fn e06_a_segment_that_cannot_be_begun() {
    let ops = [
        OpKind::Create,
        OpKind::Write,
        OpKind::SyncData,
        OpKind::Rename,
        OpKind::SyncDir,
        OpKind::SetLen,
        OpKind::Remove,
    ];
    for op in ops {
        for error in [ErrorKind::StorageFull, ErrorKind::Other, ErrorKind::PermissionDenied] {
            for nth in 1..=3 {
                let disk = SimStorage::new();
                let log = open(&disk);
                let mut acknowledged = Vec::new();
                for n in 0..10u64 {
                    if n == 2 {
                        disk.inject(Fault::new(op, FaultKind::Error(error)).nth(nth));
                    }
                    match log.append(mark(n, 1500)) {
                        Ok(offset) => acknowledged.push((offset, mark(n, 1500))),
                        Err(Error::Poisoned { .. }) => log.reopen().unwrap(),
                        Err(Error::NoSpace { .. } | Error::Io { .. }) => {}
                        Err(e) => panic!("{op:?} {error:?}: {e}"),
                    }
                }
                assert!(
                    acknowledged.len() >= 8,
                    "{op:?} {error:?} {nth}: {}",
                    acknowledged.len()
                );
                disk.power_cut(nth);
                drop(log);
                let read = judged(&disk).unwrap();
                assert!(
                    acknowledged
                        .iter()
                        .all(|(offset, bytes)| read[*offset as usize] == *bytes)
                );
            }
        }
    }
    // The very first open, cut off or failing anywhere: the second one has a log.
    let whole = SimStorage::missing();
    open(&whole).append("a").unwrap();
    for step in 0..whole.mutations() {
        let disk = SimStorage::missing();
        disk.crash_at(step);
        let _ = try_open(&disk).and_then(|log| log.append("a"));
        disk.for_each_crash_image(100, step, |image| {
            open(&image).append("b").unwrap();
        });
    }
}

#[test]
fn e08_a_file_that_is_cut_under_a_reader_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    for victim in [0, 1] {
        let _ = std::fs::remove_dir_all(&path);
        let log = options().open(&path).unwrap();
        for record in marks(0..12, 500) {
            log.append(record).unwrap();
        }
        let mut names: Vec<_> = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()).collect();
        names.retain(|name| name.extension().is_some_and(|e| e == "wal"));
        names.sort();
        assert_eq!(names.len(), 2);
        let mut reader = log.reader([0, 8][victim]).unwrap();
        reader.next().unwrap();
        std::fs::File::options()
            .write(true)
            .open(&names[victim])
            .unwrap()
            .set_len(4096)
            .unwrap();
        // What it had read ahead it may still hand out, to the last record.
        match try_read(reader) {
            Ok(rest) => assert!(
                rest == marks([1, 9][victim]..12, 500),
                "records are gone without a word"
            ),
            Err(e) => assert!(e.is_corruption(), "{e}"),
        }
        let error = try_read(log.reader([0, 8][victim]).unwrap()).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        log.abandon();
    }
}

#[test]
fn e09_space_is_taken_by_writing_and_given_back_where_that_is_possible() {
    // There is no call to reserve that a file system may not have. Giving back is one, and nothing depends on it.
    let records = marks(0..40, 500);
    let bytes = |refused: bool| {
        let disk = SimStorage::new();
        if refused {
            disk.inject(Fault::new(OpKind::SetLen, FaultKind::Error(ErrorKind::Unsupported)).forever());
        }
        for half in records.chunks(20) {
            filled(&disk, half).close().unwrap();
        }
        assert!(judged(&disk).unwrap() == records);
        segments(&disk)
            .iter()
            .map(|name| disk.read_file(name).unwrap().len())
            .sum::<usize>()
    };
    let payload = 40 * 500;
    assert!(bytes(false) < 3 * payload, "{}", bytes(false));
    assert!(bytes(true) < 4 * payload, "{}", bytes(true));
}

#[test]
fn e10_no_clean_end_after_a_failure_and_no_belief_in_one_that_lies() {
    for nth in 1..4 {
        let disk = SimStorage::new();
        let log = open(&disk);
        log.append(mark(0, 100)).unwrap();
        disk.inject(
            Fault::new(OpKind::Write, FaultKind::Error(ErrorKind::Other))
                .on_file(".wal")
                .nth(nth),
        );
        let failed = (1..6).map(|n| log.append(mark(n, 2000))).find_map(Result::err);
        assert!(failed.is_some());
        let durable = log.durable_end();
        assert!(log.close().is_err());
        drop(log);
        let log = open(&disk);
        assert!(!log.report().was_closed);
        assert!(log.end() >= durable);
        kill(&disk, log);
    }
    // The end says clean; what is before it does not.
    let records = marks(0..6, 100);
    let disk = SimStorage::new();
    filled(&disk, &records).close().unwrap();
    for (n, record) in records.iter().enumerate() {
        let disk = disk.fork();
        let (file, at) = find(&disk, record);
        zero(&disk, &file, at.start - 32..at.end);
        assert!(matches!(judged(&disk), Err(Error::Corrupt(c)) if c.offset == n as u64));
    }
}
