//! Lives under several threads: which record gets which offset differs from run to run, so what must hold is put together from what each
//! thread was told.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wal::Durability;
use wal::storage::Storage;
use wal::storage::sim::SimStorage;

use super::life::Oracle;
use super::lives::Random;
use super::log_life::{Policy, options};

/// What the threads do.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Plan {
    pub policy: Policy,
    pub threads: u8,
    pub appends: u8,
    /// Chooses sizes and levels, and when to rotate.
    pub seed: u64,
}

impl Plan {
    pub fn shorter(&self) -> Vec<Self> {
        let fewer = (self.appends > 1).then(|| Self {
            appends: self.appends - 1,
            ..*self
        });
        let narrower = (self.threads > 1).then(|| Self {
            threads: self.threads - 1,
            ..*self
        });
        fewer.into_iter().chain(narrower).collect()
    }
}

/// What the threads were told.
#[derive(Debug, Clone, Default)]
struct Known {
    /// So many appends each thread has begun, of the record of [`record`].
    begun: Vec<u64>,
    /// Which append (thread, number) has an offset, where that was told.
    told: BTreeMap<u64, (u8, u64)>,
    durable: u64,
    /// After recovery one more may be there, at this offset.
    recovered: Option<u64>,
}

/// The record of a thread's `n`th append.
fn record(thread: u8, n: u64, len: usize) -> Vec<u8> {
    let mut record = vec![thread];
    record.extend_from_slice(&n.to_le_bytes());
    record.resize(9 + len, thread ^ 0x5a);
    record
}

pub fn live(plan: &Plan, disk: &SimStorage) -> impl Oracle + use<> {
    let known = Mutex::new(Known {
        begun: vec![0; usize::from(plan.threads)],
        ..Known::default()
    });
    if let Ok(log) = options(plan.policy).open_storage(Arc::new(disk.clone())) {
        std::thread::scope(|scope| {
            for thread in 0..plan.threads {
                let (log, known) = (&log, &known);
                scope.spawn(move || {
                    let mut random = Random::new(plan.seed + u64::from(thread));
                    for n in 0..u64::from(plan.appends) {
                        let record = record(thread, n, random.below(400) as usize);
                        known.lock().begun[usize::from(thread)] = n + 1;
                        let level = [Durability::Durable, Durability::Written][random.below(2) as usize];
                        let Ok(offset) = log.append_with(&record, level) else {
                            return;
                        };
                        let before = known.lock().told.insert(offset, (thread, n));
                        assert_eq!(before, None, "offset {offset} given twice");
                        let acknowledged = if level == Durability::Durable { offset + 1 } else { 0 };
                        let durable = log.durable_end().max(acknowledged);
                        let mut known = known.lock();
                        known.durable = known.durable.max(durable);
                        drop(known);
                        if random.below(5) == 0 && log.rotate().is_err() {
                            return;
                        }
                    }
                });
            }
        });
        assert!(
            disk.crashed() || disk.faults_hit() > 0 || log.failure().is_none(),
            "{:?}",
            log.failure()
        );
    } else {
        assert!(disk.crashed() || disk.faults_hit() > 0, "it does not open");
    }
    known.into_inner()
}

impl Oracle for Known {
    fn check(&self, disk: &SimStorage) {
        let open = || options(Policy::Always).open_storage(Arc::new(disk.clone()));
        let log = open().unwrap_or_else(|e| panic!("a crash stopped open: {e}"));
        let end = log.end();
        assert!(end >= self.durable, "{} durable, {end} there", self.durable);
        let mut next = vec![0; self.begun.len()];
        let mut reader = log.reader(0).unwrap_or_else(|e| panic!("{e}"));
        for offset in 0..end {
            let read = reader
                .next()
                .unwrap_or_else(|e| panic!("{e}"))
                .unwrap_or_else(|| panic!("a hole at {offset}"));
            if self.recovered == Some(offset) && read.bytes == b"first after recovery" {
                continue;
            }
            let thread = read.bytes[0];
            let n = next[usize::from(thread)];
            assert!(n < self.begun[usize::from(thread)], "an append that was never begun");
            assert!(
                read.bytes == record(thread, n, read.bytes.len() - 9),
                "thread {thread} lost or changed its {n}"
            );
            next[usize::from(thread)] += 1;
            if let Some(told) = self.told.get(&offset) {
                assert_eq!(*told, (thread, n), "offset {offset} was told to another");
            }
        }
        assert_eq!(log.append(b"on").unwrap_or_else(|e| panic!("{e}")), end);
        log.close().unwrap_or_else(|e| panic!("{e}"));
        drop(log);
        let verified = wal::inspect::verify(&(Arc::new(disk.clone()) as Arc<dyn Storage>));
        let verified = verified.unwrap_or_else(|e| panic!("{e}"));
        assert!(verified.is_clean(), "verify: {:?}", verified.damage);
        let log = open().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(log.read(end).unwrap_or_else(|e| panic!("{e}")), b"on");
    }

    fn recover(&self, disk: &SimStorage) -> Box<dyn Oracle> {
        let mut known = self.clone();
        if let Ok(log) = options(Policy::Always).open_storage(Arc::new(disk.clone())) {
            let end = log.end();
            known.durable = log.durable_end();
            // What was cut is gone for good, and its offsets are given anew.
            known.told.retain(|offset, _| *offset < end);
            known.recovered = Some(end);
            if log.append(b"first after recovery").is_ok() {
                known.durable = end + 1;
            }
        }
        Box::new(known)
    }
}
