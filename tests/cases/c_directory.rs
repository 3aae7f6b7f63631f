//! C: which files are there.

use std::io::ErrorKind;

use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Damage, Error};

use super::*;

fn corruption(error: Error) -> wal::Corruption {
    match error {
        Error::Corrupt(c) => *c,
        e => panic!("{e}"),
    }
}

/// Five segments, the last one being written when the process was killed.
fn five_segments(disk: &SimStorage) -> Vec<Vec<u8>> {
    let records = marks(0..34, 500);
    kill(disk, filled(disk, &records));
    assert_eq!(segments(disk).len(), 5);
    records
}

#[test]
fn c01_a_segment_is_missing() {
    let disk = SimStorage::new();
    let records = five_segments(&disk);
    let names = segments(&disk);
    for (n, name) in names.iter().enumerate() {
        let gone = disk.fork();
        gone.remove_file(name);
        let c = corruption(judged(&gone).unwrap_err());
        assert!(matches!(c.damage, Damage::Missing | Damage::LostTail), "{n}: {c}");
        let first = records.iter().position(|r| find(&disk, r).0 == *name).unwrap();
        assert_eq!(c.offset, first as u64, "the first offset that is gone");
        let blank = disk.fork();
        zero(&blank, name, 0..4096);
        corruption(judged(&blank).unwrap_err());
        // Not to be read is not to be missing.
        let barred = disk.fork();
        barred.inject(Fault::new(OpKind::Open, FaultKind::Error(ErrorKind::PermissionDenied)).on_file(name));
        let error = try_open(&barred).and_then(|log| try_read(log.reader(0)?)).unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied),
            "{error}"
        );
    }
    let none = disk.fork();
    names.iter().for_each(|name| assert!(none.remove_file(name)));
    corruption(judged(&none).unwrap_err());
}

#[test]
fn c02_a_next_segment_that_was_never_finished() {
    let disk = SimStorage::new();
    let records = five_segments(&disk);
    let last = segments(&disk).pop().unwrap();
    // The name that the next one would have.
    let generation = u64::from_str_radix(&last[21..37], 16).unwrap() + 1;
    let next = format!("{:020}-{generation:016x}.wal", records.len());
    let noise: Vec<u8> = (0..4096u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 21) as u8)
        .collect();
    // Segments get their name only when they are whole, so none of these comes from a crash of ours; none holds a record that was
    // acknowledged either, and the meta file knows.
    for content in [
        vec![],
        vec![0],
        vec![0; 4095],
        vec![0; 4096],
        vec![0; 8192],
        noise.clone(),
    ] {
        for name in [next.clone(), format!("{next}.tmp")] {
            let disk = disk.fork();
            disk.write_file(&name, &content);
            if content == noise && name == next {
                // No crash leaves that: somebody else's hand, to be looked at by a person.
                assert!(corruption(judged(&disk).unwrap_err()).file.ends_with(&next));
                continue;
            }
            assert!(judged(&disk).unwrap() == records, "{name} of {} bytes", content.len());
            goes_on(&disk, records.clone());
        }
        // The same in the middle is damage.
        let middle = disk.fork();
        middle.write_file(&segments(&disk)[2], &content);
        let c = corruption(judged(&middle).unwrap_err());
        assert!(c.file.ends_with(&segments(&disk)[2]), "{c}");
    }
}

#[test]
fn c04_an_emptied_log_goes_on_counting() {
    let disk = SimStorage::new();
    let log = open(&disk);
    for n in 0..1000u64 {
        log.append_with(n.to_le_bytes(), wal::Durability::Written).unwrap();
    }
    log.sync().unwrap();
    let mut consumer = log.consumer("reader").open().unwrap();
    while consumer.next().unwrap().is_some() {}
    consumer.commit().unwrap();
    drop(consumer);
    let full = disk.fork();
    let empty = |log: &Wal| {
        log.rotate()?;
        log.remove_before(1000)
    };
    let before = disk.mutations();
    assert_eq!(empty(&log).unwrap().start, 1000);
    let steps = disk.mutations() - before;
    kill(&disk, log);
    for _ in 0..3 {
        let log = open(&disk);
        assert_eq!((log.start(), log.end()), (1000, 1000));
        kill(&disk, log);
    }
    let after = disk.fork();
    let log = open(&after);
    assert_eq!(log.append("next").unwrap(), 1000);
    log.close().unwrap();
    // Cut off anywhere on the way.
    for step in 0..steps + 4 {
        let disk = full.fork();
        let log = open(&disk);
        disk.crash_at(step);
        let _ = empty(&log);
        disk.for_each_crash_image(64, step, |image| {
            let log = open(&image);
            assert_eq!(log.end(), 1000);
            assert!(log.start() == 0 || log.start() == 1000 || log.read(log.start()).is_ok());
            assert_eq!(log.append("next").unwrap(), 1000);
        });
    }
    // All segments are removed by hand.
    for name in segments(&after) {
        after.remove_file(&name);
    }
    assert!(judged(&after).is_err(), "begins at 0 again");
}

#[test]
fn c05_left_over_temporary_files() {
    let make = || kv::Options::new().log(options()).checkpoint_bytes(0);
    let disk = SimStorage::new();
    let store = make().open_storage(shared(&disk)).unwrap();
    for n in 0..20u64 {
        store.put(n.to_le_bytes(), mark(n, 500)).unwrap();
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let real = disk.file_names();
    for name in real.iter().filter(|name| *name != "LOCK") {
        let content = disk.read_file(name).unwrap();
        disk.write_file(&format!("{name}.tmp"), &content[..content.len() / 2]);
    }
    let checkpoint = real.iter().find(|n| n.contains("checkpoint")).unwrap();
    let newer = checkpoint.replace("020", "999");
    disk.write_file(&format!("{newer}.tmp"), &disk.read_file(checkpoint).unwrap());
    let store = open_store(&disk);
    assert_eq!(store.len(), 20);
    store.put("more", "more").unwrap();
    store.checkpoint().unwrap();
    kill(&disk, store);
    let left = |disk: &SimStorage| disk.file_names().iter().filter(|n| n.ends_with(".tmp")).count();
    assert_eq!(left(&disk), 0, "{:?}", disk.file_names());
    // A hundred crashes inside a checkpoint.
    for round in 0..100u64 {
        let store = open_store(&disk);
        assert_eq!(store.len(), 21);
        disk.crash_at(disk.mutations() + round % 9);
        let _ = store.put("more", "more");
        let _ = store.checkpoint();
        disk.process_kill();
        drop(store);
        assert!(left(&disk) <= 1, "{:?}", disk.file_names());
    }
}

#[test]
fn c08_files_that_are_removed_go_oldest_first() {
    let disk = SimStorage::new();
    let records = marks(0..44, 500);
    let log = filled(&disk, &records);
    assert!(segments(&disk).len() >= 6);
    let full = disk.fork();
    kill(&disk, log);
    let whole_from = |disk: &SimStorage, what: &str| {
        let read = judged(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(records.ends_with(&read), "{what}");
        read.len()
    };
    for refused in [None, Some(ErrorKind::PermissionDenied), Some(ErrorKind::ResourceBusy)] {
        for nth in 1..=4u64 {
            let disk = full.fork();
            let log = open(&disk);
            match refused {
                Some(kind) => disk.inject(
                    Fault::new(OpKind::Remove, FaultKind::Error(kind))
                        .on_file(".wal")
                        .nth(nth),
                ),
                None => {
                    // Dies right behind the nth removal.
                    let machine = disk.clone();
                    let count = std::sync::atomic::AtomicU64::new(0);
                    disk.on_op(move |op| {
                        let removal = op.kind == OpKind::Remove && op.file.ends_with(".wal");
                        if removal && count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == nth {
                            machine.crash_after(op.mutation);
                        }
                    });
                }
            }
            let removed = log.remove_before(30);
            assert_eq!(removed.is_err(), disk.crashed() || disk.faults_hit() > 0, "{nth}");
            if disk.crashed() {
                disk.for_each_crash_image(200, nth, |image| {
                    whole_from(&image, "after a crash");
                    goes_on(&image, judged(&image).unwrap());
                });
                continue;
            }
            // Those that stayed go with the next try.
            assert_eq!(
                whole_from(&disk, "with a file that would not go"),
                (44 - log.start()) as usize
            );
            log.remove_before(30).unwrap();
            assert!(segments(&disk)[0].starts_with(&format!("{:020}", log.start())));
            kill(&disk, log);
            whole_from(&disk, "after the second try");
        }
    }
}
