//! Lives of a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use kv::{Batch, Durability, History as KeptLog, Options, Store};
use wal::storage::Storage;
use wal::storage::sim::SimStorage;

use super::engine::{History, Oracle};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// One step of a store's life.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Closes in order if it is open, and opens.
    Open,
    /// Drops the handle without closing in order.
    Kill,
    /// Puts two keys, one of them large, and deletes a third, at once.
    Write(u8, Durability),
    /// Swaps one key if it is as it was.
    Swap(u8),
    Sync,
    Checkpoint,
    Backup,
}

pub struct StoreHistory(pub Vec<Step>);

fn options() -> Options {
    let log = wal::Options::new()
        .segment_bytes(1536)
        .mark_delay(std::time::Duration::from_secs(3600));
    Options::new()
        .log(log)
        .checkpoint_bytes(0)
        .history(KeptLog::Checkpoints)
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
                self.store = Some(open(self.disk)?);
                self.known.durable = self.store()?.applied() as usize;
                self.known.states.truncate(self.known.durable + 1);
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
                let copy = SimStorage::missing();
                let end = self.store()?.backup_to(&(Arc::new(copy.clone()) as Arc<dyn Storage>))?;
                self.known.durable = self.known.durable.max(end as usize);
                let copied = open(&copy)?;
                assert!(
                    contents(&copied.snapshot()) == self.known.states[end as usize],
                    "the backup is another state"
                );
            }
        }
        Ok(())
    }
}

impl History for StoreHistory {
    fn describe(&self) -> String {
        format!("store {:?}", self.0)
    }

    fn live(&self, disk: &SimStorage) -> Box<dyn Oracle> {
        let mut life = Life {
            disk,
            store: None,
            known: Known {
                states: vec![Map::new()],
                durable: 0,
            },
        };
        for step in &self.0 {
            if let Err(e) = life.step(*step) {
                let closed = matches!(e, kv::Error::Log(wal::Error::Closed));
                assert!(disk.crashed() || closed, "{e} at {step:?} of {}", self.describe());
                break;
            }
        }
        Box::new(life.known)
    }

    fn shorter(&self) -> Vec<Box<dyn History>> {
        let without = |n: usize| {
            let mut steps = self.0.clone();
            steps.remove(n);
            Box::new(Self(steps)) as Box<dyn History>
        };
        (0..self.0.len()).rev().map(without).collect()
    }
}

impl Oracle for Known {
    fn check(&self, image: &SimStorage) {
        let store = open(image).unwrap_or_else(|e| panic!("a crash stopped open: {e}"));
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
        let verified = kv::verify(&(Arc::new(image.clone()) as Arc<dyn Storage>)).unwrap_or_else(|e| panic!("{e}"));
        assert!(verified.is_clean(), "verify: {verified:?}");
        let store = open(image).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(store.applied() as usize, at + 1);
        assert!(store.contains("on").unwrap_or_default());
    }

    fn recover(&self, image: &SimStorage) -> Box<dyn Oracle> {
        let mut known = self.clone();
        if let Ok(store) = open(image) {
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
