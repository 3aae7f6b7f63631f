//! What a store shows: snapshots, watches, waiting, opening at old states, and checkpoints that cannot be used.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kv::{Batch, History, Options, Store};
use wal::storage::Storage;
use wal::storage::sim::SimStorage;

fn options() -> Options {
    Options::new().log(super::options()).checkpoint_bytes(0)
}

fn open(disk: &SimStorage) -> Store {
    options().open_storage(Arc::new(disk.clone())).unwrap()
}

fn keys(entries: impl Iterator<Item = (kv::Key, kv::Value)>) -> Vec<Vec<u8>> {
    entries.map(|(key, _)| key.to_vec()).collect()
}

#[test]
fn k5_a_snapshot_stays_as_it_was() {
    let store = open(&SimStorage::new());
    assert!(store.is_empty() && store.snapshot().is_empty());
    let mut batch = Batch::new();
    assert!(batch.is_empty());
    for key in ["a/1", "a/2", "b/1"] {
        batch.put(key, "value");
    }
    assert_eq!((batch.len(), batch.is_empty()), (3, false));
    store.write(&batch).unwrap();
    let snapshot = store.snapshot();
    store.delete("a/1").unwrap();
    store.put("c", "new").unwrap();
    assert_eq!((snapshot.len(), snapshot.bytes()), (3, 24));
    assert!(!snapshot.is_empty() && snapshot.contains("a/1") && !snapshot.contains("c"));
    assert_eq!(snapshot.get("a/1").unwrap(), *b"value");
    assert_eq!(keys(snapshot.prefix("a/")), [b"a/1", b"a/2"]);
    assert_eq!(keys((&snapshot).into_iter()), keys(snapshot.iter()));
    assert_eq!(keys(snapshot.prefix([0xff])).len(), 0);
    assert!(!store.is_empty() && !store.contains("a/1").unwrap());
}

#[test]
fn k7_a_watch_shows_the_writes_of_a_prefix_and_waits_no_longer_than_told() {
    let store = open(&SimStorage::new());
    store.put("other", "1").unwrap();
    let mut both = Batch::new();
    both.put("x/1", "2").put("other", "3");
    let at = store.write(&both).unwrap();
    store.delete("x/1").unwrap();
    store.put("last", "4").unwrap();
    let mut watch = store.watch(0).unwrap().prefix("x/");
    assert_eq!(watch.offset(), 0);
    let seen = watch.next_timeout(Duration::ZERO).unwrap().unwrap();
    assert_eq!(seen.offset, at);
    assert_eq!(seen.changes.len(), 1);
    assert_eq!(seen.changes[0].value.as_deref(), Some(&b"2"[..]));
    let seen = watch.next_timeout(Duration::ZERO).unwrap().unwrap();
    assert_eq!((seen.offset, &seen.changes[0].value), (at + 1, &None));
    assert!(watch.next_timeout(Duration::ZERO).unwrap().is_none());
    assert_eq!(watch.offset(), at + 3, "it does not look twice");
}

#[test]
fn k5_waiting_for_a_write_ends_when_it_is_applied_or_the_time_is_up_or_the_log_stops() {
    let disk = SimStorage::new();
    let store = open(&disk);
    let offset = store.put("a", "1").unwrap();
    assert!(store.wait_applied(offset, Duration::ZERO).unwrap());
    assert!(!store.wait_applied(offset + 1, Duration::ZERO).unwrap());
    disk.inject(super::failing_sync());
    store.put("b", "2").unwrap_err();
    let stopped = store.wait_applied(offset + 9, Duration::from_secs(3600));
    assert!(
        matches!(stopped, Err(kv::Error::Log(wal::Error::Poisoned { .. }))),
        "{stopped:?}"
    );
}

#[test]
fn k7_a_store_s_consumers_times_and_backups_are_its_log_s() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    assert!(options().create(false).open(&path).is_err(), "made, unasked");
    let store = options()
        .clock(Arc::new(wal::clock::SystemClock::new()))
        .open(&path)
        .unwrap();
    let before = SystemTime::now() - Duration::from_secs(3600);
    for n in 0..10u8 {
        store.put([n], [n]).unwrap();
    }
    assert_eq!(store.offset_at(before).unwrap(), 0);
    drop(store.consumer("c").open().unwrap());
    store.reset_consumer("c", 4).unwrap();
    let listed = store.consumers();
    let ours = listed.iter().find(|info| info.name == "c").unwrap();
    assert_eq!(ours.committed, 4);
    assert_eq!(store.backup(&copy).unwrap(), 10);
    store.put("behind", "it").unwrap();
    let snapshot = options().read(&copy).unwrap();
    assert_eq!((snapshot.offset(), snapshot.len()), (10, 10));
}

#[test]
fn k1_a_checkpoint_that_the_log_does_not_bear_out_is_told_and_passed_over() {
    // Of another history: the same log's identity, other records below its offset.
    let disk = SimStorage::new();
    drop(open(&disk));
    let (ours, theirs) = (disk.fork(), disk.fork());
    for (disk, value) in [(&ours, "ours"), (&theirs, "theirs")] {
        let store = options()
            .history(History::Everything)
            .open_storage(Arc::new(disk.clone()))
            .unwrap();
        store.put("key", value).unwrap();
        if value == "theirs" {
            store.checkpoint().unwrap();
        }
        store.close().unwrap();
    }
    for name in ours.file_names().iter().filter(|n| n.starts_with("checkpoint-")) {
        ours.remove_file(name);
    }
    for name in theirs.file_names().iter().filter(|n| n.starts_with("checkpoint-")) {
        ours.write_file(name, &theirs.read_file(name).unwrap());
    }
    let store = open(&ours);
    assert_eq!(store.get("key").unwrap().unwrap(), *b"ours");
    let unusable = store.report().unusable.join("\n");
    assert!(unusable.contains("another record"), "{unusable}");
}

#[test]
fn k1_without_a_checkpoint_and_without_the_log_s_beginning_nothing_is_made_up() {
    let disk = SimStorage::new();
    let store = open(&disk);
    for n in 0..200u32 {
        store.put(n.to_le_bytes(), [7; 90]).unwrap();
        if n % 50 == 49 {
            store.checkpoint().unwrap();
        }
    }
    store.close().unwrap();
    drop(store);
    for name in disk.file_names().iter().filter(|n| n.starts_with("checkpoint-")) {
        disk.remove_file(name);
    }
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let before = disk.fingerprint();
    match options().open_storage(Arc::clone(&storage)) {
        Err(kv::Error::NoUsableCheckpoint { log_start, reasons }) => {
            assert!(log_start > 0);
            assert_eq!(reasons, ["there is none"]);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        options().read_storage(storage, None),
        Err(kv::Error::NoUsableCheckpoint { .. })
    ));
    assert_eq!(disk.fingerprint(), before, "refused, and changed");
}
