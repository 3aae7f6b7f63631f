//! The simulator is only as good as its likeness to what really happens. One life is lived on both: under strace, which shows the calls that the
//! system saw, and on the simulator, which records the operations that it was asked for. They must be the same, in the same order.

use std::path::Path;
use std::sync::Arc;

use wal::storage::Storage;
use wal::storage::sim::{OpKind, SimStorage};

use super::{Outcome, child_under, has, life};

const CALLS: &str =
    "trace=openat,pwrite64,fdatasync,fsync,rename,renameat,renameat2,unlink,unlinkat,ftruncate,mkdir,mkdirat";

pub fn compare(dir: &Path) -> Outcome {
    if !has("strace") {
        return Outcome::Skipped("there is no strace");
    }
    let log = dir.join("trace");
    let arguments = [
        "-f",
        "-y",
        "-s",
        "0",
        "-e",
        CALLS,
        "-o",
        log.to_str().expect("a path in UTF-8"),
    ];
    let output = child_under("strace", &arguments, "live", dir)
        .output()
        .expect("strace runs");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&log).expect("strace wrote it");
    let root = dir.join("log");
    let root = root.to_str().expect("a path in UTF-8");
    let seen: Vec<String> = text.lines().filter_map(|line| call(line, root)).collect();

    let disk = SimStorage::missing();
    disk.start_trace();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    life::live(&storage, &mut |_| {}).expect("nothing goes wrong on it");
    let mut recorded = Vec::new();
    for op in disk.trace().iter().filter(|op| op.file != "LOCK") {
        match op.kind {
            // Its name in the parent directory is made durable by the same operation.
            OpKind::CreateRoot => recorded.extend(["make directory".to_owned(), "sync parent".to_owned()]),
            OpKind::Create => recorded.push(format!("create {}", op.file)),
            OpKind::Write => recorded.push(format!("write {} {}+{}", op.file, op.pos, op.len)),
            OpKind::SetLen => recorded.push(format!("cut {} {}", op.file, op.pos)),
            OpKind::SyncData => recorded.push(format!("sync {}", op.file)),
            OpKind::SyncDir => recorded.push("sync directory".to_owned()),
            OpKind::Rename => recorded.push(format!("rename {}", op.file)),
            OpKind::Remove => recorded.push(format!("remove {}", op.file)),
            _ => {}
        }
    }
    for (n, pair) in seen.iter().zip(&recorded).enumerate() {
        assert_eq!(
            pair.0, pair.1,
            "call {n}: the system saw the first, the simulator the second"
        );
    }
    assert_eq!(
        seen.len(),
        recorded.len(),
        "one of them goes on: {:?}",
        seen.iter().zip(&recorded).next_back()
    );
    let syncs = seen.iter().filter(|call| call.starts_with("sync")).count();
    assert!(seen.iter().any(|call| call == "sync parent") && syncs > 20);
    Outcome::Held(format!(
        "{} calls that change something, {syncs} of them syncs",
        seen.len()
    ))
}

/// What a line of strace's says, if it is a change of the log's directory.
fn call(line: &str, root: &str) -> Option<String> {
    // The process comes first, then the call.
    let line = line.split_once(' ')?.1.trim_start();
    let (name, rest) = line.split_once('(')?;
    // A descriptor comes with its path; the file may be removed by now.
    let of_descriptor = || {
        rest.split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'))
            .map(|(path, _)| path)
    };
    let inside = |path: &str| path.strip_prefix(root)?.strip_prefix('/').map(str::to_owned);
    let quoted = || rest.split('"').nth(1);
    let numbers: Vec<&str> = rest.split(')').next()?.split(", ").collect();
    let file = match name {
        "openat" | "rename" | "renameat" | "renameat2" | "unlink" | "unlinkat" | "mkdir" | "mkdirat" => quoted()?,
        _ => of_descriptor()?,
    };
    if inside(file).as_deref() == Some("LOCK") {
        return None;
    }
    match name {
        "openat" if rest.contains("O_EXCL") => Some(format!("create {}", inside(file)?)),
        "pwrite64" => Some(format!(
            "write {} {}+{}",
            inside(file)?,
            numbers.last()?,
            numbers.get(numbers.len() - 2)?
        )),
        "fdatasync" => Some(format!("sync {}", inside(file)?)),
        "fsync" if file == root => Some("sync directory".to_owned()),
        "fsync" if Path::new(root).parent() == Some(Path::new(file)) => Some("sync parent".to_owned()),
        "rename" | "renameat" | "renameat2" => Some(format!("rename {}", inside(file)?)),
        "unlink" | "unlinkat" => Some(format!("remove {}", inside(file)?)),
        "ftruncate" => Some(format!("cut {} {}", inside(file)?, numbers.last()?)),
        "mkdir" | "mkdirat" if file == root => Some("make directory".to_owned()),
        _ => None,
    }
}
