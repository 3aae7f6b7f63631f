//! The store against a map, and a vector of all that the map ever was.

use std::collections::BTreeMap;

use kv::{Batch, Durability, History, Store, Swap};
use proptest::collection::vec;
use proptest::prelude::*;
use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};

use super::{config, options, shared};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Put(u8, usize, Durability),
    Delete(u8),
    Batch(Vec<(u8, Option<u8>)>),
    Swap(u8, bool, Option<u8>),
    Update(u8),
    Get(u8),
    Range(u8, u8),
    At(u64),
    Checkpoint,
    Sync,
    Close,
    Kill,
    PowerCut(u64),
    Fail(OpKind, FaultKind, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0u8..8;
    let level = prop_oneof![3 => Just(Durability::Durable), 1 => Just(Durability::Written)];
    let fault = prop_oneof![
        Just((OpKind::SyncData, FaultKind::SyncFails { drop_dirty: true })),
        Just((OpKind::Write, FaultKind::Error(std::io::ErrorKind::Other))),
        Just((OpKind::Rename, FaultKind::Error(std::io::ErrorKind::Other))),
        Just((OpKind::Create, FaultKind::NoSpace)),
        Just((OpKind::List, FaultKind::Error(std::io::ErrorKind::Other))),
    ];
    prop_oneof![
        6 => (key(), 0usize..400, level).prop_map(|(k, len, level)| Step::Put(k, len, level)),
        2 => key().prop_map(Step::Delete),
        2 => vec((key(), any::<Option<u8>>()), 0..6).prop_map(Step::Batch),
        2 => (key(), any::<bool>(), any::<Option<u8>>()).prop_map(|(k, holds, new)| Step::Swap(k, holds, new)),
        1 => key().prop_map(Step::Update),
        2 => key().prop_map(Step::Get),
        1 => (key(), key()).prop_map(|(a, b)| Step::Range(a, b)),
        2 => (0u64..=100).prop_map(Step::At),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::Sync),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        2 => any::<u64>().prop_map(Step::PowerCut),
        1 => (fault, 1u64..6).prop_map(|((op, fault), nth)| Step::Fail(op, fault, nth)),
    ]
}

struct Run {
    disk: SimStorage,
    store: Store,
    /// The map after each write; the last is what it is now.
    states: Vec<Map>,
    durable: usize,
}

fn open(disk: &SimStorage) -> kv::Result<Store> {
    let options = kv::Options::new().log(options()).checkpoint_bytes(0);
    options.history(History::Everything).open_storage(shared(disk))
}

fn contents(snapshot: &kv::Snapshot) -> Map {
    snapshot.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

impl Run {
    fn new() -> Self {
        let disk = SimStorage::new();
        Self {
            store: open(&disk).unwrap(),
            disk,
            states: vec![Map::new()],
            durable: 0,
        }
    }

    fn now(&self) -> &Map {
        self.states.last().unwrap()
    }

    /// Opened again. What may go wrong meanwhile is the campaign's to try.
    fn opened(&mut self) {
        self.disk.clear_faults();
        self.store = open(&self.disk).unwrap();
        self.is_one_of_its_states();
    }

    fn is_one_of_its_states(&mut self) {
        let at = self.store.applied() as usize;
        assert!(
            at >= self.durable && at < self.states.len(),
            "{at} of {}, {} durable",
            self.states.len(),
            self.durable
        );
        self.states.truncate(at + 1);
        self.durable = at;
        assert!(contents(&self.store.snapshot()) == *self.now());
    }

    fn wrote(&mut self, next: Map, write: impl FnOnce(&Store) -> kv::Result<u64>, durable: bool) -> kv::Result<()> {
        self.states.push(next);
        let offset = write(&self.store)?;
        assert_eq!(offset as usize + 2, self.states.len());
        if durable {
            self.durable = self.states.len() - 1;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> kv::Result<()> {
        let mut next = self.now().clone();
        match step {
            Step::Put(key, len, level) => {
                let value = vec![*len as u8; *len];
                next.insert(vec![*key], value.clone());
                let mut batch = Batch::new();
                batch.put([*key], &value);
                self.wrote(
                    next,
                    |store| store.write_with(&batch, *level),
                    *level == Durability::Durable,
                )?;
            }
            Step::Delete(key) => {
                next.remove(&[*key][..]);
                self.wrote(next, |store| store.delete([*key]), true)?;
            }
            Step::Batch(changes) => {
                let mut batch = Batch::new();
                for (key, value) in changes {
                    match value {
                        Some(value) => {
                            batch.put([*key], [*value]);
                            next.insert(vec![*key], vec![*value]);
                        }
                        None => {
                            batch.delete([*key]);
                            next.remove(&[*key][..]);
                        }
                    }
                }
                self.wrote(next, |store| store.write(&batch), true)?;
            }
            Step::Swap(key, holds, new) => {
                let current = next.get(&[*key][..]).cloned();
                let expected = if *holds {
                    current.clone()
                } else {
                    Some(b"never".to_vec())
                };
                let new = new.map(|value| vec![value]);
                match &new {
                    Some(new) => drop(next.insert(vec![*key], new.clone())),
                    None => drop(next.remove(&[*key][..])),
                }
                if *holds {
                    self.states.push(next);
                }
                match self
                    .store
                    .compare_and_swap([*key], expected.as_deref(), new.as_deref())?
                {
                    Swap::Done(_) => {
                        assert!(holds);
                        self.durable = self.states.len() - 1;
                    }
                    Swap::Found(found) => {
                        assert!(!holds);
                        assert_eq!(found.map(|v| v.to_vec()), current);
                    }
                }
            }
            Step::Update(key) => {
                let before = next.get(&[*key][..]).cloned();
                let raised = |old: Option<&[u8]>| Some(vec![old.map_or(0, |v| v.len() as u8)]);
                next.insert(vec![*key], vec![before.as_ref().map_or(0, |v| v.len() as u8)]);
                self.states.push(next);
                let update = self.store.fetch_and_update([*key], raised)?;
                assert_eq!(update.before.map(|v| v.to_vec()), before);
                self.durable = self.states.len() - 1;
            }
            Step::Get(key) => {
                let found = self.store.get([*key])?.map(|v| v.to_vec());
                assert_eq!(found.as_ref(), self.now().get(&[*key][..]));
            }
            Step::Range(a, b) => {
                let (from, to) = (vec![*a.min(b)], vec![*a.max(b)]);
                let found: Vec<_> = self
                    .store
                    .range(from.clone()..to.clone())
                    .map(|(k, v)| (k.to_vec(), v.to_vec()))
                    .collect();
                let expected: Vec<_> = self
                    .now()
                    .range(from..to)
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                assert!(found == expected);
            }
            Step::At(percent) => {
                // As far as it is known to be durable: what only readers of weaker writes see is not history yet.
                let at = self.durable as u64 * percent / 100;
                let snapshot = self.store.at(at)?;
                assert!(contents(&snapshot) == self.states[at as usize], "at {at}");
            }
            Step::Checkpoint => {
                self.store.checkpoint()?;
                self.durable = self.states.len() - 1;
            }
            Step::Sync => {
                self.store.sync()?;
                self.durable = self.states.len() - 1;
            }
            Step::Close => {
                self.store.close()?;
                self.durable = self.states.len() - 1;
                self.opened();
            }
            Step::Kill => {
                self.disk.process_kill();
                self.opened();
            }
            Step::PowerCut(seed) => {
                self.disk.power_cut(*seed);
                self.opened();
            }
            Step::Fail(op, fault, nth) => self.disk.inject(Fault::new(*op, *fault).nth(*nth)),
        }
        Ok(())
    }

    fn recover(&mut self, error: &kv::Error) {
        assert!(self.disk.faults_hit() > 0, "{error}");
        self.disk.clear_faults();
        match self.store.reopen() {
            Ok(()) => self.is_one_of_its_states(),
            // It goes on: what failed was not written.
            Err(kv::Error::Log(wal::Error::InvalidOption { .. })) => {
                self.states.truncate(self.store.stats().log.end as usize + 1);
            }
            Err(_) => {
                self.disk.process_kill();
                self.opened();
            }
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn k1_k4_k6_k8_the_store_is_a_map_with_a_history(steps in vec(step(), 1..40)) {
        let mut run = Run::new();
        for step in &steps {
            if let Err(e) = run.step(step) {
                run.recover(&e);
            }
        }
        run.disk.clear_faults();
        run.disk.power_cut(steps.len() as u64);
        run.opened();
        let verified = kv::verify(&shared(&run.disk)).unwrap();
        prop_assert!(verified.is_clean(), "{:?}", verified);
    }
}
