//! F: checkpoint and replay.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kv::{Batch, History, Store};
use wal::Error;
use wal::storage::sim::{OpKind, SimStorage};

use super::*;

/// Checkpoints only when asked.
fn by_hand() -> kv::Options {
    kv::Options::new().log(options()).checkpoint_bytes(0)
}

fn open_by_hand(disk: &SimStorage) -> Store {
    by_hand().open_storage(shared(disk)).unwrap_or_else(|e| panic!("{e}"))
}

fn all(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    store.snapshot().iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

fn checkpoints(disk: &SimStorage) -> Vec<String> {
    disk.file_names()
        .into_iter()
        .filter(|n| n.starts_with("checkpoint"))
        .collect()
}

#[test]
fn f01_a_checkpoint_that_is_newer_than_the_log() {
    let disk = SimStorage::new();
    let store = open_by_hand(&disk);
    for n in 0..100u64 {
        store.put(n.to_be_bytes(), mark(n, 20)).unwrap();
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let (file, at) = find(&disk, &mark(50, 20));
    let mut later: Vec<String> = segments(&disk).into_iter().filter(|name| *name > file).collect();
    let cut = disk.fork();
    cut.truncate_file(&file, at.end.next_multiple_of(8));
    later.drain(..).for_each(|name| assert!(cut.remove_file(&name)));
    let emptied = disk.fork();
    segments(&disk)
        .iter()
        .for_each(|name| assert!(emptied.remove_file(name)));
    // Also with the meta file of before, so that the checkpoint alone knows.
    let young = SimStorage::new();
    let store = open_by_hand(&young);
    for n in 0..10u64 {
        store.put(n.to_be_bytes(), mark(n, 20)).unwrap();
    }
    let meta = young.read_file("log.meta").unwrap();
    store.checkpoint().unwrap();
    kill(&young, store);
    young.write_file("log.meta", &meta);
    let (file, at) = find(&young, &mark(5, 20));
    young.truncate_file(&file, at.end.next_multiple_of(8));
    for disk in [cut, emptied, young] {
        let before = fingerprint(&disk);
        let error = try_open_store(&disk).unwrap_err();
        assert!(matches!(&error, kv::Error::Log(Error::Corrupt(_))), "{error}");
        assert_eq!(fingerprint(&disk), before);
    }
}

#[test]
fn f03_the_log_stays_until_the_checkpoint_is_durable() {
    let make = |disk: &SimStorage| {
        let store = by_hand().open_storage(shared(disk))?;
        for n in 0..24u64 {
            store.put((n % 5).to_be_bytes(), mark(n, 400))?;
            if n % 8 == 7 {
                store.checkpoint()?;
            }
        }
        store.close()
    };
    let whole = SimStorage::new();
    make(&whole).unwrap();
    let state = |n: u64| -> BTreeMap<Vec<u8>, Vec<u8>> {
        (0..n).map(|i| ((i % 5).to_be_bytes().to_vec(), mark(i, 400))).collect()
    };
    for step in 0..whole.mutations() {
        let disk = SimStorage::new();
        disk.crash_at(step);
        let _ = make(&disk);
        disk.for_each_crash_image(20, step, |image| {
            let store = open_by_hand(&image);
            assert!(all(&store) == state(store.applied()), "{step}: at {}", store.applied());
        });
    }
}

#[test]
fn f04_writes_that_come_during_a_checkpoint() {
    // A write after the map was taken, and before the log is cut.
    let disk = SimStorage::new();
    let store = open_by_hand(&disk);
    for n in 0..30u64 {
        store.put(n.to_be_bytes(), mark(n, 400)).unwrap();
    }
    store.checkpoint().unwrap();
    let writer = store.clone();
    let once = AtomicBool::new(false);
    disk.on_op(move |op| {
        let publishing = op.kind == OpKind::Rename && op.file.starts_with("checkpoint");
        if publishing && !once.swap(true, Ordering::SeqCst) {
            for n in 100..110u64 {
                writer.put(n.to_be_bytes(), mark(n, 400)).unwrap();
            }
        }
    });
    store.put("before", "before").unwrap();
    let covered = store.checkpoint().unwrap();
    assert_eq!((covered, store.applied()), (31, 41));
    disk.power_cut(1);
    drop(store);
    let store = open_by_hand(&disk);
    assert_eq!((store.len(), store.report().replayed), (41, 10));
    kill(&disk, store);
    // Writers, checkpoints and power cuts, again and again.
    let disk = SimStorage::new();
    for round in 0..40u64 {
        let store = open_by_hand(&disk);
        for key in 0..round * 20 {
            assert!(
                store.get(key.to_be_bytes()).unwrap().is_some(),
                "round {round} lost {key}"
            );
        }
        let writing = AtomicU64::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (store, writing) = (&store, &writing);
                scope.spawn(move || {
                    for n in 0..5u64 {
                        store
                            .put((round * 20 + thread * 5 + n).to_be_bytes(), mark(n, 200))
                            .unwrap();
                    }
                    writing.fetch_sub(1, Ordering::SeqCst);
                });
            }
            while writing.load(Ordering::SeqCst) > 0 {
                store.checkpoint().unwrap();
            }
        });
        disk.power_cut(round);
        drop(store);
    }
}

#[test]
fn f05_the_border_between_checkpoint_and_log() {
    for n in 0..=20u64 {
        for covered in [n, n / 2, n.saturating_sub(1)] {
            let disk = SimStorage::new();
            let store = open_by_hand(&disk);
            for i in 0..n {
                // Where a segment ends is a border too.
                store.put(i.to_be_bytes(), mark(i, 1300)).unwrap();
                if i + 1 == covered {
                    assert_eq!(store.checkpoint().unwrap(), covered);
                }
            }
            kill(&disk, store);
            let store = open_by_hand(&disk);
            let report = store.report();
            assert_eq!(report.checkpoint.unwrap_or(0), covered);
            assert_eq!(report.replayed, n - covered);
            assert_eq!(
                all(&store),
                (0..n).map(|i| (i.to_be_bytes().to_vec(), mark(i, 1300))).collect()
            );
            kill(&disk, store);
        }
    }
}

#[test]
fn f08_a_batch_is_there_as_a_whole_or_not_at_all() {
    let batch = |version: u8| {
        let mut batch = Batch::new();
        for key in 0..100u32 {
            batch.put(key.to_be_bytes(), [version; 60]);
        }
        batch
    };
    let disk = SimStorage::new();
    let store = kv::Options::new().log(manual()).open_storage(shared(&disk)).unwrap();
    store.write(&batch(1)).unwrap();
    store.sync().unwrap();
    store.write(&batch(2)).unwrap();
    kill(&disk, store);
    let (file, first) = find(&disk, &[2; 60]);
    let len = disk.read_file(&file).unwrap().len();
    let versions = |disk: &SimStorage| -> Vec<u8> {
        let store = open_store(disk);
        let mut seen: Vec<u8> = all(&store).values().map(|value| value[0]).collect();
        assert_eq!(seen.len(), 100);
        seen.dedup();
        kill(disk, store);
        seen
    };
    assert_eq!(versions(&disk.fork()), [2]);
    for at in (first.start - 50..first.start + 6500).step_by(37) {
        let cut = disk.fork();
        cut.truncate_file(&file, at);
        assert_eq!(versions(&cut), [1], "cut at {at}");
        let zeroed = disk.fork();
        zero(&zeroed, &file, at..len);
        assert_eq!(versions(&zeroed), [1], "zeros from {at}");
        let hole = disk.fork();
        zero(&hole, &file, at..(at + 512).min(len));
        assert!(matches!(versions(&hole)[..], [1] | [2]), "a hole at {at}");
    }
    // Readers beside a writer see one version; so does the change feed.
    let disk = SimStorage::new();
    let store = open_store(&disk);
    store.write(&batch(0)).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..60).for_each(|version| assert!(store.write(&batch(version)).is_ok())));
        while !writer.is_finished() {
            let mut seen: Vec<u8> = store.snapshot().iter().map(|(_, value)| value[0]).collect();
            seen.dedup();
            assert_eq!(seen.len(), 1, "half of a batch was seen");
        }
    });
    let mut watch = store.watch(0).unwrap();
    for version in 0..60 {
        let committed = watch.next().unwrap().unwrap();
        assert_eq!(committed.changes.len(), 100);
        assert!(
            committed
                .changes
                .iter()
                .all(|c| c.value.as_deref() == Some(&[version; 60]))
        );
    }
}

#[test]
fn f09_the_newest_checkpoint_is_bad() {
    let make = |history| {
        let disk = SimStorage::new();
        let store = by_hand().history(history).open_storage(shared(&disk)).unwrap();
        for n in 0..60u64 {
            store.put((n % 9).to_be_bytes(), mark(n, 200)).unwrap();
            if n % 20 == 19 {
                store.checkpoint().unwrap();
            }
        }
        store.put("last", "last").unwrap();
        let expected = all(&store);
        kill(&disk, store);
        (disk, expected)
    };
    let (disk, expected) = make(History::Checkpoints);
    let names = checkpoints(&disk);
    let newest = names.last().unwrap();
    let len = disk.read_file(newest).unwrap().len();
    let check = |disk: &SimStorage, what: &str| {
        let store = try_open_store(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(all(&store) == expected, "{what}");
        let fell_back = store.report().checkpoint != Some(60);
        assert_eq!(fell_back, !store.report().unusable.is_empty(), "{what}: no word");
        kill(disk, store);
        fell_back
    };
    for pos in 0..len {
        let disk = disk.fork();
        disk.flip_bit(newest, pos, pos as u32);
        check(&disk, &format!("byte {pos}"));
    }
    for kept in [0, 1, 64, len / 2, len - 1] {
        let disk = disk.fork();
        disk.truncate_file(newest, kept);
        assert!(check(&disk, &format!("{kept} bytes")));
    }
    // Both are bad, and the log no longer reaches back: told, and nothing is touched.
    let both = disk.fork();
    names.iter().for_each(|name| assert!(both.truncate_file(name, 100)));
    let before = fingerprint(&both);
    let error = try_open_store(&both).unwrap_err();
    assert!(matches!(error, kv::Error::NoUsableCheckpoint { .. }), "{error}");
    assert_eq!(fingerprint(&both), before);
    // Where it does, the whole log is replayed.
    let (disk, expected) = make(History::Everything);
    checkpoints(&disk)
        .iter()
        .for_each(|name| assert!(disk.truncate_file(name, 100)));
    let store = open_store(&disk);
    assert!(all(&store) == expected && store.report().checkpoint.is_none());
}

#[test]
fn f11_positions_are_offsets_and_each_leads_to_its_record() {
    let disk = SimStorage::new();
    let records: Vec<_> = (0..60).map(|n| mark(n, 20 + (n as usize * 37) % 400)).collect();
    kill(&disk, filled(&disk, &records));
    for offset in (0..60).rev() {
        let log = open(&disk);
        let mut consumer = log.consumer("reader").open().unwrap();
        consumer.seek(offset).unwrap();
        drop(consumer);
        kill(&disk, log);
        let log = open(&disk);
        let mut consumer = log.consumer("reader").open().unwrap();
        assert_eq!(consumer.committed(), offset);
        let record = consumer.next().unwrap().unwrap();
        assert!(record.offset == offset && record.bytes == records[offset as usize]);
        drop(consumer);
        kill(&disk, log);
    }
}

#[test]
fn f12_marks_never_move_back() {
    // The first checkpoint is held before it is published, and a second one is asked for.
    let disk = SimStorage::new();
    let store = open_by_hand(&disk);
    for n in 0..40u64 {
        store.put((n % 3).to_be_bytes(), mark(n, 400)).unwrap();
    }
    let (held, gate) = (
        std::sync::Arc::new(AtomicBool::new(false)),
        std::sync::Arc::new(AtomicBool::new(false)),
    );
    let (holding, open_gate) = (held.clone(), gate.clone());
    disk.on_op(move |op| {
        if op.kind == OpKind::Rename && op.file.starts_with("checkpoint") && !holding.swap(true, Ordering::SeqCst) {
            while !open_gate.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| store.checkpoint().unwrap());
        while !held.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        store.put("later", "later").unwrap();
        let second = scope.spawn(|| store.checkpoint().unwrap());
        gate.store(true, Ordering::SeqCst);
        assert!(first.join().unwrap() <= second.join().unwrap());
    });
    disk.power_cut(3);
    drop(store);
    let store = open_by_hand(&disk);
    assert_eq!((store.report().checkpoint, store.len()), (Some(41), 4));
    kill(&disk, store);
    // A consumer's commit: told, not done.
    let disk = SimStorage::new();
    let log = filled(&disk, &marks(0..10, 50));
    let mut consumer = log.consumer("reader").open().unwrap();
    consumer.poll(8).unwrap();
    consumer.commit().unwrap();
    let error = consumer.commit_to(5).unwrap_err();
    assert!(
        matches!(
            error,
            Error::CommitOutOfRange {
                wanted: 5,
                committed: 8,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(consumer.committed(), 8);
    consumer.seek(5).unwrap();
    assert_eq!(consumer.committed(), 5);
}

/// Records of one overwritten value that take more memory than the process of [`replay`] gets.
const OVERWRITES: u64 = 320_000;

#[test]
#[cfg(target_os = "linux")]
fn f15_replay_needs_little_memory() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("store");
    let policy = FsyncPolicy::Os;
    let make = kv::Options::new()
        .log(Options::new().policy(policy))
        .checkpoint_bytes(0);
    let store = make.history(History::Everything).open(&path).unwrap();
    let value = vec![b'x'; 1000];
    for n in 0..OVERWRITES {
        store.put((n % 3).to_be_bytes(), &value).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let mut child = super::h_processes::child("replay", &path);
    let (program, arguments) = (
        child.get_program().to_owned(),
        child.get_args().map(ToOwned::to_owned).collect::<Vec<_>>(),
    );
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -v 200000 && exec \"$0\" \"$@\""])
        .arg(program)
        .args(arguments);
    limited
        .envs(child.get_envs().filter_map(|(k, v)| Some((k, v?))))
        .env("MALLOC_ARENA_MAX", "1");
    child = limited;
    let output = child.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("replayed 320000"),
        "{output:?}"
    );
}

/// Opens a store in a process that may take only so much memory.
pub fn replay(dir: &std::path::Path) {
    let store = kv::Options::new().history(History::Everything).open(dir).unwrap();
    assert_eq!(store.len(), 3);
    println!("replayed {}", store.report().replayed);
}

#[test]
fn f14_replay_is_a_function_of_the_log() {
    let disk = SimStorage::new();
    let store = by_hand()
        .history(History::Everything)
        .open_storage(shared(&disk))
        .unwrap();
    let mut random = 88_172_645_463_325_252u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for n in 0..400u64 {
        let key = [next(12) as u8];
        match next(5) {
            0 => assert!(store.delete(key).is_ok()),
            // Conditions that hold, and such that do not.
            1 => {
                let guess = [next(4) as u8];
                let new = (next(3) > 0).then_some(&b"swapped"[..]);
                let expected = (next(2) > 0).then_some(&guess[..]);
                assert!(store.compare_and_swap(key, expected, new).is_ok());
            }
            2 => {
                let raised = |old: Option<&[u8]>| old.map(|v| v.iter().map(|b| b.wrapping_add(1)).collect());
                assert!(store.fetch_and_update(key, raised).is_ok());
            }
            3 => assert!(store.put(key, [next(4) as u8]).is_ok()),
            _ => assert!(store.put(key, n.to_le_bytes()).is_ok()),
        }
        if n % 90 == 89 {
            store.checkpoint().unwrap();
        }
    }
    let expected = all(&store);
    kill(&disk, store);
    let verified = kv::verify(&shared(&disk)).unwrap();
    assert!(
        verified.is_clean() && verified.checkpoints.iter().all(|c| c.equals_fold == Some(true)),
        "{verified:?}"
    );
    assert!(verified.checkpoints.len() >= 2);
    // From every checkpoint, and from none.
    for keep in 0..=checkpoints(&disk).len() {
        let disk = disk.fork();
        for name in checkpoints(&disk).iter().skip(keep) {
            disk.remove_file(name);
        }
        let store = open_by_hand(&disk);
        assert!(all(&store) == expected, "from {:?}", store.report().checkpoint);
        kill(&disk, store);
    }
}
