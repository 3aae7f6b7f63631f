//! The format's promise: versions are told, and every version's files still open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wal::storage::sim::SimStorage;
use wal::{Error, Options};

use super::{open, segments, try_open};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// The golden files, on a disk that may be written.
fn golden_disk() -> SimStorage {
    let disk = SimStorage::new();
    for entry in std::fs::read_dir(golden()).unwrap() {
        let entry = entry.unwrap();
        disk.write_file(
            entry.file_name().to_str().unwrap(),
            &std::fs::read(entry.path()).unwrap(),
        );
    }
    disk
}

/// Made once for each version of the format, with `cargo test --test promises -- --ignored make_golden`.
#[test]
#[ignore = "makes the golden files of the current version"]
fn make_golden() {
    let dir = golden();
    let store = kv::Options::new()
        .log(Options::new().segment_bytes(1024))
        .checkpoint_bytes(0)
        .history(kv::History::Everything)
        .open(&dir)
        .unwrap();
    for n in 0..60u32 {
        store.put(format!("key {:02}", n % 40), format!("value {n}")).unwrap();
        if n == 20 || n == 40 {
            store.checkpoint().unwrap();
        }
    }
    let mut batch = kv::Batch::new();
    batch.put("batch", "").delete("key 03");
    store.write(&batch).unwrap();
    let mut consumer = store.consumer("golden consumer").open().unwrap();
    consumer.poll(33).unwrap();
    consumer.commit().unwrap();
    drop(consumer);
    store.close().unwrap();
    std::fs::remove_file(dir.join("LOCK")).unwrap();
}

#[test]
fn l13_files_of_version_1_open_and_say_what_they_always_said() {
    let disk = golden_disk();
    let storage = || Arc::new(disk.clone()) as Arc<dyn wal::storage::Storage>;
    let verified = kv::verify(&storage()).unwrap();
    assert!(verified.is_clean(), "{verified:?}");
    assert_eq!(
        verified
            .checkpoints
            .iter()
            .map(|c| (c.applied, c.equals_fold))
            .collect::<Vec<_>>(),
        [(41, Some(true)), (21, Some(true))]
    );
    let store = kv::Options::new().checkpoint_bytes(0).open_storage(storage()).unwrap();
    assert_eq!((store.report().checkpoint, store.report().replayed), (Some(41), 20));
    assert_eq!(store.len(), 40);
    assert_eq!(store.get("key 19").unwrap().unwrap(), b"value 59");
    assert_eq!(store.get("batch").unwrap().unwrap(), b"");
    assert_eq!(store.get("key 03").unwrap(), None);
    assert_eq!(
        store.consumer("golden consumer").open_existing().unwrap().committed(),
        33
    );
    assert_eq!(store.put("more", "").unwrap(), 61);
}

#[test]
fn l13_a_newer_version_is_called_newer_wherever_it_stands() {
    let disk = SimStorage::new();
    let log = open(&disk);
    log.append(b"x").unwrap();
    drop(log.consumer("c").open().unwrap());
    log.close().unwrap();
    let consumer = disk
        .file_names()
        .into_iter()
        .find(|n| n.starts_with("consumer-"))
        .unwrap();
    for (name, copies) in [
        ("log.meta", vec![0, 2048, 4096, 6144]),
        (&segments(&disk)[0], vec![0, 2048]),
        (&consumer, vec![0, 2048, 4096, 6144]),
    ] {
        let newer = disk.fork();
        let mut bytes = newer.read_file(name).unwrap();
        for at in copies {
            bytes[at + 8] = 2;
        }
        newer.write_file(name, &bytes);
        let before = newer.fingerprint();
        let error = try_open(&newer).unwrap_err();
        assert!(
            matches!(&error, Error::UnsupportedVersion { found: 2, newest: 1, file } if file.contains(name)),
            "{name}: {error}"
        );
        newer.remove_file("LOCK");
        let again = disk.fork();
        again.write_file(name, &bytes);
        again.remove_file("LOCK");
        assert_eq!(newer.fingerprint(), again.fingerprint(), "{name}: changed");
        assert_ne!(before, 0);
    }
}
