//! Lives of a log.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wal::storage::Storage;
use wal::storage::sim::SimStorage;
use wal::{Consumer, Delivery, Durability, FsyncPolicy, Options, Wal};

use super::engine::{History, Oracle};

/// One step of a log's life.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Closes in order if it is open, and opens.
    Open(Policy),
    /// Drops the handle without closing in order: as a crash of the process alone.
    Kill,
    Append(usize, Durability),
    /// So many records of so many bytes each, at once.
    Batch(usize, usize),
    Sync,
    Rotate,
    /// Takes up to so many records, and commits.
    Consume(usize, Delivery),
    /// Removes whole segments below what the consumer has committed.
    Remove,
    RemoveConsumer,
    /// Copies the log to another disk, and checks the copy.
    Backup,
}

/// Policies without a clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    Always,
    Os,
}

pub struct LogHistory(pub Vec<Step>);

fn options(policy: Policy) -> Options {
    let policy = match policy {
        Policy::Always => FsyncPolicy::Always,
        Policy::Os => FsyncPolicy::Os,
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
                if let Some(log) = self.log.take() {
                    log.close()?;
                    self.known.durable = self.known.written.len() as u64;
                }
                self.log = Some(options(policy).open_storage(Arc::new(self.disk.clone()))?);
                // Whole records that opening found are durable from then on; what was in memory when a process died is gone.
                self.known.durable = self.log()?.durable_end();
                let end = self.log()?.end() as usize;
                self.known.written.truncate(end);
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
                self.known.consumer.get_or_insert(false);
                let mut consumer = self.consumer(delivery)?;
                self.known.consumer = Some(true);
                // Under at most once the batch is committed before it is handed out.
                let most = (consumer.position() + max as u64).min(self.log()?.durable_end());
                self.known.committing = self.known.committing.max(most);
                consumer.poll(max)?;
                consumer.commit()?;
                self.known.committed = consumer.committed();
                self.known.committing = self.known.committed;
            }
            Step::Remove => {
                self.known.floor = self.known.committed;
                self.log()?.remove_before(self.known.floor)?;
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
                let copy = SimStorage::missing();
                let end = self.log()?.backup_to(&(Arc::new(copy.clone()) as Arc<dyn Storage>))?;
                self.known.durable = self.known.durable.max(end);
                let copied = options(Policy::Always).open_storage(Arc::new(copy))?;
                assert_eq!(copied.end(), end);
                assert_records(&copied, &self.known.written);
            }
        }
        Ok(())
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

impl History for LogHistory {
    fn describe(&self) -> String {
        format!("log {:?}", self.0)
    }

    fn live(&self, disk: &SimStorage) -> Box<dyn Oracle> {
        let mut life = Life {
            disk,
            log: None,
            known: Known::default(),
        };
        for step in &self.0 {
            if let Err(e) = life.step(*step) {
                assert!(
                    disk.crashed() || matches!(e, wal::Error::Closed),
                    "{e} at {step:?} of {}",
                    self.describe()
                );
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
        let open = || options(Policy::Always).open_storage(Arc::new(image.clone()));
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
                drop(log.consumer("c").open_existing().unwrap_or_else(|e| panic!("{e}")));
            }
            (Some(_), None) => panic!("a consumer that was removed is back"),
            (None, Some(true)) => panic!("the consumer is gone"),
            (None, _) => {}
        }
        assert_eq!(log.append(b"on").unwrap_or_else(|e| panic!("{e}")), end);
        log.close().unwrap_or_else(|e| panic!("{e}"));
        drop(log);
        let verified = wal::inspect::verify(&(Arc::new(image.clone()) as Arc<dyn Storage>));
        let verified = verified.unwrap_or_else(|e| panic!("{e}"));
        assert!(verified.is_clean(), "verify: {:?}", verified.damage);
        let log = open().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(log.end(), end + 1);
        assert_eq!(log.read(end).unwrap_or_else(|e| panic!("{e}")), b"on");
    }

    fn recover(&self, image: &SimStorage) -> Box<dyn Oracle> {
        let mut known = self.clone();
        if let Ok(log) = options(Policy::Always).open_storage(Arc::new(image.clone())) {
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
