//! What the tour's child processes do, until they kill themselves.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use kv::{FsyncPolicy, History};
use wal::{Delivery, Durability};

use crate::Anyhow;
use crate::steps::{key_of, value_of};

const ROLE: &str = "TOUR_CHILD";

/// A task for a child.
pub(crate) enum Task<'a> {
    /// Handle the records of a log as the consumer `name`; die at `die_at`, at the worst moment.
    Consume {
        log: &'a Path,
        name: &'a str,
        delivery: Delivery,
        sink: &'a Path,
        die_at: Option<u64>,
    },
    /// Append one record to a log without a sync, and die.
    AppendOne { log: &'a Path, record: &'a str },
    /// Write `writes` to a store, with a checkpoint after `checkpoint_after` of them, and die.
    Fill {
        store: &'a Path,
        writes: u64,
        checkpoint_after: u64,
    },
}

/// Runs this program again with a task, and waits for its end.
pub(crate) fn spawn(task: &Task<'_>) -> Anyhow<ExitStatus> {
    let mut child = Command::new(std::env::current_exe()?);
    match task {
        Task::Consume {
            log,
            name,
            delivery,
            sink,
            die_at,
        } => {
            child
                .env(ROLE, "consume")
                .env("LOG", log)
                .env("NAME", name)
                .env("SINK", sink);
            child.env("AT_MOST_ONCE", if *delivery == Delivery::AtMostOnce { "1" } else { "" });
            child.env("DIE_AT", die_at.map(|n| n.to_string()).unwrap_or_default());
        }
        Task::AppendOne { log, record } => {
            child.env(ROLE, "append").env("LOG", log).env("RECORD", record);
        }
        Task::Fill {
            store,
            writes,
            checkpoint_after,
        } => {
            child.env(ROLE, "fill").env("STORE", store);
            child
                .env("WRITES", writes.to_string())
                .env("CHECKPOINT_AFTER", checkpoint_after.to_string());
        }
    }
    Ok(child.status()?)
}

/// Does the task that this process was started for, if it was started for one.
pub(crate) fn run_if_child() -> Option<Anyhow<()>> {
    Some(match std::env::var(ROLE).ok()?.as_str() {
        "consume" => consume(),
        "append" => append_one(),
        _ => fill(),
    })
}

fn path(name: &str) -> Anyhow<PathBuf> {
    Ok(std::env::var_os(name).ok_or(format!("{name} is not set"))?.into())
}

fn number(name: &str) -> Anyhow<u64> {
    Ok(std::env::var(name)?.parse()?)
}

/// Ends this process as a power switch would: no destructor runs, nothing is flushed.
fn die() -> ! {
    let kill = Command::new("sh")
        .arg("-c")
        .arg(format!("kill -KILL {}", std::process::id()))
        .status();
    // Only reached where there is no shell.
    eprintln!("tour: could not kill this process: {kill:?}");
    std::process::abort()
}

/// What a consumer has done, for good: one offset after another. A killed process has written what it has written.
struct Sink(File);

impl Sink {
    fn open(path: &Path) -> Anyhow<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    fn handle(&mut self, offset: u64) -> Anyhow<()> {
        Ok(self.0.write_all(&offset.to_le_bytes())?)
    }
}

fn consume() -> Anyhow<()> {
    let log = wal::Options::new().create(false).open(path("LOG")?)?;
    let delivery = if std::env::var("AT_MOST_ONCE")?.is_empty() {
        Delivery::AtLeastOnce
    } else {
        Delivery::AtMostOnce
    };
    let die_at = number("DIE_AT").ok();
    let mut sink = Sink::open(&path("SINK")?)?;
    let mut consumer = log.consumer(&std::env::var("NAME")?).delivery(delivery).open()?;
    while let Some(record) = consumer.next()? {
        let offset = record.offset;
        match delivery {
            // The work, then the commit: a death in between repeats the work.
            Delivery::AtLeastOnce => {
                sink.handle(offset)?;
                if die_at == Some(offset) {
                    die();
                }
                consumer.commit()?;
            }
            // `next` has committed already: a death before the work skips it.
            Delivery::AtMostOnce => {
                if die_at == Some(offset) {
                    die();
                }
                sink.handle(offset)?;
            }
        }
    }
    drop(consumer);
    Ok(log.close()?)
}

fn append_one() -> Anyhow<()> {
    let log = wal::Options::new().policy(FsyncPolicy::Os).open(path("LOG")?)?;
    log.append_with(std::env::var("RECORD")?, Durability::Written)?;
    die()
}

fn fill() -> Anyhow<()> {
    let (writes, checkpoint_after) = (number("WRITES")?, number("CHECKPOINT_AFTER")?);
    let options = kv::Options::new()
        .policy(FsyncPolicy::Os)
        .checkpoint_bytes(0)
        .history(History::Everything);
    let store = options.open(path("STORE")?)?;
    for n in 0..writes {
        if n == checkpoint_after {
            store.checkpoint()?;
        }
        // One in seven removes what an earlier write may have put.
        if n % 7 == 6 {
            store.delete(key_of(n / 2, writes))?;
        } else {
            store.put(key_of(n, writes), value_of(n))?;
        }
    }
    die()
}
