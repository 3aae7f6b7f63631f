//! Lives of a log.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wal::storage::Storage;
use wal::storage::sim::SimStorage;
use wal::{Consumer, Delivery, Durability, FsyncPolicy, Options, Wal};

use super::life::{Lab, Oracle, try_again};

#[derive(Serialize, Deserialize)]
#[serde(remote = "Durability")]
pub enum Level {
    Buffered,
    Written,
    Durable,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Delivery")]
enum Promise {
    AtLeastOnce,
    AtMostOnce,
}

/// One step of a log's life.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Closes in order if it is open, and opens.
    Open(Policy),
    /// Drops the handle without closing in order: as a crash of the process alone.
    Kill,
    Append(usize, #[serde(with = "Level")] Durability),
    /// So many records of so many bytes each, at once.
    Batch(usize, usize),
    Sync,
    Rotate,
    /// Takes up to so many records, and commits.
    Consume(usize, #[serde(with = "Promise")] Delivery),
    /// Removes whole segments as far as the consumer lets go, everything where there is none.
    Remove,
    RemoveConsumer,
    /// Copies the log to another disk, and checks the copy.
    Backup,
}

/// The policies, with delays that suit a test. Under the last two the disk's changes are not the same in every run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Policy {
    Always,
    Os,
    Group,
    Interval,
}

pub fn options(policy: Policy) -> Options {
    let policy = match policy {
        Policy::Always => FsyncPolicy::Always,
        Policy::Os => FsyncPolicy::Os,
        Policy::Group => FsyncPolicy::Group {
            max_delay: Duration::from_micros(50),
        },
        Policy::Interval => FsyncPolicy::Interval(Duration::from_micros(50)),
    };
    // Marks come from a clock; here every run must be the same.
    Options::new()
        .policy(policy)
        .segment_bytes(1536)
        .mark_delay(Duration::from_secs(3600))
}

/// Bytes that are told from those of every other record.
fn record(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n as u8).wrapping_mul(31) ^ (i as u8) | 1).collect()
}

/// What the history knows.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Every record handed to an append, in order.
    written: Vec<Vec<u8>>,
    /// So many of them were acknowledged as durable.
    durable: u64,
    batches: Vec<Range<u64>>,
    /// The last commit that returned, and the last that was begun.
    committed: u64,
    committing: u64,
    /// Whether a consumer must be there, may be, or must not be.
    consumer: Option<bool>,
    floor: u64,
}

struct Life<'a> {
    disk: &'a SimStorage,
    lab: &'a Lab<'a>,
    policy: Policy,
    log: Option<Wal>,
    known: Known,
}

impl Life<'_> {
    fn consumer(&self, delivery: Delivery) -> wal::Result<Consumer> {
        self.log()?.consumer("c").delivery(delivery).open()
    }

    fn log(&self) -> wal::Result<&Wal> {
        self.log.as_ref().ok_or(wal::Error::Closed)
    }

    fn step(&mut self, step: Step) -> wal::Result<()> {
        match step {
            Step::Open(policy) => {
                self.policy = policy;
                if let Some(log) = self.log.take() {
                    log.close()?;
                    self.known.durable = self.known.written.len() as u64;
                }
                self.open()?;
            }
            Step::Kill => {
                self.disk.process_kill();
                self.log = None;
            }
            Step::Append(len, durability) => {
                let record = record(self.known.written.len(), len);
                self.known.written.push(record.clone());
                self.log()?.append_with(&record, durability)?;
                if durability == Durability::Durable {
                    self.known.durable = self.known.written.len() as u64;
                }
            }
            Step::Batch(records, len) => {
                let start = self.known.written.len();
                let batch: Vec<_> = (start..start + records).map(|n| record(n, len)).collect();
                self.known.written.extend(batch.iter().cloned());
                self.known.batches.push(start as u64..(start + records) as u64);
                self.log()?.append_batch_with(&batch, Durability::Durable)?;
                self.known.durable = self.known.written.len() as u64;
            }
            Step::Sync => self.known.durable = self.log()?.sync()?,
            Step::Rotate => {
                self.log()?.rotate()?;
                self.known.durable = self.known.written.len() as u64;
            }
            Step::Consume(max, delivery) => {
                if self.known.consumer != Some(true) {
                    // One that is made begins where the log does, and may be there although its making failed.
                    let start = self.log()?.start();
                    self.known.consumer = Some(false);
                    self.known.committed = self.known.committed.min(start);
                    self.known.committing = self.known.committing.max(start);
                }
                let mut consumer = self.consumer(delivery)?;
                self.known.consumer = Some(true);
                self.known.committed = consumer.committed();
                // Under at most once the batch is committed before it is handed out.
                let most = (consumer.position() + max as u64).min(self.log()?.durable_end());
                self.known.committing = self.known.committing.max(most);
                consumer.poll(max)?;
                consumer.commit()?;
                self.known.committed = consumer.committed();
                self.known.committing = self.known.committed;
            }
            Step::Remove => {
                let end = self.log()?.durable_end();
                let consumed = self.known.committed.max(self.known.committing);
                let floor = if self.known.consumer == Some(true) {
                    consumed
                } else {
                    end
                };
                self.known.floor = self.known.floor.max(floor);
                self.log()?.remove_before(end)?;
            }
            Step::RemoveConsumer => {
                if self.known.consumer == Some(true) {
                    self.known.consumer = Some(false);
                    self.known.committing = self.known.committing.max(self.known.committed);
                    self.log()?.remove_consumer("c")?;
                    self.known.consumer = None;
                    (self.known.committed, self.known.committing) = (0, 0);
                }
            }
            Step::Backup => {
                let copy = self.lab.missing();
                let end = self.log()?.backup_to(&(Arc::new(copy.clone()) as Arc<dyn Storage>))?;
                self.known.durable = self.known.durable.max(end);
                // It is whole whatever becomes of its machine.
                copy.for_each_crash_image(8, 1, |image| {
                    let copied = options(Policy::Always).open_storage(Arc::new(image));
                    let copied = copied.unwrap_or_else(|e| panic!("the backup does not open: {e}"));
                    assert_eq!(copied.end(), end, "the backup lost something");
                    assert_records(&copied, &self.known.written);
                });
            }
        }
        Ok(())
    }

    fn open(&mut self) -> wal::Result<()> {
        let log = options(self.policy).open_storage(Arc::new(self.disk.clone()))?;
        self.look(&log);
        self.log = Some(log);
        Ok(())
    }

    /// Whole records that opening found are durable from then on; what was in memory when a process died is gone.
    fn look(&mut self, log: &Wal) {
        assert!(log.end() >= self.known.durable, "opening lost what was durable");
        self.known.durable = self.known.durable.max(log.durable_end());
        self.truncate(log.end());
    }

    fn truncate(&mut self, end: u64) {
        self.known.written.truncate(end as usize);
        self.known.batches.retain(|batch| batch.end <= end);
    }

    /// After a fault: what a program does that wants to go on. It may meet another one.
    fn carry_on(&mut self) {
        let Some(log) = self.log.take() else {
            try_again("opening", || self.open());
            return;
        };
        if log.failure().is_some() {
            assert!(log.durable_end() >= self.known.durable, "the durable end moved back");
            try_again("reopening", || log.reopen());
            self.look(&log);
        }
        // Not stopped: what failed was not given an offset.
        self.truncate(log.end());
        self.log = Some(log);
    }
}

fn assert_records(log: &Wal, written: &[Vec<u8>]) {
    let (start, end) = (log.start(), log.end());
    let mut reader = log.range(start..end).expect("all of it is durable after opening");
    for offset in start..end {
        let record = reader
            .next()
            .unwrap_or_else(|e| panic!("{e}"))
            .unwrap_or_else(|| panic!("a hole at {offset}"));
        assert_eq!(record.offset, offset);
        assert!(record.bytes == written[offset as usize], "another record at {offset}");
    }
}

pub fn live(steps: &[Step], disk: &SimStorage, lab: &Lab<'_>) -> impl Oracle + use<> {
    let mut life = Life {
        disk,
        lab,
        policy: Policy::Always,
        log: None,
        known: Known::default(),
    };
    for step in steps {
        if let Err(e) = life.step(*step) {
            if disk.crashed() || matches!(e, wal::Error::Closed) {
                break;
            }
            assert!(lab.made().iter().any(|disk| disk.faults_hit() > 0), "{e} at {step:?}");
            life.carry_on();
        }
        if let Some(log) = &life.log {
            life.known.durable = life.known.durable.max(log.durable_end());
        }
    }
    life.known
}

impl Oracle for Known {
    fn check(&self, disk: &SimStorage) {
        let open = || options(Policy::Always).open_storage(Arc::new(disk.clone()));
        let log = open().unwrap_or_else(|e| panic!("a crash stopped open: {e}"));
        let (start, end) = (log.start(), log.end());
        assert!(
            end >= self.durable,
            "{} durable, {end} there: {:?}",
            self.durable,
            log.report()
        );
        assert!(end <= self.written.len() as u64, "a record that was never appended");
        assert!(start <= self.floor, "removed what was to stay");
        assert_records(&log, &self.written);
        // A torn slot is noted, since it could be damage; nothing else that is noted comes of a crash.
        for note in &log.report().notes {
            assert!(note.what.contains("crash"), "damaged by a crash: {note:?}");
        }
        for batch in &self.batches {
            assert!(end <= batch.start || end >= batch.end, "half a batch");
        }
        match (log.consumers().first(), self.consumer) {
            (Some(consumer), Some(_)) => {
                let legal = self.committed..=self.committing.max(self.committed);
                assert!(consumer.damaged.is_none(), "a crash lost the consumer: {consumer:?}");
                assert!(
                    legal.contains(&consumer.committed),
                    "consumer at {}, not in {legal:?}",
                    consumer.committed
                );
                assert!(consumer.committed <= end, "consumer beyond the log");
                assert!(consumer.committed >= start, "what the consumer needs was removed");
                drop(log.consumer("c").open_existing().unwrap_or_else(|e| panic!("{e}")));
            }
            (Some(_), None) => panic!("a consumer that was removed is back"),
            (None, Some(true)) => panic!("the consumer is gone"),
            (None, _) => {}
        }
        assert_eq!(log.append(b"on").unwrap_or_else(|e| panic!("{e}")), end);
        log.close().unwrap_or_else(|e| panic!("{e}"));
        drop(log);
        let verified = wal::inspect::verify(&(Arc::new(disk.clone()) as Arc<dyn Storage>));
        let verified = verified.unwrap_or_else(|e| panic!("{e}"));
        assert!(verified.is_clean(), "verify: {:?}", verified.damage);
        let log = open().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(log.end(), end + 1);
        assert_eq!(log.read(end).unwrap_or_else(|e| panic!("{e}")), b"on");
    }

    fn recover(&self, disk: &SimStorage) -> Box<dyn Oracle> {
        let mut known = self.clone();
        if let Ok(log) = options(Policy::Always).open_storage(Arc::new(disk.clone())) {
            let end = log.end();
            // What opening found whole is durable from then on, and what it cut is gone for good.
            known.durable = log.durable_end();
            known.written.truncate(end as usize);
            known.batches.retain(|b| b.end <= end);
            known.written.push(b"first after recovery".to_vec());
            if log.append(b"first after recovery").is_ok() {
                known.durable = end + 1;
            }
        }
        Box::new(known)
    }
}
