//! The log against a vector of records.

use proptest::collection::vec;
use proptest::prelude::*;
use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Consumer, Durability, Error, FsyncPolicy, Wal};

use super::{config, options, shared};

#[derive(Debug, Clone)]
enum Step {
    Append(usize, Durability),
    Batch(usize, usize),
    Sync,
    Rotate,
    /// Everything before this part of the log, in percent.
    RemoveBefore(u64),
    Read(u64),
    Range(u64, u64),
    Poll(usize),
    Commit,
    Seek(u64),
    Close(FsyncPolicy),
    Kill(FsyncPolicy),
    PowerCut(u64, FsyncPolicy),
    /// The next so many'th operation of the kind fails.
    Fail(OpKind, FaultKind, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let level = prop_oneof![
        Just(Durability::Buffered),
        Just(Durability::Written),
        Just(Durability::Durable)
    ];
    let policy = || prop_oneof![Just(FsyncPolicy::Always), Just(FsyncPolicy::Os)];
    let fault = prop_oneof![
        Just((OpKind::SyncData, FaultKind::SyncFails { drop_dirty: true })),
        Just((OpKind::SyncData, FaultKind::SyncFails { drop_dirty: false })),
        Just((OpKind::SyncData, FaultKind::SyncFindsNoSpace)),
        Just((OpKind::Write, FaultKind::NoSpace)),
        Just((OpKind::Write, FaultKind::Short(9))),
        Just((OpKind::SyncDir, FaultKind::Error(std::io::ErrorKind::Other))),
        Just((OpKind::Read, FaultKind::Error(std::io::ErrorKind::Other))),
        Just((OpKind::Remove, FaultKind::Error(std::io::ErrorKind::PermissionDenied))),
    ];
    prop_oneof![
        8 => (0usize..900, level).prop_map(|(len, level)| Step::Append(len, level)),
        2 => (1usize..6, 0usize..300).prop_map(|(n, len)| Step::Batch(n, len)),
        2 => Just(Step::Sync),
        1 => Just(Step::Rotate),
        1 => (0u64..=100).prop_map(Step::RemoveBefore),
        3 => (0u64..=100).prop_map(Step::Read),
        2 => (0u64..=100, 0u64..=100).prop_map(|(a, b)| Step::Range(a, b)),
        2 => (0usize..9).prop_map(Step::Poll),
        2 => Just(Step::Commit),
        1 => (0u64..=100).prop_map(Step::Seek),
        1 => policy().prop_map(Step::Close),
        1 => policy().prop_map(Step::Kill),
        2 => (any::<u64>(), policy()).prop_map(|(seed, policy)| Step::PowerCut(seed, policy)),
        1 => (fault, 1u64..6).prop_map(|((op, fault), nth)| Step::Fail(op, fault, nth)),
    ]
}

struct Run {
    disk: SimStorage,
    log: Wal,
    consumer: Option<Consumer>,
    /// All that may be there.
    records: Vec<Vec<u8>>,
    /// All below must be.
    durable: u64,
    committed: u64,
}

impl Run {
    fn new() -> Self {
        let disk = SimStorage::new();
        let log = options().open_storage(shared(&disk)).unwrap();
        let consumer = log.consumer("model").open().unwrap();
        Self {
            disk,
            log,
            consumer: Some(consumer),
            records: Vec::new(),
            durable: 0,
            committed: 0,
        }
    }

    fn record(&self, len: usize) -> Vec<u8> {
        let mut record = self.records.len().to_le_bytes().to_vec();
        record.resize(8 + len, len as u8);
        record
    }

    /// An offset in the log, so many percent of the way from its start to its durable end.
    fn offset(&self, percent: u64) -> u64 {
        let (start, end) = (self.log.start(), self.log.durable_end());
        start + (end - start) * percent / 100
    }

    /// Opened again: what is there is a prefix, all that was durable is in it, and the consumer is where it was.
    /// What may go wrong meanwhile is the campaign's to try.
    fn opened(&mut self, policy: FsyncPolicy) {
        self.disk.clear_faults();
        self.consumer = None;
        self.log = options().policy(policy).open_storage(shared(&self.disk)).unwrap();
        self.is_a_prefix();
        self.consumer = Some(self.log.consumer("model").open_existing().unwrap());
        assert_eq!(self.consumer.as_ref().unwrap().committed(), self.committed);
    }

    fn is_a_prefix(&mut self) {
        let end = self.log.end();
        assert!(end >= self.durable, "{} were durable, {end} are there", self.durable);
        assert!(end <= self.records.len() as u64);
        self.records.truncate(end as usize);
        self.durable = self.durable.max(self.log.durable_end());
    }

    fn check(&self) {
        let mut reader = self.log.reader(self.log.start()).unwrap();
        let mut next = self.log.start();
        while let Some(record) = reader.next().unwrap() {
            assert_eq!(record.offset, next);
            assert!(record.bytes == self.records[next as usize]);
            next += 1;
        }
        assert_eq!(next, self.log.durable_end());
        assert!(self.log.durable_end() >= self.durable);
    }

    fn step(&mut self, step: &Step) -> wal::Result<()> {
        match *step {
            Step::Append(len, level) => {
                let record = self.record(len);
                let expected = self.records.len() as u64;
                self.records.push(record.clone());
                assert_eq!(self.log.append_with(&record, level)?, expected);
                if level == Durability::Durable {
                    self.durable = self.records.len() as u64;
                }
            }
            Step::Batch(n, len) => {
                let start = self.records.len() as u64;
                for _ in 0..n {
                    self.records.push(self.record(len));
                }
                let offsets = self
                    .log
                    .append_batch_with(&self.records[start as usize..], Durability::Durable)?;
                assert_eq!(offsets, start..self.records.len() as u64);
                self.durable = offsets.end;
            }
            Step::Sync => {
                assert_eq!(self.log.sync()?, self.records.len() as u64);
                self.durable = self.records.len() as u64;
            }
            Step::Rotate => self.log.rotate()?,
            Step::RemoveBefore(percent) => {
                let floor = self.offset(percent);
                let report = self.log.remove_before(floor)?;
                // Never beyond what was asked, nor past the consumer.
                assert!(report.start <= floor.min(self.committed).max(self.log.start()));
            }
            Step::Read(percent) => {
                let offset = self.offset(percent);
                if offset < self.log.durable_end() {
                    assert!(self.log.read(offset)? == self.records[offset as usize]);
                } else {
                    assert!(matches!(self.log.read(offset), Err(Error::OutOfRange { .. })));
                }
            }
            Step::Range(a, b) => {
                let (from, to) = (self.offset(a.min(b)), self.offset(a.max(b)));
                let mut reader = self.log.range(from..to)?;
                for offset in from..to {
                    assert!(reader.next()?.unwrap().bytes == self.records[offset as usize]);
                }
                assert!(reader.next()?.is_none());
            }
            Step::Poll(max) => {
                let Some(consumer) = &mut self.consumer else {
                    return Ok(());
                };
                let (from, faults) = (consumer.position(), self.disk.faults_hit());
                let polled = consumer.poll(max)?;
                let expected = (max as u64).min(self.log.durable_end() - from);
                // A failure behind the first record makes it fewer.
                let fewer = self.disk.faults_hit() > faults && !polled.is_empty();
                assert!(polled.len() as u64 == expected || fewer);
                assert_eq!(consumer.position(), from + polled.len() as u64);
                for (n, (offset, bytes)) in polled.into_iter().enumerate() {
                    assert!(offset == from + n as u64 && bytes == self.records[offset as usize]);
                }
            }
            Step::Commit => {
                let Some(consumer) = &mut self.consumer else {
                    return Ok(());
                };
                // Where it fails, either may be in force.
                match consumer.commit() {
                    Ok(committed) => self.committed = committed,
                    Err(e) => {
                        self.forget_consumer();
                        return Err(e);
                    }
                }
            }
            Step::Seek(percent) => {
                let to = self.offset(percent);
                let Some(consumer) = &mut self.consumer else {
                    return Ok(());
                };
                match consumer.seek(to) {
                    Ok(()) => self.committed = to,
                    Err(e) => {
                        self.forget_consumer();
                        return Err(e);
                    }
                }
            }
            Step::Close(policy) => {
                self.consumer = None;
                self.log.close()?;
                self.durable = self.records.len() as u64;
                self.opened(policy);
            }
            Step::Kill(policy) => {
                self.consumer = None;
                self.disk.process_kill();
                self.opened(policy);
            }
            Step::PowerCut(seed, policy) => {
                self.consumer = None;
                self.disk.power_cut(seed);
                self.opened(policy);
            }
            Step::Fail(op, fault, nth) => self.disk.inject(Fault::new(op, fault).nth(nth)),
        }
        Ok(())
    }

    /// Takes the place that is in force as the one to go on from.
    fn forget_consumer(&mut self) {
        self.disk.clear_faults();
        self.consumer = None;
        if let Ok(consumer) = self.log.consumer("model").open_existing() {
            self.committed = consumer.committed();
        }
    }

    /// Something failed: goes on as a program does.
    fn recover(&mut self, error: &Error) {
        assert!(self.disk.faults_hit() > 0, "{error}");
        self.disk.clear_faults();
        self.consumer = None;
        assert!(self.log.durable_end() >= self.durable);
        // A log that failed while it was closed is closed.
        let closed = match self.log.reopen() {
            Err(Error::Closed) => true,
            Err(Error::InvalidOption { .. }) | Ok(()) => false,
            Err(e) => panic!("{e}"),
        };
        if closed || self.log.append([]).is_err() {
            self.disk.process_kill();
            self.log = options().open_storage(shared(&self.disk)).unwrap();
        } else {
            // The empty record shows that it takes appends.
            let end = self.log.end() as usize;
            self.records.truncate(end - 1);
            self.records.push(Vec::new());
        }
        self.is_a_prefix();
        let mut consumer = self.log.consumer("model").open().unwrap();
        // Which of the two places a failed commit left, only the file knows.
        let place = self.committed.clamp(self.log.start(), self.log.durable_end());
        consumer.seek(place).unwrap();
        self.committed = place;
        self.consumer = Some(consumer);
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn l1_l3_l9_l10_the_log_is_a_vector(steps in vec(step(), 1..50)) {
        let mut run = Run::new();
        for step in &steps {
            if let Err(e) = run.step(step) {
                run.recover(&e);
            }
        }
        run.disk.clear_faults();
        run.check();
        run.disk.power_cut(steps.len() as u64);
        run.opened(FsyncPolicy::Always);
        run.check();
    }
}
