//! Bugs that logs and stores have had, planted in this one, each on its own, in a copy of the sources: the suite must notice every one. A bug
//! that nothing notices is a promise that nothing proves.
//!
//! ```text
//! cargo test --test planted                     # all of them; each is a build and a run of tests
//! cargo test --test planted -- --only retried   # those whose name or family contains the word
//! cargo test --test planted -- --check          # only that each still fits the sources: quick
//! ```

mod bugs;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use bugs::{BUGS, Bug, Suite};

/// A run that takes longer hangs, and is so noticed. Sound code takes a fraction of it.
const PATIENCE: Duration = Duration::from_secs(240);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let only = words
        .iter()
        .position(|w| w == "--only")
        .and_then(|at| words.get(at + 1));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let misfits: Vec<String> = BUGS.iter().filter_map(|bug| plant(root, bug).err()).collect();
    if !misfits.is_empty() {
        println!("{}", misfits.join("\n"));
        return ExitCode::FAILURE;
    }
    println!("{} bugs fit the sources", BUGS.len());
    if words.iter().any(|w| w == "--check") {
        return ExitCode::SUCCESS;
    }
    let chosen = |bug: &&Bug| only.is_none_or(|word| bug.name.contains(word) || bug.family.to_string() == *word);
    let mut unnoticed = 0;
    let work = Workshop::new(root);
    for bug in BUGS.iter().filter(chosen) {
        let started = Instant::now();
        let verdict = work.try_bug(bug);
        let took = started.elapsed();
        match verdict {
            Ok(by) => println!("{} {:<66} noticed by {by} ({took:.0?})", bug.family, bug.name),
            Err(why) => {
                unnoticed += 1;
                println!("{} {:<66} NOT NOTICED: {why} ({took:.0?})", bug.family, bug.name);
            }
        }
    }
    println!("{unnoticed} not noticed");
    if unnoticed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The file with the bug in it.
fn plant(root: &Path, bug: &Bug) -> Result<String, String> {
    let source = std::fs::read_to_string(root.join(bug.file)).map_err(|e| format!("{}: {e}", bug.file))?;
    match source.matches(bug.sound).count() {
        1 => Ok(source.replacen(bug.sound, bug.planted, 1)),
        n => Err(format!("{}: its place is {n} times in {}", bug.name, bug.file)),
    }
}

/// A copy of the workspace, built apart from it.
struct Workshop {
    tree: PathBuf,
    target: PathBuf,
}

impl Workshop {
    fn new(root: &Path) -> Self {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
        let (tree, target) = (place.join("tree"), place.join("target"));
        let _ = std::fs::remove_dir_all(&tree);
        copy(root, &tree);
        Self { tree, target }
    }

    /// What noticed the bug.
    fn try_bug(&self, bug: &Bug) -> Result<String, String> {
        let file = self.tree.join(bug.file);
        let sound = std::fs::read(&file).map_err(|e| e.to_string())?;
        let planted = plant(&self.tree, bug)?;
        std::fs::write(&file, planted).map_err(|e| e.to_string())?;
        let verdict = bug.suites.iter().find_map(|suite| self.run(*suite).transpose());
        std::fs::write(&file, sound).map_err(|e| e.to_string())?;
        verdict.unwrap_or_else(|| Err(format!("{:?} pass", bug.suites)))
    }

    /// Runs a suite: `None` where it passes, else what failed. `Err` where it does not build.
    fn run(&self, suite: Suite) -> Result<Option<String>, String> {
        let (build, arguments): (&[&str], &[&str]) = match suite {
            Suite::Promises => (&["--test", "promises"], &[]),
            Suite::Cases => (&["--test", "cases"], &[]),
            Suite::Crashes => (&["--test", "campaign"], &["--only", "crashes"]),
            Suite::Faults => (&["--test", "campaign"], &["--only", "faults"]),
            Suite::Rot => (&["--test", "rot"], &[]),
            Suite::Schedules => (&["--release", "--test", "schedules"], &[]),
            Suite::WalUnits => (&["-p", "wal", "--lib"], &[]),
        };
        let mut cargo = self.cargo();
        if matches!(suite, Suite::Schedules) {
            cargo.env("RUSTFLAGS", "--cfg shuttle");
            cargo.env("CARGO_TARGET_DIR", self.target.join("shuttle"));
        }
        let built = cargo
            .args(["test", "--no-run", "--message-format=json"])
            .args(build)
            .output()
            .map_err(|e| e.to_string())?;
        if !built.status.success() {
            return Err(format!("it does not build: {}", String::from_utf8_lossy(&built.stderr)));
        }
        let messages = String::from_utf8_lossy(&built.stdout).into_owned();
        let program = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["profile"]["test"] == true)
            .find_map(|message| message["executable"].as_str().map(str::to_owned))
            .ok_or("the build names no program")?;
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(&self.tree)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut stdout = child.stdout.take().ok_or("it has no output")?;
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        });
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) => break Some(status),
                None if Instant::now() >= deadline => break None,
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let Some(status) = status else {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(Some(format!("{suite:?}, which hangs")));
        };
        if status.success() {
            return Ok(None);
        }
        let text = reader.join().unwrap_or_default();
        let failed: Vec<&str> = text
            .lines()
            .filter_map(|line| {
                let test = line
                    .strip_prefix("test ")
                    .and_then(|line| line.strip_suffix(" ... FAILED"));
                test.map(|name| name.rsplit("::").next().unwrap_or(name))
                    .or_else(|| line.strip_prefix("VIOLATION: "))
            })
            .collect();
        let more = failed.len().saturating_sub(2);
        let first = failed.into_iter().take(2).collect::<Vec<_>>().join(", ");
        Ok(Some(match more {
            0 => format!("{suite:?}: {first}"),
            _ => format!("{suite:?}: {first}, and {more} more"),
        }))
    }

    fn cargo(&self) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_TEST_DEBUG", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
        cargo
    }
}

/// Copies the sources, and nothing that was built.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory beside the build");
    for entry in std::fs::read_dir(from).expect("the sources are there").flatten() {
        let name = entry.file_name();
        if ["target", ".git", "fuzz", "mutants.out"]
            .iter()
            .any(|left_out| name == *left_out)
        {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            copy(&entry.path(), &to.join(name));
        } else {
            std::fs::copy(entry.path(), to.join(name)).expect("the sources can be copied");
        }
    }
}
