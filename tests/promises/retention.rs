//! Removing old segments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wal::clock::Clock;
use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Error, Options, Retention, Wal};

use super::{open, options, read_all, segments, verify};

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
struct ByHand {
    wall: AtomicU64,
    monotonic: AtomicU64,
}

impl ByHand {
    fn pass(&self, time: Duration) {
        let ms = time.as_millis() as u64;
        self.wall.fetch_add(ms, Ordering::SeqCst);
        self.monotonic.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ByHand {
    fn unix_ms(&self) -> u64 {
        self.wall.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic.load(Ordering::SeqCst))
    }
}

fn fill(log: &Wal, n: u32) {
    for n in 0..n {
        log.append(n.to_le_bytes().repeat(25)).unwrap();
    }
}

fn with(disk: &SimStorage, retention: Retention) -> Wal {
    options()
        .retention(retention)
        .open_storage(Arc::new(disk.clone()))
        .unwrap()
}

#[test]
fn l11_by_size_oldest_first_and_whole_segments() {
    let disk = SimStorage::new();
    let log = with(
        &disk,
        Retention {
            bytes_max: Some(40_000),
            ..Retention::default()
        },
    );
    fill(&log, 1000);
    log.retain().unwrap();
    let bytes: usize = segments(&disk).iter().map(|n| disk.read_file(n).unwrap().len()).sum();
    assert!(bytes <= 40_000 + 8192, "{bytes}");
    let start = log.start();
    assert!(start > 0);
    assert!(segments(&disk)[0].starts_with(&format!("{start:020}")));
    assert_eq!(read_all(&log, start).unwrap().len() as u64, 1000 - start);
    assert!(verify(&disk).is_clean());
}

#[test]
#[cfg(target_os = "linux")]
fn l11_removed_segments_give_their_space_back_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("log");
    let log = options().open(&path).unwrap();
    fill(&log, 500);
    // Read, so that their files are open.
    assert_eq!(read_all(&log, 0).unwrap().len(), 500);
    let mut reader = log.reader(0).unwrap();
    assert!(reader.next().unwrap().is_some());
    assert!(log.remove_before(400).unwrap().segments_removed > 5);
    let removed = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = open.filter_map(|e| std::fs::read_link(e.unwrap().path()).ok());
        let of_log = targets.filter(|target| target.starts_with(&path));
        of_log
            .filter(|target| target.to_string_lossy().ends_with("(deleted)"))
            .count()
    };
    // The one that is being read, for as long as it is.
    assert_eq!(removed(), 1);
    drop(reader);
    assert_eq!(removed(), 0);
}

#[test]
fn l11_never_past_a_pin_or_a_consumer_that_still_needs_it() {
    let disk = SimStorage::new();
    let log = with(
        &disk,
        Retention {
            bytes_max: Some(10_000),
            ..Retention::default()
        },
    );
    let pin = log.pin(0, "a backup tool", false);
    let mut consumer = log.consumer("c").open().unwrap();
    fill(&log, 500);
    let report = log.retain().unwrap();
    assert_eq!((report.start, report.held_by.as_deref()), (0, Some("a backup tool")));
    drop(pin);
    assert_eq!(log.retain().unwrap().held_by.unwrap(), "consumer \"c\"");
    consumer.poll(300).unwrap();
    consumer.commit().unwrap();
    // Also while it is not open, and after a restart.
    drop(consumer);
    log.retain().unwrap();
    let start = log.start();
    assert!(start > 200 && start <= 300, "{start}");
    log.close().unwrap();
    let log = with(
        &disk,
        Retention {
            bytes_max: Some(10_000),
            ..Retention::default()
        },
    );
    log.retain().unwrap();
    assert_eq!(log.start(), start);
    log.remove_consumer("c").unwrap();
    log.retain().unwrap();
    assert!(log.start() > 300);
}

#[test]
fn l11_by_age_whatever_the_wall_clock_does() {
    let day = Duration::from_secs(24 * 3600);
    let clock = Arc::new(ByHand::default());
    clock.wall.store(1_700_000_000_000, Ordering::SeqCst);
    let disk = SimStorage::new();
    let retention = Retention {
        age_max: Some(day),
        ..Retention::default()
    };
    let open = |clock: &Arc<ByHand>| {
        let options = options().retention(retention).clock(Arc::<ByHand>::clone(clock));
        options.open_storage(Arc::new(disk.clone())).unwrap()
    };
    let log = open(&clock);
    fill(&log, 100);
    // The wall clock jumps ahead by ten years: nothing is older for it.
    clock.wall.fetch_add(10 * 365 * 86_400_000, Ordering::SeqCst);
    fill(&log, 100);
    log.retain().unwrap();
    assert_eq!(log.start(), 0);
    clock.pass(day / 2);
    fill(&log, 100);
    log.retain().unwrap();
    assert_eq!(log.start(), 0);
    clock.pass(day);
    fill(&log, 1);
    log.retain().unwrap();
    let start = log.start();
    assert!(start >= 100, "what is older than a day goes: {start}");
    log.close().unwrap();
    // Behind again at the next start: nothing is removed early.
    clock.wall.fetch_sub(20 * 365 * 86_400_000, Ordering::SeqCst);
    let log = open(&clock);
    log.retain().unwrap();
    assert_eq!(log.start(), start);
}

#[test]
fn l11_an_emptied_log_goes_on_counting() {
    let disk = SimStorage::new();
    let log = open(&disk);
    fill(&log, 100);
    log.remove_before(100).unwrap();
    assert_eq!((log.start(), log.end()), (100, 100));
    assert!(matches!(
        log.remove_before(101),
        Err(Error::OutOfRange { wanted: 101, .. })
    ));
    log.close().unwrap();
    for _ in 0..3 {
        let log = open(&disk);
        assert_eq!((log.start(), log.end()), (100, 100));
        log.close().unwrap();
    }
    let log = open(&disk);
    assert_eq!(log.append(b"on").unwrap(), 100);
    disk.power_cut(1);
    drop(log);
    assert_eq!(read_all(&open(&disk), 100).unwrap(), [b"on"]);
}

#[test]
fn l11_the_last_segment_stays_whoever_wrote_it() {
    let disk = SimStorage::new();
    let log = open(&disk);
    fill(&log, 100);
    // Alone larger than what may be kept.
    log.append([7; 20_000]).unwrap();
    disk.process_kill();
    drop(log);
    let retention = Retention {
        bytes_max: Some(4096),
        age_max: Some(Duration::ZERO),
        ..Retention::default()
    };
    for _ in 0..2 {
        let log = with(&disk, retention);
        assert_eq!(log.retain().unwrap().start, 100);
        assert_eq!(read_all(&log, 100).unwrap(), [[7; 20_000]]);
        disk.process_kill();
    }
}

#[test]
fn l11_a_file_that_cannot_be_removed_is_tried_again() {
    let disk = SimStorage::new();
    let log = open(&disk);
    fill(&log, 200);
    let before = segments(&disk).len();
    disk.inject(Fault::new(
        OpKind::Remove,
        FaultKind::Error(std::io::ErrorKind::PermissionDenied),
    ));
    assert!(log.remove_before(150).is_err());
    let start = log.start();
    assert!(start > 100);
    log.retain().unwrap();
    assert!(segments(&disk).len() < before - 1);
    assert_eq!(segments(&disk)[0].split('-').next().unwrap(), format!("{start:020}"));
    assert_eq!(read_all(&log, start).unwrap().len() as u64, 200 - start);
}

#[test]
fn l11_ten_records_take_little_disk() {
    let disk = SimStorage::new();
    let log = Options::new().open_storage(Arc::new(disk.clone())).unwrap();
    fill(&log, 10);
    let bytes = || {
        disk.file_names()
            .iter()
            .map(|n| disk.read_file(n).unwrap().len())
            .sum::<usize>()
    };
    assert!(bytes() < 128 << 10, "{} while open", bytes());
    log.close().unwrap();
    assert!(bytes() < 16 << 10, "{} closed", bytes());
}

#[test]
fn l11_an_offset_is_found_by_time() {
    let clock = Arc::new(ByHand::default());
    clock.wall.store(1_700_000_000_000, Ordering::SeqCst);
    let disk = SimStorage::new();
    let log = options()
        .clock(Arc::<ByHand>::clone(&clock))
        .open_storage(Arc::new(disk.clone()))
        .unwrap();
    let mut appended = Vec::new();
    for _ in 0..300u32 {
        appended.push(clock.unix_ms());
        log.append([7; 60]).unwrap();
        clock.pass(Duration::from_millis(400));
    }
    assert!(log.stats().segments > 3);
    for ms in (1_699_999_999_000..1_700_000_125_000).step_by(777) {
        let found = log.offset_at(UNIX_EPOCH + Duration::from_millis(ms)).unwrap();
        let first = appended.iter().position(|at| *at >= ms).unwrap_or(300) as u64;
        assert!(found <= first, "{ms}: {found} is behind {first}");
        // At most about a second too early: three records here.
        assert!(found + 4 >= first, "{ms}: {found} is far before {first}");
    }
    assert_eq!(log.offset_at(SystemTime::UNIX_EPOCH).unwrap(), 0);
    // Also after a restart, and read-only.
    log.close().unwrap();
    let view = options().open_read_only_storage(Arc::new(disk)).unwrap();
    let found = view
        .offset_at(UNIX_EPOCH + Duration::from_millis(appended[150]))
        .unwrap();
    assert!((146..=150).contains(&found), "{found}");
}
