//! A power cut at every change of the disk, and every image, or many, that it may leave.

use std::sync::Arc;
use std::time::Duration;

use wal::storage::sim::SimStorage;
use wal::{Durability, FsyncPolicy, Options, Wal};

fn options(policy: FsyncPolicy) -> Options {
    // Marks come from a clock; here every run must be the same.
    Options::new()
        .policy(policy)
        .segment_bytes(2048)
        .mark_delay(Duration::from_secs(3600))
}

/// What the history knows when the power fails.
#[derive(Default, Clone)]
struct Oracle {
    /// Every record handed to `append`, in order, whether it was acknowledged or not.
    written: Vec<Vec<u8>>,
    /// Of these so many were acknowledged as durable.
    durable: u64,
    /// Appends that are batches: all of it or nothing.
    batches: Vec<std::ops::Range<u64>>,
    /// The consumer's commits: the last that returned, and the last that was begun.
    committed: u64,
    committing: u64,
    /// The floor of the last removal that was begun.
    floor: u64,
}

impl Oracle {
    fn append(&mut self, log: &Wal, record: Vec<u8>, durability: Durability) -> wal::Result<()> {
        self.written.push(record.clone());
        log.append_with(&record, durability)?;
        if durability == Durability::Durable {
            self.durable = self.written.len() as u64;
        }
        Ok(())
    }

    fn batch(&mut self, log: &Wal, records: Vec<Vec<u8>>) -> wal::Result<()> {
        let start = self.written.len() as u64;
        self.written.extend(records.iter().cloned());
        self.batches.push(start..self.written.len() as u64);
        log.append_batch_with(&records, Durability::Durable)?;
        self.durable = self.written.len() as u64;
        Ok(())
    }

    /// A life of a log that uses everything there is.
    fn live(&mut self, disk: &SimStorage) -> wal::Result<()> {
        for round in 0..2u8 {
            let log = options(FsyncPolicy::Os).open_storage(Arc::new(disk.clone()))?;
            let mut consumer = log.consumer("c").open()?;
            self.append(&log, vec![round; 5], Durability::Written)?;
            self.append(&log, vec![round + 10; 600], Durability::Durable)?;
            self.batch(&log, vec![vec![round + 20; 300], Vec::new(), vec![round + 30; 700]])?;
            self.append(&log, vec![round + 40; 900], Durability::Written)?;
            log.sync()?;
            self.durable = self.written.len() as u64;
            let polled = consumer.poll(3)?.len() as u64;
            self.committing = consumer.position();
            assert_eq!(polled, 3);
            consumer.commit()?;
            self.committed = self.committing;
            self.append(&log, vec![round + 50; 1500], Durability::Durable)?;
            self.floor = self.committed;
            log.remove_before(self.floor)?;
            self.append(&log, vec![round + 60; 20], Durability::Written)?;
            drop(consumer);
            log.close()?;
            self.durable = self.written.len() as u64;
        }
        Ok(())
    }

    /// What must hold of every image.
    fn check(&self, image: &SimStorage, what: &str) {
        let log = options(FsyncPolicy::Always)
            .open_storage(Arc::new(image.clone()))
            .unwrap_or_else(|e| panic!("{what}: a crash stopped open: {e}"));
        let (start, end) = (log.start(), log.end());
        assert!(
            end >= self.durable,
            "{what}: {} durable, {end} there, {:?}",
            self.durable,
            log.report()
        );
        assert!(
            end <= self.written.len() as u64,
            "{what}: a record that was never appended"
        );
        assert!(start <= self.floor, "{what}: removed what was to stay");
        let mut reader = log.range(start..end).unwrap();
        for offset in start..end {
            let record = reader
                .next()
                .unwrap()
                .unwrap_or_else(|| panic!("{what}: a hole at {offset}"));
            assert_eq!(
                (record.offset, record.bytes),
                (offset, &self.written[offset as usize][..]),
                "{what}"
            );
        }
        for batch in &self.batches {
            assert!(end <= batch.start || end >= batch.end, "{what}: half a batch");
        }
        if let Some(consumer) = log.consumers().first() {
            let legal = self.committed..=self.committing.max(self.committed);
            assert!(
                legal.contains(&consumer.committed),
                "{what}: consumer at {}, {legal:?}",
                consumer.committed
            );
            assert!(consumer.committed <= end, "{what}: consumer beyond the log");
            log.consumer("c").open().unwrap_or_else(|e| panic!("{what}: {e}"));
        } else {
            assert_eq!(self.committed, 0, "{what}: the consumer is gone");
        }
        assert_eq!(log.append(b"on").unwrap(), end, "{what}");
        log.close().unwrap();
        let log = options(FsyncPolicy::Always)
            .open_storage(Arc::new(image.clone()))
            .unwrap();
        assert_eq!(log.read(end).unwrap(), b"on", "{what}");
    }
}

/// Crashes at every change, then, in some of the images, at every change of the recovery that follows.
fn crash_everywhere(limit: usize, depth_two_every: u64) -> u64 {
    let mut images = 0;
    let whole = SimStorage::missing();
    Oracle::default().live(&whole).unwrap();
    let mutations = whole.mutations();
    assert!(mutations > 60, "{mutations}");
    for at in 0..mutations {
        let disk = SimStorage::missing();
        disk.crash_at(at);
        let mut oracle = Oracle::default();
        assert!(oracle.live(&disk).is_err() || !disk.crashed());
        disk.for_each_crash_image(limit, at, |image| {
            images += 1;
            let what = format!("crash at change {at}, image {images}");
            if images % depth_two_every == 0 {
                images += recover_and_crash(&oracle, &image, &what);
            }
            oracle.check(&image, &what);
        });
    }
    images
}

fn recover_and_crash(oracle: &Oracle, image: &SimStorage, what: &str) -> u64 {
    let mut images = 0;
    for at in 0.. {
        let disk = image.fork();
        disk.crash_at(at);
        let opened = options(FsyncPolicy::Always).open_storage(Arc::new(disk.clone()));
        let appended = opened.and_then(|log| log.append_with(b"", Durability::Written).map(|_| log));
        if !disk.crashed() {
            drop(appended);
            break;
        }
        let mut oracle = oracle.clone();
        disk.for_each_crash_image(16, at, |again| {
            images += 1;
            // What recovery itself appended may be there.
            let log = options(FsyncPolicy::Os)
                .open_read_only_storage(Arc::new(again.clone()))
                .unwrap();
            let end = log.written_end();
            if end > oracle.durable && log.read(end - 1).is_ok_and(|r| r.is_empty()) {
                oracle.written.truncate(end as usize - 1);
                oracle.written.push(Vec::new());
            }
            oracle.check(&again, &format!("{what}, recovery crashed at change {at}"));
        });
    }
    images
}

#[test]
fn l2_l3_l4_no_crash_loses_what_was_durable_or_needs_help() {
    let images = crash_everywhere(48, 199);
    println!("{images} images");
    assert!(images > 2_000, "{images}");
}
