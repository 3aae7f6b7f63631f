//! Limits of the system.

use std::path::{Path, PathBuf};
use std::process::Command;

use wal::Error;

use super::life::{Told, options, record};
use super::{Outcome, child_under};

/// A mounted file system.
struct Mounted(PathBuf);

impl Mounted {
    fn new(place: &Path, bytes: u64) -> Option<Self> {
        let size = format!("size={bytes}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(place)
            .output()
            .ok()?;
        mount.status.success().then(|| Self(place.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A file system that is really full, at every place where it can become so, and given space again.
pub fn full(dir: &Path) -> Outcome {
    const SIZE: u64 = 1 << 20;
    let Some(mounted) = Mounted::new(dir, SIZE) else {
        return Outcome::Skipped("no permission to mount one");
    };
    let mut rounds = 0;
    for filler in (0..100_000).step_by(4096) {
        let path = mounted.0.join("log");
        let _ = std::fs::remove_dir_all(&path);
        let other = mounted.0.join("filler");
        std::fs::write(&other, vec![1; filler]).expect("there is space for it");
        let log = options()
            .segment_bytes(64 << 10)
            .open(&path)
            .expect("there is space for it");
        let mut acknowledged = 0;
        let error = loop {
            match log.append(record(acknowledged)) {
                Ok(offset) => {
                    assert_eq!(offset, acknowledged);
                    acknowledged += 1;
                }
                Err(e) => break e,
            }
        };
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        let read = |from: u64, end: u64| {
            let mut reader = log.reader(from).expect("reading goes on");
            (from..end).for_each(|n| {
                let found = reader.next().expect("reading goes on").expect("all are there");
                assert!(found.bytes == record(n));
            });
        };
        read(0, acknowledged);
        // Somebody else makes room, or retention does.
        if filler > 70_000 {
            std::fs::remove_file(&other).expect("it is there");
        } else {
            assert!(
                log.remove_before(acknowledged / 2)
                    .expect("needs no space")
                    .bytes_removed
                    > 0
            );
        }
        assert_eq!(
            log.append(record(acknowledged))
                .unwrap_or_else(|e| panic!("{filler}: {e}")),
            acknowledged
        );
        acknowledged += 1;
        // Full again, and the process ends there; then it is opened with no byte free.
        while log.append(record(log.end())).is_ok() {
            acknowledged += 1;
        }
        read(log.start(), acknowledged);
        log.abandon();
        let rest = mounted.0.join("rest");
        let _ = std::fs::write(&rest, vec![1; SIZE as usize]);
        let log = options()
            .segment_bytes(64 << 10)
            .open(&path)
            .expect("opens on a full disk");
        assert_eq!(log.end(), acknowledged);
        drop(log);
        std::fs::remove_file(&rest).expect("it is there");
        rounds += 1;
    }
    Outcome::Held(format!("{rounds} times full, emptied and full again"))
}

pub fn limited(dir: &Path) -> Outcome {
    // A file may not grow: as a quota that is no lack of space.
    let script = "trap '' XFSZ; ulimit -f 200; exec \"$0\"";
    let output = child_under("sh", &["-c", script], "large", dir)
        .output()
        .expect("sh runs");
    let told = Told::parse(&output.stdout);
    assert!(told.failed.is_some() && told.acknowledged > 20, "{output:?}");
    let grown = told.acknowledged;
    told.check(dir, "a limit on the file's size");
    std::fs::remove_dir_all(dir.join("log")).expect("it is there");
    // Few files may be open, and there are many.
    let output = child_under("sh", &["-c", "ulimit -n 32; exec \"$0\""], "many files", dir)
        .output()
        .expect("sh runs");
    let told = Told::parse(&output.stdout);
    assert!(
        told.failed.is_none() && told.lines.iter().any(|line| line == "read by all"),
        "{output:?}"
    );
    told.check(dir, "a limit on open files");
    Outcome::Held(format!(
        "{grown} records where a file may not grow; 200 segments and 10 readers with 32 open files"
    ))
}
