//! A tour: a log, its consumers and a store, on real files, with processes that really die.
//!
//! `cargo run --release -p kv --example tour -- [--records N] [--crash-at K] [--dir DIR] [--json]`
//!
//! Nothing is assumed of the outcome: every figure is counted from what is on disk afterwards, or from what a consumer had written down before
//! its process was killed.

mod children;
mod scoreboard;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;

/// What the tour was asked to do.
pub(crate) struct Args {
    records: u64,
    crash_at: u64,
    dir: Option<PathBuf>,
    json: bool,
}

pub(crate) type Anyhow<T> = Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "usage: tour [--records N] [--crash-at K] [--dir DIR] [--json]
  --records N   records to append, at least 1 (default 100000)
  --crash-at K  the offset at which the consumers die, below N (default 59999)
  --dir DIR     where to work: missing or empty (default: a temporary directory)
  --json        one line of JSON instead of words";

fn parse() -> Anyhow<Option<Args>> {
    use lexopt::prelude::{Long, ValueExt};
    let mut args = Args {
        records: 100_000,
        crash_at: 59_999,
        dir: None,
        json: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("records") => args.records = parser.value()?.parse()?,
            Long("crash-at") => args.crash_at = parser.value()?.parse()?,
            Long("dir") => args.dir = Some(parser.value()?.into()),
            Long("json") => args.json = true,
            Long("help") => return Ok(None),
            other => return Err(other.unexpected().into()),
        }
    }
    if args.records == 0 {
        return Err("--records must be at least 1".into());
    }
    if args.crash_at >= args.records {
        return Err(format!(
            "--crash-at must be below --records, and {} is not below {}",
            args.crash_at, args.records
        )
        .into());
    }
    Ok(Some(args))
}

fn main() -> ExitCode {
    // A child of the tour is this program again, told by its environment what to do.
    if let Some(result) = children::run_if_child() {
        return finish(result);
    }
    match parse() {
        Ok(Some(args)) => finish(tour(&args)),
        Ok(None) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("tour: {e}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn finish(result: Anyhow<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tour: {e}");
            ExitCode::FAILURE
        }
    }
}

fn tour(args: &Args) -> Anyhow<()> {
    let temporary = tempfile::tempdir()?;
    let dir = match &args.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            if let Some(entry) = std::fs::read_dir(dir)?.next() {
                return Err(format!("{} is not empty: it holds {:?}", dir.display(), entry?.file_name()).into());
            }
            dir.clone()
        }
        None => temporary.path().to_path_buf(),
    };
    let say = |text: &str| {
        if !args.json {
            println!("{text}");
        }
    };
    let score = steps::run(args, &dir, &say)?;
    if args.json {
        println!("{}", score.to_json());
    } else {
        println!("{}", score.to_text());
    }
    match score.failures().as_slice() {
        [] => Ok(()),
        failed => Err(format!("not as promised: {}", failed.join(", ")).into()),
    }
}
