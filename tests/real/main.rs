//! The real file system: what the simulator stands for, held against it. Linux only; parts that need a tool or a permission that is not
//! there are skipped, and say so.
//!
//! ```text
//! cargo test --test real
//! ```
//!
//! - [`calls`]: the same life on both, the calls that the system saw (strace) against those that the simulator recorded.
//! - [`injected`]: every call of a life fails in turn, or the process is killed at it (strace).
//! - [`limits`]: a full file system, a limit on a file's size, a limit on open files.

mod calls;
mod injected;
mod life;
mod limits;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// What came of a part.
pub enum Outcome {
    Held(String),
    Skipped(&'static str),
}

fn main() -> ExitCode {
    if let Some(dir) = std::env::var_os("REAL_DIR") {
        let part = std::env::var("REAL_PART").unwrap_or_default();
        life::child(&part, Path::new(&dir));
        return ExitCode::SUCCESS;
    }
    if !cfg!(target_os = "linux") {
        println!("skipped: not Linux");
        return ExitCode::SUCCESS;
    }
    // What the machine has for disks, not a file system in memory.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory beside the build");
    type Part = (&'static str, fn(&Path) -> Outcome);
    let parts: [Part; 5] = [
        ("the same calls in the same order", calls::compare),
        ("a failure at every call", injected::fail),
        ("a kill at every call", injected::kill),
        ("a file system of 1 MiB", limits::full),
        ("limits of the process", limits::limited),
    ];
    for (name, part) in parts {
        let dir = place.path().join(name.replace(' ', "-"));
        std::fs::create_dir(&dir).expect("a directory of its own");
        match part(&dir) {
            Outcome::Held(what) => println!("{name}: {what}"),
            Outcome::Skipped(why) => println!("{name}: SKIPPED, {why}"),
        }
    }
    ExitCode::SUCCESS
}

/// This program again, as the process that something happens to.
pub fn child(part: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    as_child(&mut command, part, dir);
    command
}

/// As [`child`], run by another program, which gets `arguments` before it.
pub fn child_under(program: &str, arguments: &[&str], part: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).arg(std::env::current_exe().expect("it runs"));
    as_child(&mut command, part, dir);
    command
}

fn as_child(command: &mut Command, part: &str, dir: &Path) {
    command.env("REAL_PART", part).env("REAL_DIR", dir);
    command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped());
}

pub fn has(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}
