//! J: sizes, limits, format, time.

use std::sync::atomic::{AtomicU64, Ordering};

use wal::clock::Clock;
use wal::inspect::{decode_frame, encode_frame};
use wal::storage::sim::SimStorage;
use wal::{Error, Retention};

use super::*;

#[test]
fn j01_what_is_accepted_can_be_read_back() {
    const MAX: u64 = 3000;
    let with = |max| options().record_bytes_max(max);
    let disk = SimStorage::new();
    let log = with(MAX).open_storage(shared(&disk)).unwrap();
    let expected = [mark(0, 2999), mark(1, 3000), mark(2, 20)];
    log.append(&expected[0]).unwrap();
    log.append(&expected[1]).unwrap();
    let error = log.append(mark(9, 3001)).unwrap_err();
    assert!(
        matches!(error, Error::RecordTooLarge { bytes: 3001, max: MAX }),
        "{error}"
    );
    assert!(matches!(
        log.append_batch(&marks(0..2, 1600)),
        Err(Error::BatchTooLarge { .. })
    ));
    log.append(&expected[2]).unwrap();
    kill(&disk, log);
    // The limit is lowered: for what comes.
    let log = with(100).open_storage(shared(&disk)).unwrap();
    assert!(read_all(&log) == expected);
    assert!(matches!(log.append(mark(9, 101)), Err(Error::RecordTooLarge { .. })));
    kill(&disk, log);
    assert!(judged(&disk).unwrap() == expected);
}

#[test]
fn j02_a_length_that_goes_beyond_the_end() {
    for size in [100, 5000, 70_000] {
        let disk = SimStorage::new();
        let log = try_open_manual(&disk).unwrap();
        log.append(mark(0, size)).unwrap();
        log.sync().unwrap();
        log.append(mark(1, size)).unwrap();
        kill(&disk, log);
        let (file, last) = find(&disk, &mark(1, size));
        let (first_file, first) = find(&disk, &mark(0, size));
        // At the end: torn, whatever is left of it.
        for len in (last.start - 32..last.end).step_by(1 + size / 97) {
            let disk = disk.fork();
            disk.truncate_file(&file, len);
            assert!(judged(&disk).unwrap() == marks(0..1, size), "{size}: cut at {len}");
        }
        for delta in [1, 24, size as u32] {
            for at in last.start - 32..last.start - 3 {
                let torn = disk.fork();
                let old = &disk.read_file(&file).unwrap()[at..at + 4];
                let more = u32::from_le_bytes(old.try_into().unwrap()).wrapping_add(delta);
                overwrite(&torn, &file, at..at + 4, &more.to_le_bytes());
                assert!(judged(&torn).unwrap() == marks(0..1, size), "{size}: {delta} at {at}");
                // In what is known to be durable: damage.
                let rotten = disk.fork();
                let at = first.start - (last.start - at);
                overwrite(&rotten, &first_file, at..at + 4, &more.to_le_bytes());
                assert!(judged(&rotten).is_err(), "{size}: {delta} at {at}");
            }
        }
    }
}

#[test]
fn j03_records_around_the_size_of_a_segment() {
    const SEGMENT: usize = 4096;
    for before in [0, 1, SEGMENT / 2, SEGMENT - 100] {
        for size in (SEGMENT - 48..SEGMENT + 8).chain([2 * SEGMENT, 10 * SEGMENT]) {
            let disk = SimStorage::new();
            let mut expected = Vec::new();
            if before > 0 {
                expected.push(vec![7; before]);
            }
            expected.push(mark(1, size));
            expected.push(mark(2, 10));
            let log = filled(&disk, &expected);
            assert!(read_all(&log) == expected, "{before} and {size}");
            kill(&disk, log);
            assert!(judged(&disk).unwrap() == expected, "{before} and {size}");
            assert!(
                segments(&disk).len() <= expected.len(),
                "{before} and {size}: {:?}",
                segments(&disk)
            );
        }
    }
    // A batch that is larger than a segment stays one.
    let disk = SimStorage::new();
    let log = open(&disk);
    assert_eq!(log.append_batch(&marks(0..100, 500)).unwrap(), 0..100);
    log.append("next").unwrap();
    kill(&disk, log);
    assert_eq!(judged(&disk).unwrap().len(), 101);
    assert_eq!(segments(&disk).len(), 2);
}

#[test]
fn j05_offsets_and_positions_are_64_bits_wide() {
    let log = [7; 16];
    for border in [1 << 31, 1 << 32, 1 << 33, 1 << 63, u64::MAX - 8] {
        for offset in border - 3..border + 3 {
            for pos in [4096, (1 << 32) - 8, 1 << 32, (1 << 34) + 4096] {
                let bytes = encode_frame(&[mark(1, 30)], offset, offset - 1, &log, border, pos).unwrap();
                let frame = decode_frame(&bytes, &log, border, pos).unwrap();
                assert_eq!((frame.base_offset, frame.durable_end), (offset, offset - 1));
                // What a narrower number would have made of it is another place.
                let narrow = |n: u64| n & 0xffff_ffff;
                if narrow(pos) != pos {
                    assert!(decode_frame(&bytes, &log, border, narrow(pos)).is_err());
                }
                if narrow(border) != border {
                    assert!(decode_frame(&bytes, &log, narrow(border), pos).is_err());
                }
            }
        }
    }
    // They do not go round.
    assert!(encode_frame(&[mark(1, 30)], u64::MAX, 0, &log, 1, 4096).is_none());
    // A file cannot claim them either: the name says where a segment belongs.
    let disk = SimStorage::new();
    kill(&disk, filled(&disk, &marks(0..3, 30)));
    let name = segments(&disk).pop().unwrap();
    let content = disk.read_file(&name).unwrap();
    disk.remove_file(&name);
    disk.write_file(&name.replace("00000000000000000000", "18446744073709551614"), &content);
    assert!(judged(&disk).is_err());
    assert!(
        options()
            .segment_bytes(u64::MAX)
            .open_storage(shared(&SimStorage::new()))
            .is_err()
    );
}

#[test]
fn j06_other_versions_are_refused_and_left_alone() {
    let disk = SimStorage::new();
    let store = open_store(&disk);
    let mut feed = store.consumer("feed").open().unwrap();
    for n in 0..12u64 {
        store.put(n.to_be_bytes(), mark(n, 800)).unwrap();
    }
    feed.poll(5).unwrap();
    feed.commit().unwrap();
    drop(feed);
    store.checkpoint().unwrap();
    kill(&disk, store);
    let mut newer = 0;
    for file in disk.file_names().iter().filter(|name| *name != "LOCK") {
        let content = disk.read_file(file).unwrap();
        for pos in 0..16.min(content.len()) {
            for value in [0, content[pos].wrapping_add(1), 255] {
                let disk = disk.fork();
                // In every copy that the file keeps of its beginning.
                let mut changed = content.clone();
                let beginning = &content[..8.min(content.len())];
                for at in (0..content.len().saturating_sub(16)).step_by(8) {
                    if content[at..].starts_with(beginning) {
                        changed[at + pos] = value;
                    }
                }
                disk.write_file(file, &changed);
                let before = fingerprint(&disk);
                match try_open_store(&disk) {
                    Err(e) => {
                        newer += u64::from(matches!(e, kv::Error::Log(Error::UnsupportedVersion { .. })));
                        assert_eq!(fingerprint(&disk), before, "{file} byte {pos} is {value}");
                    }
                    Ok(store) => assert_eq!(store.len(), 12, "{file} byte {pos} is {value}"),
                }
            }
        }
    }
    assert!(newer >= 8, "no file knows a newer version: {newer}");
}

#[test]
fn j08_closed_and_gone_on_with_again_and_again() {
    let disk = SimStorage::new();
    let mut expected = Vec::new();
    for round in 0..20 {
        let log = open(&disk);
        assert_eq!(log.report().was_closed, round > 0);
        for n in 0..5 {
            expected.push(mark(10 * round + n, 100));
            assert_eq!(log.append(expected.last().unwrap()).unwrap() + 1, expected.len() as u64);
        }
        log.close().unwrap();
        drop(log);
        assert!(judged(&disk).unwrap() == expected, "round {round}");
    }
}

/// The wall clock can be set to anything; the other one only goes on.
#[derive(Debug, Default)]
struct Clocks {
    wall: AtomicU64,
    monotonic: AtomicU64,
}

impl Clock for Clocks {
    fn unix_ms(&self) -> u64 {
        self.wall.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic.load(Ordering::SeqCst))
    }
}

#[test]
fn j10_clocks_that_jump() {
    const HOUR: u64 = 3_600_000;
    const YEAR: u64 = 365 * 24 * HOUR;
    const NOW: u64 = 56 * YEAR;
    for jump in [0, NOW + 10 * YEAR, NOW - 10 * YEAR, NOW + 2 * HOUR] {
        let clocks = Arc::new(Clocks::default());
        clocks.wall.store(NOW, Ordering::SeqCst);
        let retention = Retention {
            age_max: Some(Duration::from_millis(HOUR)),
            ..Retention::default()
        };
        let disk = SimStorage::new();
        let log = options()
            .clock(clocks.clone())
            .retention(retention)
            .open_storage(shared(&disk))
            .unwrap();
        let pass = |ms| {
            clocks.monotonic.fetch_add(ms, Ordering::SeqCst);
            clocks.wall.fetch_add(ms, Ordering::SeqCst);
        };
        for n in 0..40u64 {
            if n == 20 {
                clocks.wall.store(jump, Ordering::SeqCst);
            }
            if n == 21 {
                clocks.wall.store(NOW + 21 * 60_000, Ordering::SeqCst);
            }
            log.append(mark(n, 400)).unwrap();
            log.retain().unwrap();
            assert_eq!(
                log.start(),
                0,
                "something younger than an hour is gone after a jump to {jump}"
            );
            pass(60_000);
        }
        for _ in 0..3 {
            pass(HOUR);
            log.append(mark(99, 4000)).unwrap();
            log.retain().unwrap();
        }
        assert!(
            log.start() >= 40,
            "what is old stays for ever after a jump to {jump}: {}",
            log.start()
        );
    }
}

#[test]
fn j12_the_verifier_says_what_open_says() {
    // Everything else in here goes through `judged`, which compares them. Here all that is bad is told, not the first only.
    let disk = SimStorage::new();
    let records = marks(0..60, 400);
    filled(&disk, &records).close().unwrap();
    for n in [3, 20, 21, 47] {
        let (file, at) = find(&disk, &records[n]);
        disk.flip_bit(&file, at.start + 100, 2);
    }
    let found = verify(&disk);
    let lost: Vec<u64> = found.damage.iter().flat_map(|f| f.lost.clone()).collect();
    assert_eq!(lost, [3, 20, 21, 47]);
    assert_eq!(found.records, 56);
    assert!(judged(&disk).is_err());
    // Beside a writer.
    let disk = SimStorage::new();
    let store = open_store(&disk);
    for n in 0..30u64 {
        store.put(n.to_be_bytes(), mark(n, 300)).unwrap();
        assert!(verify(&disk).is_clean());
    }
    store.checkpoint().unwrap();
    let verified = kv::verify(&shared(&disk)).unwrap();
    assert!(verified.is_clean());
    assert_eq!(verified.checkpoints[0].equals_fold, Some(true));
}
