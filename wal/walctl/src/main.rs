//! `walctl`: look into a log, and put records into one.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::{Parser, Subcommand, ValueEnum};
use serde_json::json;
use wal::inspect::{Survivor, Survivors};
use wal::storage::{FsStorage, Storage};
use wal::{FsyncPolicy, Offset, Options, Ticket, Visible, Wal, inspect};
use walctl::{CLEAN, DAMAGED, Failure, consumer_json, cut_json, note_json, print_cut, segment_json};

/// Looks into a write-ahead log. Only `append` writes; the other commands take no lock, change nothing, and work beside a
/// writer.
///
/// Exit codes: 0 clean (a torn tail from a crash is, and is told), 1 usage or I/O, 2 damage found.
#[derive(Parser)]
#[command(name = "walctl", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Append records from standard input, one per line, and print their offsets once they are acknowledged. Creates the log where it is
    /// missing.
    Append {
        /// The log's directory.
        dir: PathBuf,
        /// When an append is acknowledged: durable (always, group), or handed to the system (interval, os).
        #[arg(long, value_enum, default_value_t = Policy::Always)]
        policy: Policy,
        /// Bytes after which a segment is sealed.
        #[arg(long)]
        segment_bytes: Option<u64>,
        /// Append this file as one record, instead of lines.
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
    },
    /// Print records.
    Cat {
        /// The log's directory.
        dir: PathBuf,
        /// The first offset. Default: the first retained.
        #[arg(long)]
        from: Option<Offset>,
        /// One past the last offset. Default: the durable end.
        #[arg(long)]
        to: Option<Offset>,
        /// A line of JSON for each record: offset, base64, and text where it is UTF-8.
        #[arg(long)]
        json: bool,
        /// Show also records that nothing in the files proves durable yet.
        #[arg(long)]
        written: bool,
        /// Go on behind damage: print what is whole, and tell what is missing.
        #[arg(long, conflicts_with = "written")]
        past_damage: bool,
    },
    /// Describe the log: offsets, segments, consumers, how it ended.
    Info {
        /// The log's directory.
        dir: PathBuf,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Read every byte of log and consumers, go on past damage, and list all of it.
    Verify {
        /// The log's directory.
        dir: PathBuf,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// List the consumers.
    Consumers {
        /// The log's directory.
        dir: PathBuf,
        /// A line of JSON for each.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    Always,
    Group,
    Interval,
    Os,
}

impl From<Policy> for FsyncPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Always => Self::Always,
            Policy::Group => Self::Group {
                max_delay: Duration::from_millis(1),
            },
            Policy::Interval => Self::Interval(Duration::from_millis(100)),
            Policy::Os => Self::Os,
        }
    }
}

fn main() -> ExitCode {
    let args: Args = match walctl::parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let result = run(args.command, &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    // What was written before a failure belongs before its words.
    let _ = out.flush();
    walctl::finish("walctl", result)
}

fn run(command: Command, out: &mut dyn Write) -> Result<u8, Failure> {
    match command {
        Command::Append {
            dir,
            policy,
            segment_bytes,
            from_file,
        } => {
            let mut options = Options::new().policy(policy.into());
            if let Some(bytes) = segment_bytes {
                options = options.segment_bytes(bytes);
            }
            append(&options.open(dir)?, from_file.as_deref(), out)
        }
        Command::Cat {
            dir,
            from,
            to,
            json,
            written,
            past_damage,
        } => {
            let mut print = |offset, bytes: &[u8]| print_record(out, offset, bytes, json);
            if past_damage {
                cat_survivors(&dir, from.unwrap_or(0)..to.unwrap_or(Offset::MAX), &mut print)
            } else {
                cat(&dir, from, to, written, &mut print)
            }
        }
        Command::Info { dir, json } => info(&dir, json, out),
        Command::Verify { dir, json } => verify(&dir, json, out),
        Command::Consumers { dir, json } => consumers(&dir, json, out),
    }
}

fn storage(dir: &Path) -> Arc<dyn Storage> {
    Arc::new(FsStorage::new(dir))
}

/// Appends without waiting for each record, so that many share a sync; offsets are printed when they are acknowledged.
fn append(log: &Wal, from_file: Option<&Path>, out: &mut dyn Write) -> Result<u8, Failure> {
    const IN_FLIGHT: usize = 1024;
    if let Some(file) = from_file {
        let mut record = Vec::new();
        let read = std::fs::File::open(file).and_then(|mut f| f.read_to_end(&mut record));
        read.map_err(|e| Failure::Other(format!("{}: {e}", file.display())))?;
        writeln!(out, "{}", log.append(&record)?)?;
    } else {
        let mut in_flight: VecDeque<Ticket> = VecDeque::new();
        let mut input = io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            in_flight.push_back(log.append_async(&line)?);
            if in_flight.len() > IN_FLIGHT
                && let Some(oldest) = in_flight.pop_front()
            {
                writeln!(out, "{}", oldest.wait()?)?;
            }
        }
        for ticket in in_flight {
            writeln!(out, "{}", ticket.wait()?)?;
        }
    }
    log.close()?;
    Ok(CLEAN)
}

fn print_record(out: &mut dyn Write, offset: Offset, bytes: &[u8], json: bool) -> io::Result<()> {
    let text = std::str::from_utf8(bytes).ok();
    if json {
        let mut record = json!({ "offset": offset, "base64": BASE64_STANDARD.encode(bytes) });
        if let Some(text) = text {
            record["text"] = text.into();
        }
        return writeln!(out, "{record}");
    }
    match text.filter(|t| !t.chars().any(|c| c.is_control() && c != '\t')) {
        Some(text) => writeln!(out, "{offset}\t{text}"),
        None => writeln!(out, "{offset}\t{}", bytes.escape_ascii()),
    }
}

fn cat(
    dir: &Path,
    from: Option<Offset>,
    to: Option<Offset>,
    written: bool,
    print: &mut dyn FnMut(Offset, &[u8]) -> io::Result<()>,
) -> Result<u8, Failure> {
    let log = Options::new().open_read_only(dir)?;
    let end = if written { log.written_end() } else { log.durable_end() };
    let visible = if written { Visible::Written } else { Visible::Durable };
    let to = to.unwrap_or(end);
    if to > end {
        return Err(wal::Error::OutOfRange {
            wanted: to,
            start: log.start(),
            end,
        }
        .into());
    }
    let mut reader = log.reader_of(from.unwrap_or(log.start()), visible)?;
    while reader.offset() < to {
        let Some(record) = reader.next()? else { break };
        print(record.offset, record.bytes)?;
    }
    if !written && to == end && log.written_end() > end {
        eprintln!(
            "walctl: {} more records are whole but not proven durable; --written shows them",
            log.written_end() - end
        );
    }
    Ok(CLEAN)
}

fn cat_survivors(
    dir: &Path,
    range: std::ops::Range<Offset>,
    print: &mut dyn FnMut(Offset, &[u8]) -> io::Result<()>,
) -> Result<u8, Failure> {
    let mut survivors = Survivors::open(&storage(dir))?;
    let mut code = CLEAN;
    while let Some(survivor) = survivors.next()? {
        match survivor {
            Survivor::Record(record) if range.contains(&record.offset) => print(record.offset, record.bytes)?,
            Survivor::Record(_) => {}
            Survivor::Lost(finding) => {
                code = DAMAGED;
                eprintln!(
                    "walctl: offsets {}..{} are lost: {} at byte {}: {}",
                    finding.lost.start,
                    finding.lost.end,
                    finding.corruption.file,
                    finding.corruption.pos,
                    finding.corruption.damage
                );
            }
        }
    }
    Ok(code)
}

fn info(dir: &Path, as_json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let (report, segments) = inspect::survey(&storage(dir))?;
    let consumers = Options::new().open_read_only(dir)?.consumers();
    let bytes: u64 = segments.iter().map(|s| s.file_bytes).sum();
    if as_json {
        let info = json!({
            "dir": dir.display().to_string(), "start": report.start, "end": report.end, "durable_end": report.proven_end,
            "was_closed": report.was_closed, "file_bytes": bytes,
            "segments": segments.iter().map(segment_json).collect::<Vec<_>>(),
            "consumers": consumers.iter().map(consumer_json).collect::<Vec<_>>(),
            "torn": cut_json(report.cut.as_ref()),
            "notes": report.notes.iter().map(note_json).collect::<Vec<_>>(),
        });
        writeln!(out, "{info}")?;
        return Ok(CLEAN);
    }
    writeln!(out, "log       {}", dir.display())?;
    writeln!(
        out,
        "offsets   {}..{} ({} records)",
        report.start,
        report.end,
        report.end - report.start
    )?;
    let witness = report.witness.as_ref().map_or(String::new(), |w| format!(" ({w})"));
    writeln!(out, "durable   to {}{witness}", report.proven_end)?;
    writeln!(
        out,
        "closed    {}",
        if report.was_closed {
            "in order"
        } else {
            "no: in use, or ended by a crash"
        }
    )?;
    writeln!(out, "segments  {} ({bytes} bytes)", segments.len())?;
    for s in &segments {
        writeln!(
            out,
            "          {} offsets {}..{}, {} bytes",
            s.file, s.base_offset, s.end_offset, s.file_bytes
        )?;
    }
    writeln!(out, "consumers {}", consumers.len())?;
    if let Some(cut) = &report.cut {
        print_cut(out, cut)?;
    }
    for n in &report.notes {
        writeln!(out, "note      {} at {}: {}", n.file, n.pos, n.what)?;
    }
    Ok(CLEAN)
}

fn verify(dir: &Path, json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let found = inspect::verify(&storage(dir))?;
    if json {
        writeln!(out, "{}", walctl::verification_json(&found))?;
    } else {
        walctl::print_verification(out, &found)?;
        writeln!(out, "{}", if found.is_clean() { "clean" } else { "DAMAGED" })?;
    }
    Ok(if found.is_clean() { CLEAN } else { DAMAGED })
}

fn consumers(dir: &Path, json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let consumers = Options::new().open_read_only(dir)?.consumers();
    for c in &consumers {
        if json {
            writeln!(out, "{}", consumer_json(c))?;
        } else if let Some(why) = &c.damaged {
            writeln!(out, "{}\tDAMAGED\t{why}", c.name)?;
        } else {
            writeln!(
                out,
                "{}\tcommitted {}\tlag {}\t{:?}",
                c.name, c.committed, c.lag, c.delivery
            )?;
        }
    }
    Ok(if consumers.iter().any(|c| c.damaged.is_some()) {
        DAMAGED
    } else {
        CLEAN
    })
}
