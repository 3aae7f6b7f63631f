//! The store under power cuts.

use std::collections::BTreeMap;
use std::sync::Arc;

use kv::{Batch, Durability, History, Options};
use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    let log = super::options().segment_bytes(2048);
    Options::new().log(log).checkpoint_bytes(0)
}

fn open(disk: &SimStorage) -> kv::Result<kv::Store> {
    options().open_storage(Arc::new(disk.clone()))
}

/// The state after each write, and how many of them were acknowledged as durable.
#[derive(Clone)]
struct Oracle {
    states: Vec<Model>,
    durable: usize,
    checkpoints: u64,
}

impl Oracle {
    fn new() -> Self {
        Self {
            states: vec![Model::new()],
            durable: 0,
            checkpoints: 0,
        }
    }

    fn write(&mut self, store: &kv::Store, changes: &[(&str, Option<&str>)], durability: Durability) -> kv::Result<()> {
        let mut batch = Batch::new();
        let mut state = self.states.last().unwrap().clone();
        for (key, value) in changes {
            match value {
                Some(value) => {
                    batch.put(key, value);
                    state.insert(key.as_bytes().to_vec(), value.as_bytes().to_vec());
                }
                None => {
                    batch.delete(key);
                    state.remove(key.as_bytes());
                }
            }
        }
        self.states.push(state);
        store.write_with(&batch, durability)?;
        if durability == Durability::Durable {
            self.durable = self.states.len() - 1;
        }
        Ok(())
    }

    fn live(&mut self, disk: &SimStorage) -> kv::Result<()> {
        let long = "x".repeat(400);
        for round in 0..3 {
            let store = open(disk)?;
            for n in 0..4 {
                let (a, b) = (format!("a{n}"), format!("b{round}"));
                self.write(
                    &store,
                    &[(&a, Some(&long)), (&b, Some("")), ("gone", None)],
                    Durability::Written,
                )?;
                self.write(&store, &[("gone", Some(&a)), (&a, Some(&b))], Durability::Durable)?;
            }
            store.checkpoint()?;
            self.checkpoints += 1;
            self.durable = self.states.len() - 1;
            self.write(&store, &[("a0", None)], Durability::Durable)?;
            store.close()?;
            self.durable = self.states.len() - 1;
        }
        Ok(())
    }

    fn check(&self, image: &SimStorage, what: &str) {
        let store = open(image).unwrap_or_else(|e| panic!("{what}: a crash stopped open: {e}"));
        let snapshot = store.snapshot();
        let at = snapshot.offset() as usize;
        assert!(
            (self.durable..self.states.len()).contains(&at),
            "{what}: {} durable, state at {at}",
            self.durable
        );
        let seen: Model = snapshot.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert!(seen == self.states[at], "{what}: not the state at {at}");
        store.put("on", "x").unwrap_or_else(|e| panic!("{what}: {e}"));
        store.close().unwrap();
        let verified = kv::verify(&(Arc::new(image.clone()) as _)).unwrap();
        assert!(verified.is_clean(), "{what}: {verified:?}");
    }
}

#[test]
fn k1_k2_k3_k4_no_crash_tears_the_map_from_its_offset() {
    let whole = SimStorage::missing();
    let mut oracle = Oracle::new();
    oracle.live(&whole).unwrap();
    assert_eq!(oracle.checkpoints, 3);
    let mut images = 0;
    for at in 0..whole.mutations() {
        let disk = SimStorage::missing();
        disk.crash_at(at);
        let mut oracle = Oracle::new();
        assert!(oracle.live(&disk).is_err() || !disk.crashed());
        disk.for_each_crash_image(24, at, |image| {
            images += 1;
            oracle.check(&image, &format!("crash at change {at}, image {images}"));
        });
    }
    assert!(images > 1000, "{images}");
}

fn with_checkpoints(history: History) -> SimStorage {
    let disk = SimStorage::new();
    let store = options().history(history).open_storage(Arc::new(disk.clone())).unwrap();
    for n in 0..90u32 {
        store
            .put(format!("key {:02}", n % 50), n.to_string().repeat(10))
            .unwrap();
        if n % 30 == 29 {
            store.checkpoint().unwrap();
        }
    }
    store.put("last", "").unwrap();
    store.close().unwrap();
    disk
}

fn checkpoint_names(disk: &SimStorage) -> Vec<String> {
    disk.file_names()
        .into_iter()
        .filter(|n| n.starts_with("checkpoint-"))
        .collect()
}

#[test]
fn k2_a_damaged_newest_falls_back_and_none_is_never_an_empty_map() {
    let disk = with_checkpoints(History::Checkpoints);
    let names = checkpoint_names(&disk);
    assert_eq!(names.len(), 2, "two are kept");
    let want = open(&disk.fork()).unwrap().snapshot();
    for pos in (0..disk.read_file(&names[1]).unwrap().len()).step_by(7) {
        let hurt = disk.fork();
        hurt.flip_bit(&names[1], pos, pos as u32);
        assert!(
            !kv::verify(&(Arc::new(hurt.clone()) as _)).unwrap().is_clean(),
            "byte {pos}: verify saw nothing"
        );
        let store = open(&hurt).unwrap();
        assert_eq!(store.report().checkpoint, Some(60), "byte {pos}");
        assert_eq!(store.report().unusable.len(), 1);
        assert!(store.snapshot().iter().eq(want.iter()), "byte {pos}");
    }
    for name in &names {
        disk.flip_bit(name, 100, 1);
    }
    let before = disk.fork();
    before.remove_file("LOCK");
    let error = open(&disk).unwrap_err();
    assert!(
        matches!(&error, kv::Error::NoUsableCheckpoint { reasons, .. } if reasons.len() == 2),
        "{error}"
    );
    disk.remove_file("LOCK");
    assert_eq!(disk.fingerprint(), before.fingerprint(), "nothing is changed");
    // With the whole log there, the checkpoints are not needed.
    let disk = with_checkpoints(History::Everything);
    for name in checkpoint_names(&disk) {
        disk.flip_bit(&name, 100, 1);
    }
    let store = open(&disk).unwrap();
    assert_eq!((store.report().checkpoint, store.report().replayed), (None, 91));
    assert!(store.snapshot().iter().eq(want.iter()));
}

#[test]
fn k2_a_checkpoint_of_another_log_or_of_a_longer_one_is_not_believed() {
    let disk = with_checkpoints(History::Everything);
    let other = with_checkpoints(History::Everything);
    let newest = checkpoint_names(&disk)[1].clone();
    let foreign = disk.fork();
    foreign.write_file(&newest, &other.read_file(&newest).unwrap());
    let store = open(&foreign).unwrap();
    assert_eq!(store.report().checkpoint, Some(60));
    assert!(
        store.report().unusable[0].contains("another log"),
        "{:?}",
        store.report().unusable
    );
    drop(store);
    // The log ends before its own checkpoint: it has lost durable records.
    let short = SimStorage::new();
    let early = options()
        .history(History::Everything)
        .open_storage(Arc::new(disk.fork()))
        .unwrap();
    drop(early);
    for name in disk.file_names() {
        short.write_file(&name, &disk.read_file(&name).unwrap());
    }
    let ahead = "checkpoint-00000000000000000090.kv";
    let bytes = short.read_file(ahead).unwrap();
    let fresh = SimStorage::new();
    let log = super::open(&fresh);
    log.append(b"x").unwrap();
    log.close().unwrap();
    fresh.write_file(ahead, &bytes);
    // Of another log: no witness, but no state either.
    assert!(open(&fresh).is_err());
}

#[test]
fn k2_a_checkpoint_of_many_blocks_holds_all_and_is_synced_on_the_way() {
    let disk = SimStorage::new();
    let make = || {
        let log = super::options().segment_bytes(4 << 20).policy(wal::FsyncPolicy::Os);
        Options::new().log(log).checkpoint_bytes(0)
    };
    let store = make().open_storage(Arc::new(disk.clone())).unwrap();
    let value = |n: u32| n.to_le_bytes().repeat(5000);
    for n in 0..900u32 {
        store.put(n.to_be_bytes(), value(n)).unwrap();
    }
    disk.start_trace();
    assert_eq!(store.checkpoint().unwrap(), 900);
    let trace = disk.trace();
    let of_checkpoint = |kind| {
        trace
            .iter()
            .filter(move |op| op.kind == kind && op.file.starts_with("checkpoint"))
    };
    // 18 MB: after every 8, and at the end. No write is larger than a block and an entry.
    assert_eq!(of_checkpoint(OpKind::SyncData).count(), 3);
    assert!(of_checkpoint(OpKind::Write).all(|op| op.len < 300_000));
    assert!(of_checkpoint(OpKind::Write).count() > 60);
    let stats = store.stats();
    assert_eq!((stats.checkpoints_made, stats.bytes_since_checkpoint), (1, 0));
    let name = checkpoint_names(&disk).pop().unwrap();
    assert_eq!(stats.checkpoint_file_bytes, disk.read_file(&name).unwrap().len() as u64);
    store.put("after", "").unwrap();
    assert!(store.stats().bytes_since_checkpoint > 0);

    // The copy in a backup is as good.
    let copy = SimStorage::missing();
    let end = store
        .backup_to(&(Arc::new(copy.clone()) as Arc<dyn wal::storage::Storage>))
        .unwrap();
    assert_eq!(end, 901);
    assert!(copy.read_file(&name).unwrap() == disk.read_file(&name).unwrap());
    copy.power_cut(1);
    disk.process_kill();
    drop(store);
    for disk in [disk, copy] {
        let store = make().open_storage(Arc::new(disk.clone())).unwrap();
        let report = store.report();
        assert_eq!((report.checkpoint, report.loaded, report.replayed), (Some(900), 900, 1));
        assert!((0..900u32).all(|n| store.get(n.to_be_bytes()).unwrap().unwrap()[..] == value(n)));
    }
}

#[test]
fn k2_a_checkpoint_that_fails_leaves_the_last_one_and_can_be_tried_again() {
    let faults = [
        (OpKind::Write, FaultKind::NoSpace),
        (OpKind::SyncData, FaultKind::SyncFails { drop_dirty: true }),
        (OpKind::Rename, FaultKind::Error(std::io::ErrorKind::Other)),
    ];
    for (op, kind) in faults {
        let disk = SimStorage::new();
        let store = open(&disk).unwrap();
        store.put("a", "1").unwrap();
        store.checkpoint().unwrap();
        store.put("a", "2").unwrap();
        disk.inject(Fault::new(op, kind).on_file("checkpoint-"));
        assert!(store.checkpoint().is_err(), "{op:?}");
        store.put("a", "3").unwrap();
        assert_eq!(checkpoint_names(&disk).len(), 1, "{op:?}: something is left");
        let crashed = disk.fork();
        assert_eq!(open(&crashed).unwrap().get("a").unwrap().unwrap(), b"3");
        assert_eq!(store.checkpoint().unwrap(), 3);
    }
}

#[test]
fn k2_a_checkpoint_is_never_ahead_of_the_durable_log() {
    let disk = SimStorage::new();
    let store = options()
        .policy(kv::FsyncPolicy::Os)
        .open_storage(Arc::new(disk.clone()))
        .unwrap();
    for n in 0..3u8 {
        store.put([n], [n; 200]).unwrap();
    }
    assert_eq!(store.stats().log.durable_end, 0);
    assert_eq!(store.checkpoint().unwrap(), 3);
    assert_eq!(store.stats().log.durable_end, 3);
    store.put("more", "").unwrap();
    disk.for_each_crash_image(200, 3, |image| {
        let store = open(&image).unwrap();
        assert_eq!(store.report().checkpoint, Some(3));
        assert!((3..=4).contains(&store.applied()));
    });
}

#[test]
fn k2_a_closed_store_writes_no_checkpoint_beside_its_successor() {
    let disk = SimStorage::new();
    let store = open(&disk).unwrap();
    store.put("a", "1").unwrap();
    store.close().unwrap();
    let successor = open(&disk).unwrap();
    let before = disk.mutations();
    assert!(matches!(store.checkpoint(), Err(kv::Error::Log(wal::Error::Closed))));
    assert!(matches!(store.put("b", ""), Err(kv::Error::Log(wal::Error::Closed))));
    assert!(matches!(store.consumer("c").open(), Err(wal::Error::Closed)));
    assert!(matches!(store.remove_consumer("kv-store"), Err(kv::Error::Log(_))));
    assert_eq!(disk.mutations(), before, "it wrote into a directory that is another's");
    assert_eq!(store.get("a").unwrap().unwrap(), b"1", "reads go on");
    drop(successor);
}

#[test]
fn k2_a_background_checkpoint_is_made_by_bytes_and_its_failure_is_told() {
    let disk = SimStorage::new();
    let store = options()
        .checkpoint_bytes(2000)
        .open_storage(Arc::new(disk.clone()))
        .unwrap();
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !done() {
            assert!(std::time::Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    };
    let fill = || {
        for n in 0..30u8 {
            store.put([n], [n; 100]).unwrap();
        }
    };
    fill();
    wait("no checkpoint", &|| store.stats().checkpoints_made > 0);
    disk.inject(
        Fault::new(OpKind::Create, FaultKind::NoSpace)
            .on_file("checkpoint-")
            .forever(),
    );
    fill();
    wait("no word of the failure", &|| store.checkpoint_failure().is_some());
    assert_eq!(store.put("works", "on").unwrap(), 60);
    assert!(store.close().is_err(), "and at close");
}

/// A store whose log's syncs wait, each for one word.
fn held_at_syncs(disk: &SimStorage) -> (kv::Store, impl Fn(), std::sync::mpsc::Sender<()>) {
    use std::sync::mpsc::channel;
    let store = open(disk).unwrap();
    store.put("a", "durable").unwrap();
    let (entered, at_sync) = channel();
    let (release, go) = channel::<()>();
    let go = std::sync::Mutex::new(go);
    disk.on_op(move |op| {
        if op.kind == OpKind::SyncData && op.file.contains(".wal") {
            let _ = entered.send(());
            let _ = go.lock().unwrap().recv();
        }
    });
    let sync_came = move || {
        at_sync
            .recv_timeout(std::time::Duration::from_secs(20))
            .expect("no sync came")
    };
    (store, sync_came, release)
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !done() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn k5_no_reader_sees_what_a_crash_could_take_back() {
    let disk = SimStorage::new();
    let (store, sync_came, release) = held_at_syncs(&disk);
    let put = |key: &'static str| {
        let store = store.clone();
        std::thread::spawn(move || store.put(key, "not yet").unwrap())
    };
    let first = put("a");
    sync_came();
    assert_eq!(store.get("a").unwrap().unwrap(), b"durable");
    assert_eq!(
        (store.snapshot().get("a").unwrap().to_vec(), store.applied()),
        (b"durable".to_vec(), 1)
    );
    // A second write, which the sync under way does not cover.
    let second = put("b");
    wait_until("never sequenced", || store.stats().log.end == 3);
    release.send(()).unwrap();
    let offset = first.join().unwrap();
    assert!(store.wait_applied(offset, std::time::Duration::from_secs(20)).unwrap());
    assert_eq!(store.get("a").unwrap().unwrap(), b"not yet");
    assert!(!store.contains("b").unwrap(), "seen before its own sync");
    drop(release);
    second.join().unwrap();
    assert!(store.contains("b").unwrap());
}

#[test]
fn k1_k5_a_weaker_write_is_neither_seen_nor_answered_before_a_stronger_one_before_it() {
    let disk = SimStorage::new();
    let (store, sync_came, release) = held_at_syncs(&disk);
    let strong = std::thread::spawn({
        let store = store.clone();
        move || store.put("a", "not yet").unwrap()
    });
    sync_came();
    let weak = std::thread::spawn({
        let store = store.clone();
        move || {
            let mut batch = Batch::new();
            batch.put("b", "");
            let offset = store.write_with(&batch, Durability::Written).unwrap();
            (offset, store.contains("b").unwrap())
        }
    });
    // Nothing else to wait for: a moment in which it could do wrong.
    wait_until("never sequenced", || store.stats().log.end == 3);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!store.contains("b").unwrap() && !weak.is_finished());
    drop(release);
    strong.join().unwrap();
    let (offset, seen) = weak.join().unwrap();
    assert!(seen && store.applied() > offset, "answered before it is seen");
}

#[test]
fn k2_retention_keeps_what_the_older_checkpoint_needs() {
    let disk = SimStorage::new();
    let retention = wal::Retention {
        bytes_max: Some(3000),
        ..wal::Retention::default()
    };
    let log = super::options().segment_bytes(2048).retention(retention);
    let options = || {
        Options::new()
            .log(log.clone())
            .checkpoint_bytes(0)
            .history(History::Everything)
    };
    let store = options().open_storage(Arc::new(disk.clone())).unwrap();
    for n in 0..120u32 {
        store.put([(n % 9) as u8], [7; 300]).unwrap();
        if n == 40 || n == 90 {
            store.checkpoint().unwrap();
        }
    }
    let want = store.snapshot();
    store.close().unwrap();
    drop(store);
    let newest = checkpoint_names(&disk)[1].clone();
    disk.flip_bit(&newest, 100, 1);
    let store = options().open_storage(Arc::new(disk)).unwrap();
    assert_eq!(store.report().checkpoint, Some(41));
    assert!(store.stats().log.start > 0, "nothing was removed at all");
    assert!(store.snapshot().iter().eq(want.iter()));
}

#[test]
fn k5_on_a_full_disk_only_what_is_durable_is_seen_and_the_rest_follows() {
    let disk = SimStorage::new();
    let store = options()
        .policy(kv::FsyncPolicy::Os)
        .open_storage(Arc::new(disk.clone()))
        .unwrap();
    store.put("a", "durable").unwrap();
    store.sync().unwrap();
    store.put("a", "written").unwrap();
    store.put("b", "").unwrap();
    disk.process_kill();
    drop(store);
    // Not even the bytes that are there can be written again.
    disk.inject(Fault::new(OpKind::Write, FaultKind::NoSpace).forever());
    let store = open(&disk).unwrap();
    assert_eq!(store.get("a").unwrap().unwrap(), b"durable");
    assert!(!store.contains("b").unwrap());
    assert!(matches!(
        store.put("c", ""),
        Err(kv::Error::Log(wal::Error::NoSpace { .. }))
    ));
    assert!(store.compare_and_swap("b", None, Some(b"x")).is_err());
    disk.clear_faults();
    assert!(!store.compare_and_swap("b", None, Some(b"x")).unwrap().is_done());
    assert_eq!(store.put("c", "").unwrap(), 3);
    assert_eq!(store.get("a").unwrap().unwrap(), b"written");
    assert!(store.contains("b").unwrap() && store.contains("c").unwrap());
    disk.power_cut(2);
    drop(store);
    assert_eq!(open(&disk).unwrap().len(), 3);
}

#[test]
fn k8_every_offset_from_the_oldest_checkpoint_on_can_be_shown() {
    let disk = with_checkpoints(History::Checkpoints);
    let store = open(&disk).unwrap();
    assert_eq!(store.history().unwrap(), 60..=91);
    for offset in [60, 61, 89, 90, 91] {
        let then = store.at(offset).unwrap();
        assert_eq!(then.offset(), offset);
        let newest = (0..offset).rev().find(|n| n % 50 == 7).unwrap();
        if newest < 90 {
            assert_eq!(then.get("key 07").unwrap(), newest.to_string().repeat(10).as_bytes());
        }
    }
    for wanted in [0, 59, 92] {
        assert!(matches!(
            store.at(wanted),
            Err(kv::Error::OutOfRange { start: 60, end: 91, .. })
        ));
    }
    // Beside the writer, without a lock.
    let view = options().read_storage(Arc::new(disk.clone()), Some(70)).unwrap();
    assert!(view.iter().eq(store.at(70).unwrap().iter()));
}

#[test]
fn k9_disk_use_stays_bounded_under_endless_overwrites() {
    let disk = SimStorage::new();
    let store = options().open_storage(Arc::new(disk.clone())).unwrap();
    let mut sizes = Vec::new();
    for n in 0..4000u32 {
        store.put([(n % 20) as u8], n.to_string().repeat(20)).unwrap();
        if n % 100 == 99 {
            store.checkpoint().unwrap();
            sizes.push(
                disk.file_names()
                    .iter()
                    .map(|n| disk.read_file(n).unwrap().len())
                    .sum::<usize>(),
            );
        }
    }
    let (early, late) = (sizes[5..10].iter().max().unwrap(), sizes[30..].iter().max().unwrap());
    assert!(*late <= early + early / 4, "{early} then {late}");
}

#[test]
fn k1_the_store_recovers_in_place_after_a_failed_sync() {
    let disk = SimStorage::new();
    let store = open(&disk).unwrap();
    store.put("a", "1").unwrap();
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: true }).on_file(".wal"));
    assert!(store.put("a", "2").is_err());
    assert_eq!(store.get("a").unwrap().unwrap(), b"1");
    assert!(store.put("a", "3").is_err());
    store.reopen().unwrap();
    let now = store.get("a").unwrap().unwrap().to_vec();
    assert!(now == b"1" || now == b"2");
    store.put("b", "").unwrap();
    disk.power_cut(4);
    drop(store);
    let store = open(&disk).unwrap();
    assert_eq!(store.get("a").unwrap().unwrap().to_vec(), now);
    assert!(store.contains("b").unwrap());
}

#[test]
fn k1_a_store_that_cannot_be_loaded_again_takes_no_write_over_an_old_map() {
    let disk = SimStorage::new();
    let store = open(&disk).unwrap();
    store.put("a", "1").unwrap();
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: false }).on_file(".wal"));
    store.put("a", "2").unwrap_err();
    // The log comes back, with the second write; the directory cannot be listed for checkpoints.
    disk.inject(Fault::new(OpKind::List, FaultKind::Error(std::io::ErrorKind::Other)).nth(2));
    store.reopen().unwrap_err();
    assert_eq!(disk.faults_hit(), 2);
    let closed = |e| matches!(e, kv::Error::Log(wal::Error::Closed | wal::Error::Poisoned { .. }));
    assert!(closed(store.put("b", "3").unwrap_err()));
    assert!(closed(store.checkpoint().unwrap_err()));
    assert!(closed(store.reopen().unwrap_err()));
    // Its lock is free.
    let again = open(&disk).unwrap();
    assert_eq!(again.get("a").unwrap().unwrap(), b"2");
    again.put("b", "3").unwrap();
    drop(store);
    assert_eq!(again.applied(), 3);
}

#[test]
fn bad_input_is_told_with_sizes_and_places() {
    let disk = SimStorage::new();
    let store = open(&disk).unwrap();
    assert!(matches!(
        store.put(vec![0; kv::KEY_BYTES_MAX + 1], ""),
        Err(kv::Error::KeyTooLarge { .. })
    ));
    assert_eq!(store.put(vec![0; kv::KEY_BYTES_MAX], "").unwrap(), 0);
    drop(store);
    let log = super::options().record_bytes_max(1000);
    let store = Options::new().log(log).open_storage(Arc::new(disk)).unwrap();
    assert!(matches!(
        store.put("k", vec![0; 2000]),
        Err(kv::Error::WriteTooLarge { max: 1000, .. })
    ));
    assert_eq!(store.applied(), 1);
    // Another program's log.
    let disk = SimStorage::new();
    let log = super::open(&disk);
    log.append(b"hello").unwrap();
    log.close().unwrap();
    assert!(matches!(open(&disk), Err(kv::Error::NotAWrite { offset: 0, .. })));
}

#[test]
fn k2_a_store_whose_records_are_damaged_does_not_open_and_is_left_as_it_is() {
    let disk = SimStorage::new();
    let store = open(&disk).unwrap();
    for n in 0..9u8 {
        store.put([n], [n; 300]).unwrap();
    }
    disk.process_kill();
    drop(store);
    let first = disk.file_names().into_iter().find(|n| n.ends_with(".wal")).unwrap();
    // In the first segment: the log itself opens, the replay meets it.
    disk.flip_bit(&first, 4096 + 200, 1);
    let aside = |disk: &SimStorage| {
        let disk = disk.fork();
        disk.remove_file("LOCK");
        disk.fingerprint()
    };
    let before = aside(&disk);
    for _ in 0..2 {
        let error = open(&disk).unwrap_err();
        assert!(matches!(error, kv::Error::Log(wal::Error::Corrupt(_))), "{error}");
        assert_eq!(aside(&disk), before, "it was changed");
    }
}
