//! Readers and the lock.

use std::sync::Arc;
use std::time::Duration;

use wal::storage::sim::SimStorage;
use wal::{Durability, Error, FsyncPolicy, Visible};

use super::{open, open_with, options, read_all, try_open};

#[test]
fn l8_a_second_writer_is_told_at_once_who_has_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = options().open(&path).unwrap();
    let error = options().open(&path).unwrap_err();
    assert!(
        matches!(&error, Error::Locked { owner, .. } if owner.contains(&std::process::id().to_string())),
        "{error}"
    );
    drop(log);
    options().open(&path).unwrap();
}

#[test]
fn l8_a_closed_log_is_free_at_once_whatever_processes_are_being_started() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    std::process::Command::new("true").status().unwrap();
                }
            });
        }
        let closed_and_opened = (0..300).try_for_each(|_| options().open(&path)?.close());
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        closed_and_opened.unwrap();
    });
}

#[test]
fn l8_reading_beside_a_writer_changes_nothing() {
    let disk = SimStorage::new();
    let log = open_with(&disk, FsyncPolicy::Os);
    for n in 0..50u8 {
        log.append([n; 200]).unwrap();
    }
    log.sync().unwrap();
    log.append(b"written only").unwrap();
    let before = disk.mutations();
    disk.set_read_only(true);
    let view = options().open_read_only_storage(Arc::new(disk.clone())).unwrap();
    // What the files prove: the record behind the last sync states it.
    assert_eq!((view.durable_end(), view.written_end()), (50, 51));
    assert!(matches!(
        view.read(50),
        Err(Error::OutOfRange {
            wanted: 50,
            start: 0,
            end: 50
        })
    ));
    disk.set_read_only(false);
    for n in 0..50u8 {
        log.append([n; 200]).unwrap();
    }
    log.sync().unwrap();
    log.append(b"written only").unwrap();
    assert_eq!(view.refresh().unwrap(), 101);
    assert_eq!(view.read(60).unwrap(), [9; 200]);
    drop(view);
    assert_eq!(disk.fingerprint(), disk.fork().fingerprint());
    assert!(disk.mutations() > before, "only the writer wrote");
    let quiet = disk.mutations();
    drop(options().open_read_only_storage(Arc::new(disk.clone())).unwrap());
    wal::inspect::verify(&(Arc::new(disk.clone()) as _)).unwrap();
    assert_eq!(disk.mutations(), quiet);
}

#[test]
fn l9_only_durable_records_are_seen_unless_asked_otherwise() {
    let disk = SimStorage::new();
    let log = open_with(&disk, FsyncPolicy::Os);
    log.append(b"written").unwrap();
    assert!(read_all(&log, 0).unwrap().is_empty());
    assert!(matches!(
        log.read(0),
        Err(Error::OutOfRange {
            wanted: 0,
            start: 0,
            end: 0
        })
    ));
    let mut reader = log.reader_of(0, Visible::Written).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().bytes, b"written");
    log.append_with(b"durable", Durability::Durable).unwrap();
    assert_eq!(read_all(&log, 0).unwrap(), [b"written".to_vec(), b"durable".to_vec()]);
}

#[test]
fn l9_an_offset_outside_is_an_error_with_the_bounds() {
    let disk = SimStorage::new();
    let log = open(&disk);
    for n in 0..100u8 {
        log.append([n; 200]).unwrap();
    }
    log.remove_before(50).unwrap();
    let start = log.start();
    assert!(start > 10 && start <= 50);
    for wanted in [0, start - 1, 101, u64::MAX] {
        let error = log.reader(wanted).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { wanted: w, start: s, end: 100 } if (w, s) == (wanted, start)));
    }
    assert!(log.range(..=u64::MAX).is_err());
    assert!(log.range(start..100).is_ok() && log.reader(100).is_ok());
    let mut reader = log.range(60..=61).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().offset, 60);
    assert_eq!(reader.next().unwrap().unwrap().offset, 61);
    assert!(reader.next().unwrap().is_none());
}

#[test]
fn l9_a_tail_crosses_segments_without_polling_and_ends_with_the_log() {
    let disk = SimStorage::new();
    let log = open(&disk);
    let mut tail = log.tail(0).unwrap();
    assert!(tail.next_timeout(Duration::from_millis(1)).unwrap().is_none());
    let ops = disk.ops();
    assert!(tail.next_timeout(Duration::from_millis(50)).unwrap().is_none());
    assert_eq!(disk.ops(), ops, "waiting touched the disk");
    let reader = std::thread::spawn(move || {
        let mut seen = 0u32;
        while let Some(record) = tail.next().unwrap() {
            assert_eq!(record.bytes, seen.to_le_bytes().repeat(50));
            seen += 1;
        }
        seen
    });
    for n in 0..200u32 {
        log.append(n.to_le_bytes().repeat(50)).unwrap();
    }
    assert!(log.stats().segments > 5);
    log.close().unwrap();
    assert_eq!(reader.join().unwrap(), 200);
    assert!(matches!(log.append(b"x"), Err(Error::Closed)));
    assert!(try_open(&disk).is_ok());
}

#[test]
fn l9_a_reader_goes_on_behind_an_empty_segment_that_was_removed() {
    let disk = SimStorage::new();
    let log = open(&disk);
    for n in 0..6u8 {
        log.append([n; 600]).unwrap();
    }
    // Begun, and nothing of it survives: the process dies.
    log.append_with([6; 3000], wal::Durability::Buffered).unwrap();
    disk.power_cut(1);
    drop(log);
    let log = open(&disk);
    assert_eq!((log.end(), log.report().segments), (6, 2));
    let mut reader = log.reader(0).unwrap();
    let mut consumer = log.consumer("c").on_out_of_range(wal::Reset::Latest).open().unwrap();
    for n in 0..6 {
        assert_eq!(reader.next().unwrap().unwrap().offset, n);
        assert_eq!(consumer.next().unwrap().unwrap().offset, n);
    }
    consumer.commit().unwrap();
    // Both are in the first segment, at its end. It goes, and the empty one with it.
    log.append("six").unwrap();
    log.append("seven").unwrap();
    assert_eq!(log.remove_before(6).unwrap().segments_removed, 2);
    assert_eq!(reader.next().unwrap().unwrap().bytes, b"six");
    assert_eq!(consumer.next().unwrap().unwrap().bytes, b"six");
}

#[test]
fn l7_what_is_too_large_is_refused_with_sizes_and_the_largest_reads_back() {
    let disk = SimStorage::new();
    let log = options()
        .record_bytes_max(10_000)
        .open_storage(Arc::new(disk.clone()))
        .unwrap();
    assert!(matches!(
        log.append(vec![0; 10_001]),
        Err(Error::RecordTooLarge {
            bytes: 10_001,
            max: 10_000
        })
    ));
    assert_eq!(log.append(vec![7; 10_000]).unwrap(), 0);
    assert_eq!(log.read(0).unwrap(), vec![7; 10_000]);
    let two = [vec![1; 6_000], vec![2; 6_000]];
    assert!(matches!(
        log.append_batch(&two),
        Err(Error::BatchTooLarge {
            records: 2,
            bytes_max: 10_000,
            ..
        })
    ));
    log.close().unwrap();
    // A smaller limit refuses new records, never old ones.
    let log = options().record_bytes_max(10).open_storage(Arc::new(disk)).unwrap();
    assert_eq!(log.read(0).unwrap().len(), 10_000);
}

#[test]
fn l7_options_out_of_range_are_told_at_open_and_nothing_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let bad = [
        options().segment_bytes(1),
        options().segment_bytes(u64::MAX),
        options().record_bytes_max(0),
        options().policy(FsyncPolicy::Interval(Duration::ZERO)),
        options().policy(FsyncPolicy::Group {
            max_delay: Duration::from_secs(90),
        }),
        options().retention(wal::Retention {
            bytes_max: Some(1),
            ..wal::Retention::default()
        }),
    ];
    for options in bad {
        assert!(matches!(options.open(&path), Err(Error::InvalidOption { .. })));
        assert!(!path.exists());
    }
    assert!(matches!(
        options().create(false).open(&path),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(options().open_read_only(&path), Err(Error::NotFound { .. })));
    assert!(matches!(options().open(path.join("deeper")), Err(Error::Io { .. })));
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(matches!(options().open(&path), Err(Error::NotALog { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("photo.jpg"), "x").unwrap();
    assert!(matches!(options().open(&other), Err(Error::NotALog { .. })));
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn l7_a_log_of_many_segments_needs_few_open_files() {
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let small = || options().segment_bytes(1024).policy(FsyncPolicy::Os);
    let log = small().open(&path).unwrap();
    for n in 0..400u32 {
        log.append(n.to_le_bytes().repeat(200)).unwrap();
    }
    assert!(log.stats().segments >= 400);
    log.sync().unwrap();
    assert_eq!(read_all(&log, 0).unwrap().len(), 400);
    log.close().unwrap();
    drop(log);
    let log = small().open(&path).unwrap();
    assert_eq!(read_all(&log, 0).unwrap().len(), 400);
    // Other tests of this process have files open, too.
    assert!(open_files() < 350, "{}", open_files());
}

#[test]
fn l7_without_permission_nothing_is_created_and_reading_goes_on() {
    let disk = SimStorage::missing();
    disk.set_read_only(true);
    assert!(matches!(try_open(&disk), Err(Error::Io { .. })));
    disk.set_read_only(false);
    open(&disk).append(b"x").unwrap();
    disk.set_read_only(true);
    let before = disk.fingerprint();
    let error = try_open(&disk).unwrap_err();
    assert!(
        matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied),
        "{error}"
    );
    assert_eq!(disk.fingerprint(), before);
    let view = options().open_read_only_storage(Arc::new(disk)).unwrap();
    assert_eq!(view.read(0).unwrap(), b"x");
}
