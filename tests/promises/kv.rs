use std::collections::BTreeMap;
use std::sync::Arc;

use kv::{Batch, Options, Swap};
use wal::storage::{FsStorage, Storage};

fn storage(dir: &std::path::Path) -> Arc<dyn Storage> {
    Arc::new(FsStorage::new(dir))
}

fn small() -> Options {
    Options::new()
        .log(wal::Options::new().segment_bytes(4096))
        .checkpoint_bytes(0)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn equals(store: &kv::Snapshot, model: &Model) -> bool {
    store
        .iter()
        .map(|(k, v)| (k.to_vec(), v.to_vec()))
        .eq(model.iter().map(|(k, v)| (k.clone(), v.clone())))
}

#[test]
fn k1_k2_state_survives_reopening_with_and_without_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut model = Model::new();
    for round in 0..6u32 {
        let store = small().open(&path).unwrap();
        assert!(equals(&store.snapshot(), &model), "{:?}", store.report());
        for n in 0..150u32 {
            let key = format!("key {:03}", (n * 7 + round * 13) % 200);
            if n % 5 == 0 {
                store.delete(&key).unwrap();
                model.remove(key.as_bytes());
            } else {
                let value = format!("{round} {n}");
                store.put(&key, &value).unwrap();
                model.insert(key.into_bytes(), value.into_bytes());
            }
            if n == 70 && round > 0 {
                store.checkpoint().unwrap();
            }
        }
        if round % 2 == 0 {
            store.close().unwrap();
        }
    }
    let store = small().open(&path).unwrap();
    assert!(equals(&store.snapshot(), &model));
    let report = store.report();
    assert_eq!(report.checkpoint, Some(5 * 150 + 71));
    assert_eq!(report.replayed, 79);
    assert_eq!(store.stats().checkpoints.len(), 2);
    assert!(store.stats().log.start > 0, "retention follows checkpoints");
    let verified = kv::verify(&storage(&path)).unwrap();
    assert!(verified.is_clean(), "{verified:?}");
    assert_eq!(verified.checkpoints[0].equals_fold, Some(true));
    assert_eq!(verified.fold.unwrap().to, 900);
}

#[test]
fn k4_compare_and_swap_counts_every_increment_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = small()
        .policy(wal::FsyncPolicy::Os)
        .open(dir.path().join("store"))
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    store
                        .fetch_and_update("n", |v| {
                            let n: u64 = v.map_or(0, |v| std::str::from_utf8(v).unwrap().parse().unwrap());
                            Some((n + 1).to_string().into_bytes())
                        })
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(store.get("n").unwrap().unwrap(), b"400");
    assert_eq!(
        store.compare_and_swap("n", None, Some(b"1")).unwrap(),
        Swap::Found(Some((&b"400"[..]).into()))
    );
    assert!(store.compare_and_swap("n", Some(b"400"), None).unwrap().is_done());
    assert!(!store.contains("n").unwrap());
}

#[test]
fn k7_k8_changes_and_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = small().open(&path).unwrap();
    let mut watch = store.watch(0).unwrap();
    let mut batch = Batch::new();
    batch.put("a", "1").put("b", "").delete("c");
    assert_eq!(store.write(&batch).unwrap(), 0);
    store.put("a", "2").unwrap();
    let first = watch.next().unwrap().unwrap();
    assert_eq!((first.offset, first.changes.len()), (0, 3));
    assert_eq!(first.changes[1].value.as_deref(), Some(&b""[..]));
    assert_eq!(first.changes[2].value, None);
    assert_eq!(watch.next().unwrap().unwrap().offset, 1);
    let then = store.at(1).unwrap();
    assert_eq!(then.get("a").unwrap(), b"1");
    assert_eq!(store.get("a").unwrap().unwrap(), b"2");
    assert!(matches!(
        store.at(3),
        Err(kv::Error::OutOfRange {
            wanted: 3,
            start: 0,
            end: 2
        })
    ));
    store.close().unwrap();
    assert!(watch.next().unwrap().is_none());
    assert_eq!(small().read_at(&path, 1).unwrap().get("a").unwrap(), b"1");
}
