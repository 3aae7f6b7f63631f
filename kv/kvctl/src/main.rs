//! `kvctl`: look into a store.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use serde_json::json;
use wal::storage::{FsStorage, Storage};
use walctl::{CLEAN, DAMAGED, Failure};

/// Looks into a key-value store. Takes no lock, changes nothing, and works beside a writer. A store's directory is a log's directory: `walctl`
/// works on it too.
///
/// Exit codes: 0 clean (a torn tail from a crash is, and is told), 1 usage or I/O, 2 damage found.
#[derive(Parser)]
#[command(name = "kvctl", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Read every byte of log, consumers and checkpoints, and prove that each checkpoint equals the fold of the log.
    Verify {
        /// The store's directory.
        dir: PathBuf,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let args: Args = match walctl::parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let Command::Verify { dir, json } = args.command;
    let result = verify(&dir, json, &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    walctl::finish("kvctl", result)
}

fn verify(dir: &Path, as_json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let storage: Arc<dyn Storage> = Arc::new(FsStorage::new(dir));
    let found = kv::verify(&storage).map_err(|e| match e {
        kv::Error::Log(e) => Failure::Log(e),
        other => Failure::Other(walctl::chain(&other)),
    })?;
    let code = if found.is_clean() { CLEAN } else { DAMAGED };
    if as_json {
        let checkpoints: Vec<_> = found
            .checkpoints
            .iter()
            .map(|c| {
                json!({
                    "file": c.file, "applied": c.applied, "file_bytes": c.file_bytes, "entries": c.entries,
                    "damage": c.damage, "equals_fold": c.equals_fold,
                })
            })
            .collect();
        let fold = found
            .fold
            .as_ref()
            .map(|f| json!({ "from": f.from, "to": f.to, "keys": f.keys }));
        let report = json!({
            "clean": found.is_clean(), "log": walctl::verification_json(&found.log), "checkpoints": checkpoints,
            "fold": fold, "not_writes": found.not_writes,
        });
        writeln!(out, "{report}")?;
        return Ok(code);
    }
    walctl::print_verification(out, &found.log)?;
    for c in &found.checkpoints {
        match (&c.damage, c.equals_fold) {
            (Some(why), _) => writeln!(out, "DAMAGE  {}: {why}", c.file)?,
            (None, Some(false)) => writeln!(
                out,
                "DAMAGE  {} differs from the fold of the log up to {}",
                c.file, c.applied
            )?,
            (None, Some(true)) => writeln!(
                out,
                "checkpoint {}: {} entries, equal to the fold of the log",
                c.file, c.entries
            )?,
            (None, None) => writeln!(
                out,
                "checkpoint {}: {} entries, whole; the log no longer tells more",
                c.file, c.entries
            )?,
        }
    }
    for why in &found.not_writes {
        writeln!(out, "DAMAGE  {why}")?;
    }
    match &found.fold {
        Some(f) => writeln!(out, "fold    of records {}..{}: {} keys", f.from, f.to, f.keys)?,
        None => writeln!(out, "fold    could not be made")?,
    }
    writeln!(out, "{}", if found.is_clean() { "clean" } else { "DAMAGED" })?;
    Ok(code)
}
