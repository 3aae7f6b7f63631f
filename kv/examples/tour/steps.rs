//! The steps of the tour, each with what it counts.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Instant;

use wal::{Delivery, FsyncPolicy, Options, inspect};

use crate::children::{Task, spawn};
use crate::scoreboard::{Corrupt, Kv, Score, Tally, Torn};
use crate::{Anyhow, Args};

pub(crate) fn key_of(n: u64, writes: u64) -> String {
    // Half as many keys as writes, so that many are written over.
    format!("account/{:09}", n.wrapping_mul(7919) % (writes / 2 + 1))
}

pub(crate) fn value_of(n: u64) -> String {
    format!("balance after write {n}")
}

fn record_of(n: u64) -> String {
    format!("order {n}: {} items", n % 17 + 1)
}

pub(crate) fn run(args: &Args, dir: &Path, say: &dyn Fn(&str)) -> Anyhow<Score> {
    let log = dir.join("log");
    let last_offset = append_and_read_back(args.records, &log, say)?;

    say("\n2. A consumer that dies between its work and its commit");
    let first = Consuming {
        log: &log,
        name: "orders-writer",
        delivery: Delivery::AtLeastOnce,
    };
    let at_least_once = first.run(args, &dir.join("orders-writer.sink"), say)?;
    let cautious = Consuming {
        log: &log,
        name: "mail-sender",
        delivery: Delivery::AtMostOnce,
    };
    let at_most_once = cautious.run(args, &dir.join("mail-sender.sink"), say)?;

    say("\n3. A consumer that nobody thought of until today");
    let replayed = replay_all(&log)?;
    let consumers = Options::new().open_read_only(&log)?.consumers();
    let committed = |name| {
        consumers
            .iter()
            .find(|c| c.name == name)
            .map(|c| c.committed)
            .ok_or("a consumer is gone")
    };
    let (first_consumer_offset, second_consumer_offset) = (committed("orders-writer")?, committed("analytics-v2")?);
    say(&format!(
        "   analytics-v2 replayed {replayed} records in order; orders-writer stayed at {first_consumer_offset}"
    ));

    say("\n4. A store that shows what its log says");
    let store = dir.join("store");
    let (kv, checkpoint) = kill_and_fold(args.records, &store, say)?;
    let torn = tear(&log, &dir.join("torn"), say)?;
    let corrupt = flip(&store, checkpoint, say)?;
    Ok(Score {
        records: args.records,
        crash_at: args.crash_at,
        last_offset,
        at_least_once,
        at_most_once,
        replayed,
        first_consumer_offset,
        second_consumer_offset,
        kv,
        torn,
        corrupt,
    })
}

fn rate(n: u64, since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64().max(1e-9);
    format!("{:.2} s, {:.0} a second", seconds, n as f64 / seconds)
}

fn append_and_read_back(records: u64, path: &Path, say: &dyn Fn(&str)) -> Anyhow<u64> {
    say(&format!(
        "1. {records} records, policy Always: each is durable before it counts"
    ));
    let log = Options::new().policy(FsyncPolicy::Always).open(path)?;
    let started = Instant::now();
    let mut tickets = std::collections::VecDeque::new();
    for n in 0..records {
        tickets.push_back(log.append_async(record_of(n))?);
        // Appends in flight share their syncs; none counts before its own has come.
        if tickets.len() == 512 {
            tickets.pop_front().map(|t| t.wait()).transpose()?;
        }
    }
    for ticket in tickets {
        ticket.wait()?;
    }
    say(&format!(
        "   appended in {}; {} syncs",
        rate(records, started),
        log.stats().syncs
    ));
    let started = Instant::now();
    let mut reader = log.reader(0)?;
    let mut last = None;
    while let Some(record) = reader.next()? {
        let expected = last.map_or(0, |last: u64| last + 1);
        if record.offset != expected || record.bytes != record_of(expected).as_bytes() {
            return Err(format!("read something else at offset {}", record.offset).into());
        }
        last = Some(record.offset);
    }
    let last = last.ok_or("read nothing")?;
    say(&format!(
        "   read back offsets 0..={last} in order in {}",
        rate(last + 1, started)
    ));
    log.close()?;
    Ok(last)
}

struct Consuming<'a> {
    log: &'a Path,
    name: &'a str,
    delivery: Delivery,
}

impl Consuming<'_> {
    /// Consumes everything in two processes, the first of which dies. Counts what the two have handled.
    fn run(&self, args: &Args, sink: &Path, say: &dyn Fn(&str)) -> Anyhow<Tally> {
        let task = |die_at| Task::Consume {
            log: self.log,
            name: self.name,
            delivery: self.delivery,
            sink,
            die_at,
        };
        killed(spawn(&task(Some(args.crash_at)))?)?;
        let committed = Options::new().open_read_only(self.log)?.consumers();
        let committed = committed
            .iter()
            .find(|c| c.name == self.name)
            .map_or(0, |c| c.committed);
        say(&format!(
            "   {} ({:?}) was killed at offset {}; committed: {committed}",
            self.name, self.delivery, args.crash_at
        ));
        let status = spawn(&task(None))?;
        if !status.success() {
            return Err(format!("the second process of {} ended with {status}", self.name).into());
        }
        let tally = Tally::of(&offsets_in(sink)?, args.records);
        say(&format!(
            "   a new process went on: {} handled, {} missed, {} twice",
            tally.processed,
            tally.missed,
            tally.duplicated_offsets.len()
        ));
        Ok(tally)
    }
}

fn killed(status: ExitStatus) -> Anyhow<()> {
    if status.signal() == Some(9) {
        return Ok(());
    }
    Err(format!("a process that was to be killed ended with {status}").into())
}

fn offsets_in(sink: &Path) -> Anyhow<Vec<u64>> {
    let bytes = std::fs::read(sink)?;
    Ok(bytes
        .chunks_exact(8)
        .map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
        .collect())
}

fn replay_all(path: &Path) -> Anyhow<u64> {
    let log = Options::new().open(path)?;
    let mut consumer = log.consumer("analytics-v2").open()?;
    let mut expected = consumer.committed();
    let from = expected;
    loop {
        let records = consumer.poll(1000)?;
        if records.is_empty() {
            break;
        }
        for (offset, _) in records {
            if offset != expected {
                return Err(format!("analytics-v2 got offset {offset} for {expected}").into());
            }
            expected += 1;
        }
        consumer.commit()?;
    }
    drop(consumer);
    log.close()?;
    Ok(expected - from)
}

fn kill_and_fold(records: u64, path: &Path, say: &dyn Fn(&str)) -> Anyhow<(Kv, u64)> {
    let task = Task::Fill {
        store: path,
        writes: records,
        checkpoint_after: records / 2,
    };
    killed(spawn(&task)?)?;
    let started = Instant::now();
    let store = kv::Options::new().checkpoint_bytes(0).open(path)?;
    let report = store.report();
    let checkpoint = report.checkpoint.ok_or("no checkpoint was loaded")?;
    say(&format!(
        "   killed after {records} writes; reopened in {:.0?}: {} entries from the checkpoint at {checkpoint}, {} records replayed",
        started.elapsed(),
        report.loaded,
        report.replayed
    ));
    // The same again without the store: only the log's records and what they say.
    let mut fold: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let snapshot = store.snapshot();
    store.close()?;
    drop(store);
    let log = Options::new().open_read_only(path)?;
    let mut reader = log.reader(0)?;
    while let Some(record) = reader.next()? {
        for change in kv::Committed::decode(record.offset, record.bytes)?.changes {
            match change.value {
                Some(value) => drop(fold.insert(change.key, value)),
                None => drop(fold.remove(&change.key)),
            }
        }
    }
    let equal =
        snapshot.len() == fold.len() && snapshot.iter().all(|(k, v)| fold.get(&k[..]).is_some_and(|f| *f == *v));
    say(&format!(
        "   {} keys; equal to a fold of the log made apart: {equal}",
        snapshot.len()
    ));
    let kv = Kv {
        loaded_from_checkpoint: report.loaded,
        replayed: report.replayed,
        keys: snapshot.len() as u64,
        equal_to_fold: equal,
    };
    Ok((kv, checkpoint))
}

/// Tears the last record of a copy of the log, which its writer died over.
fn tear(log: &Path, copy: &Path, say: &dyn Fn(&str)) -> Anyhow<Torn> {
    Options::new().open(log)?.backup(copy)?;
    killed(spawn(&Task::AppendOne {
        log: copy,
        record: "the order that was being written when the lights went out",
    })?)?;
    let (_, segments) = inspect::survey(&(std::sync::Arc::new(wal::storage::FsStorage::new(copy)) as _))?;
    let last = segments.last().ok_or("no segment")?;
    std::fs::OpenOptions::new()
        .write(true)
        .open(&last.file)?
        .set_len(last.end_pos - 5)?;
    let opened = Options::new().open(copy);
    let cut = opened.as_ref().ok().and_then(|log| log.report().cut.clone());
    match &cut {
        Some(cut) => say(&format!(
            "   a torn last record: {} bytes cut at offset {}, because {}",
            cut.bytes, cut.offset, cut.evidence
        )),
        None => say("   a torn last record was not reported"),
    }
    Ok(Torn {
        cut_offset: cut.map(|c| c.offset),
        opened: opened.is_ok(),
    })
}

/// Flips one bit of a record that the store has to replay.
fn flip(store: &Path, checkpoint: u64, say: &dyn Fn(&str)) -> Anyhow<Corrupt> {
    let log = Options::new().open_read_only(store)?;
    let target = checkpoint + (log.durable_end() - checkpoint) / 2;
    let record = log.read(target)?;
    let (_, segments) = inspect::survey(&(std::sync::Arc::new(wal::storage::FsStorage::new(store)) as _))?;
    let segment = segments
        .iter()
        .rev()
        .find(|s| s.base_offset <= target)
        .ok_or("no segment")?;
    let mut bytes = std::fs::read(&segment.file)?;
    let at = bytes
        .windows(record.len())
        .rposition(|w| w == record)
        .ok_or("the record is not in its segment")?;
    bytes[at + record.len() / 2] ^= 1;
    std::fs::write(&segment.file, &bytes)?;
    let before = contents(store)?;
    let error = match kv::Options::new().open(store) {
        Err(kv::Error::Log(wal::Error::Corrupt(corruption))) => Some(corruption),
        _ => None,
    };
    let unchanged = before == contents(store)?;
    match &error {
        Some(e) => say(&format!("   one flipped bit: {e}")),
        None => say("   one flipped bit was not noticed"),
    }
    Ok(Corrupt {
        target,
        refused: error.is_some(),
        offset: error.as_ref().map(|e| e.offset),
        file: error.as_ref().map(|e| e.file.clone()),
        position: error.as_ref().map(|e| e.pos),
        unchanged,
    })
}

fn contents(dir: &Path) -> Anyhow<BTreeMap<std::ffi::OsString, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // The lock file names the process that opened last.
        if entry.file_name() != "LOCK" {
            files.insert(entry.file_name(), std::fs::read(entry.path())?);
        }
    }
    Ok(files)
}
