//! Every call of a life fails in turn, or is the last that the process makes.

use std::path::Path;

use super::life::Told;
use super::{Outcome, child_under, has};

/// Runs the life with something injected into the `n`th call of a kind. `None` when there are not so many.
fn run(dir: &Path, call: &str, what: &str, n: u32) -> Option<Told> {
    let _ = std::fs::remove_dir_all(dir.join("log"));
    let trace = dir.join("trace");
    let inject = format!("inject={call}:{what}:when={n}");
    let trace_path = trace.to_str().expect("a path in UTF-8");
    let only = format!("trace={call}");
    // Calls on the directory's files alone: what the program loads at its start is not ours.
    let arguments = ["-f", "-e", &only, "-e", &inject, "-o", trace_path];
    let output = child_under("strace", &arguments, "live", dir)
        .output()
        .expect("strace runs");
    let struck = std::fs::read_to_string(&trace).expect("strace wrote it");
    if !struck.contains("(INJECTED)") && !struck.contains("killed by SIGKILL") {
        return None;
    }
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("panicked"),
        "{output:?}"
    );
    Some(Told::parse(&output.stdout))
}

pub fn fail(dir: &Path) -> Outcome {
    if !has("strace") {
        return Outcome::Skipped("there is no strace");
    }
    let mut tried = 0;
    for (call, errors) in [
        ("fdatasync", &["error=EIO", "error=ENOSPC"][..]),
        ("fsync", &["error=EIO"]),
        ("pwrite64", &["error=ENOSPC", "error=EIO"]),
        ("rename", &["error=EIO"]),
        ("unlink", &["error=EACCES"]),
        ("ftruncate", &["error=EIO"]),
    ] {
        for error in errors {
            for n in 1.. {
                let Some(told) = run(dir, call, error, n) else { break };
                told.check(dir, &format!("{error} at {call} number {n}"));
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{tried}");
    Outcome::Held(format!("{tried} failures, every acknowledgement kept"))
}

pub fn kill(dir: &Path) -> Outcome {
    if !has("strace") {
        return Outcome::Skipped("there is no strace");
    }
    let mut tried = 0;
    for call in ["pwrite64", "fdatasync", "fsync", "rename", "unlink", "ftruncate"] {
        for n in 1.. {
            let Some(told) = run(dir, call, "signal=KILL", n) else {
                break;
            };
            told.check(dir, &format!("killed at {call} number {n}"));
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
    Outcome::Held(format!("{tried} kills, every acknowledgement kept"))
}
