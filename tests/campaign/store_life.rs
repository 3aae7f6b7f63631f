//! Lives of a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use kv::{Batch, Durability, History, Options, Store};
use serde::{Deserialize, Serialize};
use wal::storage::Storage;
use wal::storage::sim::SimStorage;

use super::life::{Lab, Oracle, try_again};
use super::log_life::Level;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// One step of a store's life.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Closes in order if it is open, and opens.
    Open,
    /// Drops the handle without closing in order.
    Kill,
    /// Puts two keys, one of them large, and deletes a third, at once.
    Write(u8, #[serde(with = "Level")] Durability),
    /// Swaps one key if it is as it was.
    Swap(u8),
    Sync,
    Checkpoint,
    Backup,
}

fn options() -> Options {
    let log = wal::Options::new()
        .segment_bytes(1536)
        .mark_delay(std::time::Duration::from_secs(3600));
    Options::new()
        .log(log)
        .checkpoint_bytes(0)
        .history(History::Checkpoints)
}

fn open(disk: &SimStorage) -> kv::Result<Store> {
    options().open_storage(Arc::new(disk.clone()))
}

#[derive(Debug, Clone)]
struct Known {
    /// The state after each write, in order.
    states: Vec<Map>,
    durable: usize,
}

struct Life<'a> {
    disk: &'a SimStorage,
    lab: &'a Lab<'a>,
    store: Option<Store>,
    known: Known,
}

fn contents(snapshot: &kv::Snapshot) -> Map {
    snapshot.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

impl Life<'_> {
    fn store(&self) -> kv::Result<&Store> {
        self.store.as_ref().ok_or(kv::Error::Log(wal::Error::Closed))
    }

    fn written(&self) -> usize {
        self.known.states.len() - 1
    }

    fn step(&mut self, step: Step) -> kv::Result<()> {
        match step {
            Step::Open => {
                if let Some(store) = self.store.take() {
                    store.close()?;
                    self.known.durable = self.written();
                }
                self.open()?;
            }
            Step::Kill => {
                self.disk.process_kill();
                self.store = None;
            }
            Step::Write(n, durability) => {
                let (key, large) = ([n % 5], vec![n; usize::from(n % 4) * 150]);
                let mut batch = Batch::new();
                batch.put(key, &large).put([b'x', n % 3], []).delete([(n + 2) % 5]);
                let mut state = self.known.states.last().cloned().unwrap_or_default();
                state.insert(key.to_vec(), large);
                state.insert(vec![b'x', n % 3], Vec::new());
                state.remove(&[(n + 2) % 5][..]);
                self.known.states.push(state);
                self.store()?.write_with(&batch, durability)?;
                if durability == Durability::Durable {
                    self.known.durable = self.written();
                }
            }
            Step::Swap(n) => {
                let mut state = self.known.states.last().cloned().unwrap_or_default();
                let before = state.insert(b"swap".to_vec(), vec![n]);
                self.known.states.push(state);
                let done = self.store()?.compare_and_swap("swap", before.as_deref(), Some(&[n]))?;
                assert!(done.is_done(), "nobody else writes: {done:?}");
                self.known.durable = self.written();
            }
            Step::Sync => {
                self.store()?.sync()?;
                self.known.durable = self.written();
            }
            Step::Checkpoint => {
                let at = self.store()?.checkpoint()?;
                self.known.durable = self.known.durable.max(at as usize);
            }
            Step::Backup => {
                let copy = self.lab.missing();
                let end = self.store()?.backup_to(&(Arc::new(copy.clone()) as Arc<dyn Storage>))?;
                self.known.durable = self.known.durable.max(end as usize);
                // It is whole whatever becomes of its machine.
                copy.for_each_crash_image(8, 1, |image| {
                    let copied = open(&image).unwrap_or_else(|e| panic!("the backup does not open: {e}"));
                    assert!(
                        copied.report().unusable.is_empty(),
                        "a checkpoint of the backup is damaged"
                    );
                    let state = contents(&copied.snapshot());
                    assert!(state == self.known.states[end as usize], "the backup is another state");
                });
            }
        }
        Ok(())
    }

    fn open(&mut self) -> kv::Result<()> {
        let store = open(self.disk)?;
        self.look(&store);
        self.store = Some(store);
        Ok(())
    }

    /// What opening found whole is durable and seen, unless the disk is full: then the rest follows with the first write.
    fn look(&mut self, store: &Store) {
        let end = store.stats().log.end as usize;
        assert!(end >= self.known.durable, "opening lost what was durable");
        self.known.durable = self.known.durable.max(store.applied() as usize);
        self.known.states.truncate(end + 1);
    }

    /// After a fault: what a program does that wants to go on. It may meet another one.
    fn carry_on(&mut self) {
        let Some(store) = self.store.take() else {
            try_again("opening", || self.open());
            return;
        };
        let durable_end = store.stats().log.durable_end as usize;
        assert!(durable_end >= self.known.durable, "the durable end moved back");
        // Not stopped: what failed was not given an offset.
        match try_again("reopening", || match store.reopen() {
            Err(e @ kv::Error::Log(wal::Error::InvalidOption { .. } | wal::Error::Closed)) => Ok(Err(e)),
            other => other.map(Ok),
        }) {
            Ok(()) => self.look(&store),
            // It could not be loaded, and ended.
            Err(kv::Error::Log(wal::Error::Closed)) => {
                drop(store);
                return try_again("opening", || self.open());
            }
            Err(_) => self.known.states.truncate(store.stats().log.end as usize + 1),
        }
        self.store = Some(store);
    }
}

pub fn live(steps: &[Step], disk: &SimStorage, lab: &Lab<'_>) -> impl Oracle + use<> {
    let mut life = Life {
        disk,
        lab,
        store: None,
        known: Known {
            states: vec![Map::new()],
            durable: 0,
        },
    };
    for step in steps {
        if let Err(e) = life.step(*step) {
            if disk.crashed() || matches!(e, kv::Error::Log(wal::Error::Closed)) {
                break;
            }
            assert!(lab.made().iter().any(|disk| disk.faults_hit() > 0), "{e} at {step:?}");
            life.carry_on();
        }
    }
    life.known
}

impl Oracle for Known {
    fn check(&self, disk: &SimStorage) {
        let store = open(disk).unwrap_or_else(|e| panic!("a crash stopped open: {e}"));
        let snapshot = store.snapshot();
        let at = snapshot.offset() as usize;
        assert!(at >= self.durable, "{} durable, the state is at {at}", self.durable);
        assert!(at < self.states.len(), "a write that was never made");
        assert!(contents(&snapshot) == self.states[at], "not the state at {at}");
        assert!(
            store.report().unusable.is_empty(),
            "a crash damaged a checkpoint: {:?}",
            store.report().unusable
        );
        store.put("on", "x").unwrap_or_else(|e| panic!("{e}"));
        store.close().unwrap_or_else(|e| panic!("{e}"));
        drop(store);
        let verified = kv::verify(&(Arc::new(disk.clone()) as Arc<dyn Storage>)).unwrap_or_else(|e| panic!("{e}"));
        assert!(verified.is_clean(), "verify: {verified:?}");
        let store = open(disk).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(store.applied() as usize, at + 1);
        assert!(store.contains("on").unwrap_or_default());
    }

    fn recover(&self, disk: &SimStorage) -> Box<dyn Oracle> {
        let mut known = self.clone();
        if let Ok(store) = open(disk) {
            let at = store.applied() as usize;
            known.durable = at;
            known.states.truncate(at + 1);
            let mut state = known.states.last().cloned().unwrap_or_default();
            state.insert(b"recovered".to_vec(), Vec::new());
            known.states.push(state);
            if store.put("recovered", "").is_ok() {
                known.durable = at + 1;
                let _ = store.checkpoint();
            }
        }
        Box::new(known)
    }
}
