//! What is done on the file system.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wal::clock::Clock;
use wal::storage::{FsStorage, Storage};
use wal::{Error, Options, Wal};

/// Stands still, so that no frame depends on the time.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn unix_ms(&self) -> u64 {
        1_700_000_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

pub fn options() -> Options {
    Options::new()
        .segment_bytes(4096)
        .mark_delay(Duration::from_secs(3600))
        .clock(Arc::new(Still))
}

pub fn record(n: u64) -> Vec<u8> {
    let mut record = n.to_le_bytes().to_vec();
    record.resize(500 + (n as usize * 131) % 900, n as u8);
    record
}

pub const RECORDS: u64 = 24;

/// Records, segments, a consumer, retention, a backup of a store with checkpoints, closing and opening again: each call of the engine's at
/// least once. What is acknowledged is told to `told`.
pub fn live(storage: &Arc<dyn Storage>, told: &mut dyn FnMut(String)) -> wal::Result<()> {
    let log = options().open_storage(Arc::clone(storage))?;
    told(format!("opened {}", log.end()));
    let result = work(&log, told);
    if result.is_err() {
        // A failure that stopped the log ends when it is reopened in place; others left it open.
        if log.failure().is_some() {
            log.reopen()?;
        }
        told(format!("recovered {}", log.end()));
        work(&log, told)?;
    }
    log.close()?;
    drop(log);
    let log = options().open_storage(Arc::clone(storage))?;
    append(&log, told)?;
    log.close()
}

fn append(log: &Wal, told: &mut dyn FnMut(String)) -> wal::Result<()> {
    let n = log.end();
    // Where it fails, it may be there or not.
    told(format!("appending {n}"));
    let offset = log.append(record(n))?;
    told(format!("acknowledged {offset}"));
    Ok(())
}

fn work(log: &Wal, told: &mut dyn FnMut(String)) -> wal::Result<()> {
    while log.end() < RECORDS / 2 {
        append(log, told)?;
    }
    let mut consumer = log.consumer("reader").open()?;
    while let Some(record) = consumer.next()? {
        let offset = record.offset;
        if offset % 5 == 0 {
            told(format!("committing {}", offset + 1));
            consumer.commit()?;
            told(format!("committed {}", offset + 1));
        }
    }
    drop(consumer);
    match log.remove_before(log.durable_end() / 2) {
        Ok(_) => {}
        Err(e @ Error::Poisoned { .. }) => return Err(e),
        // What could not be removed is tried again with the next.
        Err(_) => drop(log.remove_before(log.durable_end() / 2)?),
    }
    while log.end() < RECORDS {
        append(log, told)?;
    }
    log.rotate()
}

/// The process that something happens to.
pub fn child(part: &str, dir: &Path) {
    let mut told = |line: String| {
        // Whole at once: what is half written when the process dies was not told.
        use std::io::Write;
        let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
    };
    let storage: Arc<dyn Storage> = Arc::new(FsStorage::new(dir.join("log")));
    let result = match part {
        "live" => live(&storage, &mut told),
        "many files" => many_files(&storage, &mut told),
        "large" => large(&storage, &mut told),
        other => panic!("there is no part {other:?}"),
    };
    if let Err(e) = result {
        told(format!("failed {e}"));
    }
}

/// Appends until it is refused.
fn large(storage: &Arc<dyn Storage>, told: &mut dyn FnMut(String)) -> wal::Result<()> {
    let log = options().segment_bytes(16 << 20).open_storage(Arc::clone(storage))?;
    while log.end() < 1000 {
        append(&log, told)?;
    }
    Ok(())
}

/// More segments and readers than files may be open.
fn many_files(storage: &Arc<dyn Storage>, told: &mut dyn FnMut(String)) -> wal::Result<()> {
    let log = options().segment_bytes(1024).open_storage(Arc::clone(storage))?;
    while log.end() < 200 {
        append(&log, told)?;
    }
    let mut readers = Vec::new();
    for n in 0..10 {
        readers.push(log.reader(n * 20)?);
    }
    for _ in 0..20 {
        for reader in &mut readers {
            assert!(reader.next()?.is_some());
        }
    }
    told("read by all".to_owned());
    log.close()
}

/// What a process had told before it ended.
#[derive(Debug, Default)]
pub struct Told {
    /// One past the last acknowledged offset.
    pub acknowledged: u64,
    /// One past the last that was tried.
    pub tried: u64,
    pub committed: u64,
    pub committing: u64,
    pub failed: Option<String>,
    pub lines: Vec<String>,
}

impl Told {
    pub fn parse(stdout: &[u8]) -> Self {
        let mut told = Self::default();
        let text = String::from_utf8_lossy(stdout);
        // A line that was not ended was not told.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let n = rest.parse().unwrap_or(0);
            match word {
                "appending" => told.tried = told.tried.max(n + 1),
                "acknowledged" => told.acknowledged = told.acknowledged.max(n + 1),
                "committing" => told.committing = told.committing.max(n),
                "committed" => told.committed = told.committed.max(n),
                "failed" => told.failed = Some(rest.to_owned()),
                _ => {}
            }
            told.lines.push(line.to_owned());
        }
        told
    }

    /// Opens what the process left: all that it had acknowledged is there, nothing that it had not tried, and it goes on.
    pub fn check(&self, dir: &Path, what: &str) {
        let path = dir.join("log");
        let log = match options().open(&path) {
            Ok(log) => log,
            Err(e) => panic!("{what}: {e}\n{}", self.lines.join("\n")),
        };
        assert!(
            (self.acknowledged..=self.tried.max(self.acknowledged)).contains(&log.end()),
            "{what}: {} records, {self:?}",
            log.end()
        );
        let mut reader = log.reader(log.start()).unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut next = log.start();
        while let Some(found) = reader.next().unwrap_or_else(|e| panic!("{what}: {e}")) {
            assert!(
                found.offset == next && found.bytes == record(next),
                "{what}: another record at {next}"
            );
            next += 1;
        }
        assert_eq!(next, log.end(), "{what}");
        if let Some(consumer) = log.consumers().first() {
            let legal = self.committed..=self.committing.max(self.committed);
            assert!(legal.contains(&consumer.committed), "{what}: {consumer:?}, {self:?}");
        } else {
            assert_eq!(self.committed, 0, "{what}: the consumer is gone");
        }
        assert_eq!(
            log.append(record(next)).unwrap_or_else(|e| panic!("{what}: {e}")),
            next,
            "{what}"
        );
        log.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}
