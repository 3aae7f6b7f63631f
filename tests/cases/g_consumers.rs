//! G: consumers, offsets, tailing.

use std::sync::atomic::{AtomicBool, Ordering};

use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Error, Reset, Retention, Start};

use super::*;

/// A consumer that has committed `committed`.
fn commit(log: &Wal, name: &str, committed: u64) {
    let mut consumer = log.consumer(name).open().unwrap_or_else(|e| panic!("{e}"));
    consumer.seek(committed).unwrap_or_else(|e| panic!("{e}"));
}

fn consumer_file(disk: &SimStorage) -> String {
    disk.file_names()
        .into_iter()
        .find(|name| name.ends_with(".offset"))
        .expect("there is one")
}

#[test]
fn g01_a_consumer_ahead_of_the_log() {
    let records = marks(0..100, 50);
    let disk = SimStorage::new();
    let log = filled(&disk, &records);
    commit(&log, "reader", 100);
    log.close().unwrap();
    drop(log);
    let (file, at) = find(&disk, &records[50]);
    disk.truncate_file(&file, at.start - 32);
    segments(&disk)
        .iter()
        .filter(|name| **name > file)
        .for_each(|name| assert!(disk.remove_file(name)));
    let error = judged(&disk).unwrap_err();
    assert!(matches!(&error, Error::Corrupt(c) if c.offset == 50), "{error}");
    // The log was restored from a copy of before, meta file and all: only the consumer knows.
    let disk = SimStorage::new();
    let log = filled(&disk, &records[..50]);
    let before = disk.fork();
    for record in &records[50..] {
        log.append(record).unwrap();
    }
    commit(&log, "reader", 100);
    kill(&disk, log);
    let file = consumer_file(&disk);
    before.write_file(&file, &disk.read_file(&file).unwrap());
    before.write_file("consumers.list", &disk.read_file("consumers.list").unwrap());
    let error = judged(&before).unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt(c) if c.to_string().contains("reader")),
        "{error}"
    );
    // No crash brings that about, whatever the policy.
    let disk = SimStorage::new();
    let log = try_open_manual(&disk).unwrap();
    for (n, record) in records.iter().enumerate() {
        log.append(record).unwrap();
        if n % 30 == 29 {
            log.sync().unwrap();
            commit(&log, "reader", n as u64 + 1);
        }
        if n % 10 == 0 {
            disk.for_each_crash_image(50, n as u64, |image| {
                let log = open(&image);
                if let Some(info) = log.consumers().first() {
                    assert!(info.committed <= log.end());
                }
            });
        }
    }
}

#[test]
fn g03_a_position_is_durable_and_never_becomes_0() {
    let disk = SimStorage::new();
    let log = filled(&disk, &marks(0..20, 50));
    commit(&log, "reader", 5);
    commit(&log, "reader", 7);
    disk.for_each_crash_image(100, 1, |image| assert_eq!(open(&image).consumers()[0].committed, 7));
    kill(&disk, log);
    assert_eq!(open(&disk.fork()).consumers()[0].committed, 7);
    let file = consumer_file(&disk);
    let content = disk.read_file(&file).unwrap();
    let check = |content: Option<&[u8]>, what: &str| {
        let disk = disk.fork();
        match content {
            Some(content) => disk.write_file(&file, content),
            None => assert!(disk.remove_file(&file)),
        }
        let log = open(&disk);
        match log.consumer("reader").open() {
            Ok(consumer) => assert_eq!(consumer.committed(), 7, "{what}"),
            Err(Error::ConsumerDamaged { .. }) => {
                // It still holds back what it may need, and goes on where a person says.
                assert!(log.consumers()[0].damaged.is_some());
                log.reset_consumer("reader", 6).unwrap();
                assert_eq!(log.consumer("reader").open().unwrap().position(), 6);
            }
            Err(e) => panic!("{what}: {e}"),
        }
        kill(&disk, log);
    };
    check(None, "gone");
    check(Some(&vec![0; content.len()]), "zeros");
    for len in 0..content.len() {
        check(Some(&content[..len]), &format!("{len} bytes"));
    }
    for pos in 0..content.len() {
        let mut flipped = content.clone();
        flipped[pos] ^= 1 << (pos % 8);
        check(Some(&flipped), &format!("byte {pos}"));
    }
    // Moving where nothing is, is an error.
    let log = open(&disk);
    let mut consumer = log.consumer("reader").open().unwrap();
    assert!(matches!(
        consumer.seek(21),
        Err(Error::OutOfRange {
            wanted: 21,
            start: 0,
            end: 20
        })
    ));
    assert_eq!(consumer.next().unwrap().unwrap().offset, 7);
}

#[test]
fn g05_a_consumer_below_the_start() {
    let bounded = Retention {
        lag_records_max: Some(20),
        ..Retention::default()
    };
    for (reset, goes_on_at) in [
        (Reset::Fail, None),
        (Reset::Earliest, Some(false)),
        (Reset::Latest, Some(true)),
    ] {
        let disk = SimStorage::new();
        let log = options().retention(bounded).open_storage(shared(&disk)).unwrap();
        for record in marks(0..100, 200) {
            log.append(record).unwrap();
        }
        let consumer = || log.consumer("reader").start(Start::At(10)).on_out_of_range(reset);
        assert_eq!(consumer().open().unwrap().poll(1).unwrap()[0].0, 10);
        let report = log.remove_before(50).unwrap();
        assert!(report.expired.len() == 1 && report.expired[0].contains("reader"));
        let start = log.start();
        assert!(start > 10);
        let mut consumer = consumer().open().unwrap();
        let error = consumer.next().unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { wanted: 10, start: s, .. } if s == start),
            "{error}"
        );
        match goes_on_at {
            None => {
                assert!(consumer.next().is_err());
                consumer.seek(start).unwrap();
                assert_eq!(consumer.next().unwrap().unwrap().offset, start);
            }
            Some(latest) => {
                log.append("new").unwrap();
                let expected = if latest { 101 } else { start };
                let next = consumer.next().unwrap().map(|record| record.offset);
                // `Latest` goes on behind everything that is there when it asks.
                assert_eq!(next.unwrap_or(consumer.position()), expected);
            }
        }
    }
    // Without a bound it is not removed.
    let disk = SimStorage::new();
    let log = filled(&disk, &marks(0..100, 200));
    let mut consumer = log.consumer("reader").start(Start::At(10)).open().unwrap();
    let report = log.remove_before(50).unwrap();
    assert!(report.held_by.unwrap().contains("reader") && report.start <= 10);
    assert_eq!(consumer.next().unwrap().unwrap().offset, 10);
}

#[test]
fn g06_a_forgotten_consumer() {
    let with = |lag_bytes_max| {
        let retention = Retention {
            bytes_max: Some(20_000),
            lag_bytes_max,
            ..Retention::default()
        };
        let disk = SimStorage::new();
        let log = options().retention(retention).open_storage(shared(&disk)).unwrap();
        drop(log.consumer("forgotten").open().unwrap());
        for n in 0..1000 {
            log.append(mark(n, 200)).unwrap();
        }
        (disk, log)
    };
    let bytes = |disk: &SimStorage| -> usize { segments(disk).iter().map(|n| disk.read_file(n).unwrap().len()).sum() };
    // It holds everything, is named, and once it is removed the space comes back.
    let (disk, log) = with(None);
    assert!(log.retain().unwrap().held_by.unwrap().contains("forgotten"));
    assert!(bytes(&disk) > 200_000);
    let info = &log.consumers()[0];
    assert_eq!((info.name.as_str(), info.lag), ("forgotten", 1000));
    log.remove_consumer("forgotten").unwrap();
    log.retain().unwrap();
    assert!(bytes(&disk) < 30_000, "{}", bytes(&disk));
    // With a bound it is overrun, and told.
    let (disk, log) = with(Some(50_000));
    log.retain().unwrap();
    assert!(bytes(&disk) < 80_000, "{}", bytes(&disk));
    let mut forgotten = log.consumer("forgotten").open().unwrap();
    assert!(matches!(forgotten.next(), Err(Error::OutOfRange { wanted: 0, .. })));
}

#[test]
fn g08_a_tail_beside_a_write_that_takes_its_time() {
    let disk = SimStorage::new();
    let log = options().segment_bytes(1 << 20).open_storage(shared(&disk)).unwrap();
    // Every write is many small ones.
    disk.inject(
        Fault::new(OpKind::Write, FaultKind::Short(700))
            .on_file(".wal")
            .forever(),
    );
    let records: Vec<_> = (0..24u64).map(|n| mark(n, 60_000)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut tail = log.tail(0).unwrap();
                for record in &records {
                    assert!(
                        tail.next().unwrap().unwrap().bytes == record,
                        "half of a record was seen"
                    );
                }
            });
        }
        // Another process, which has only the files.
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let seen = options()
                    .open_read_only_storage(shared(&disk))
                    .unwrap_or_else(|e| panic!("{e}"));
                for visible in [Visible::Durable, Visible::Written] {
                    let read = try_read(seen.reader_of(0, visible).unwrap()).unwrap_or_else(|e| panic!("{e}"));
                    assert!(records.starts_with(&read));
                }
            }
        });
        for record in &records {
            log.append(record).unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn g09_removal_under_readers() {
    let disk = SimStorage::new();
    let log = filled(&disk, &[]);
    let done = AtomicBool::new(false);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let Ok(mut reader) = log.reader(log.start()) else {
                        continue;
                    };
                    let mut expected = reader.offset();
                    loop {
                        match reader.next() {
                            Ok(Some(record)) => {
                                assert_eq!((record.offset, number(record.bytes)), (expected, expected));
                                expected += 1;
                            }
                            Ok(None) => break,
                            Err(Error::OutOfRange { wanted, start, .. }) => {
                                assert!(wanted == expected && start > wanted);
                                break;
                            }
                            Err(e) => panic!("{e}"),
                        }
                    }
                }
            });
        }
        for n in 0..6000u64 {
            let mut record = n.to_le_bytes().to_vec();
            record.resize(100, 0);
            log.append(record).unwrap();
            if n % 20 == 19 {
                log.remove_before(n - 10).unwrap();
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(log.start() > 5000);
}
