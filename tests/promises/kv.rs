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

#[test]
fn a_typed_view_stores_values_of_a_type_and_tells_others() {
    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Account {
        owner: String,
        cents: i64,
    }
    let dir = tempfile::tempdir().unwrap();
    let store = small().open(dir.path().join("store")).unwrap();
    let accounts = store.typed::<Account>("account/");
    let ada = |cents| Account {
        owner: "Ada".to_owned(),
        cents,
    };
    accounts.put("1", &ada(5)).unwrap();
    let mut batch = Batch::new();
    accounts.put_into(&mut batch, "2", &ada(-7)).unwrap();
    store.write(&batch).unwrap();
    assert_eq!(accounts.get("1").unwrap(), Some(ada(5)));
    assert_eq!(accounts.get("3").unwrap(), None);
    let before = accounts.update("1", |a| a.map(|a| ada(a.cents * 2))).unwrap();
    assert_eq!(before, Some(ada(5)));
    let all: Vec<_> = accounts.iter().map(Result::unwrap).collect();
    assert_eq!(all, [(b"1".to_vec(), ada(10)), (b"2".to_vec(), ada(-7))]);
    assert_eq!(accounts.iter().next_back().unwrap().unwrap().0, b"2");
    store.put("account/4", "no account").unwrap();
    assert!(matches!(
        accounts.get("4"),
        Err(kv::Error::Value { what: "decoded", .. })
    ));
    accounts.delete("4").unwrap();
    assert_eq!(store.snapshot().prefix("account/").count(), 2);
}

#[test]
fn k4_concurrent_writers_and_readers_see_whole_batches_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = small()
        .policy(wal::FsyncPolicy::Os)
        .open(dir.path().join("store"))
        .unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let write = |n: u32| {
        let mut batch = Batch::new();
        for key in 0..5 {
            batch.put(format!("key {key}"), n.to_string());
        }
        store.write(&batch).unwrap()
    };
    write(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(std::sync::atomic::Ordering::SeqCst) || seen == 0 {
                let values: Vec<_> = store.prefix("key ").map(|(_, v)| v.to_vec()).collect();
                assert_eq!(values.len(), 5);
                assert!(values.iter().all(|v| *v == values[0]), "{values:?}");
                seen += 1;
            }
        });
        let writers: Vec<_> = (0..2)
            .map(|thread| {
                scope.spawn(move || {
                    for n in 0..300 {
                        write(n * 2 + thread);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        reader.join().unwrap();
    });
    assert_eq!(store.applied(), 601);
}
