//! H: locks, processes, panics.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use wal::Error;
use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};

use super::*;

/// This program again, in a part of its own.
pub fn child(part: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(["--exact", "h_processes::part", "--nocapture", "--test-threads=1"]);
    command.env("CASES_PART", part).env("CASES_DIR", dir);
    command
}

/// What the program does when it was started by [`child`]; without that, nothing.
#[test]
fn part() {
    let Some(part) = std::env::var_os("CASES_PART") else {
        return;
    };
    let dir = std::env::var_os("CASES_DIR").expect("comes with the part");
    match part.to_str() {
        Some("hold") => {
            let log = options().open(&dir).unwrap();
            log.append("held").unwrap();
            println!("ready");
            loop {
                std::thread::park();
            }
        }
        #[cfg(unix)]
        Some("fork") => fork(Path::new(&dir)),
        Some("replay") => super::f_checkpoints::replay(Path::new(&dir)),
        other => panic!("there is no part {other:?}"),
    }
}

struct Holder(Child);

impl Holder {
    fn start(dir: &Path) -> Self {
        let mut child = child("hold", dir).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")));
        Self(child)
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn h02_a_dead_holder_blocks_nobody_and_a_sleeping_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let holder = Holder::start(&path);
    let error = options().open(&path).unwrap_err();
    let pid = holder.0.id().to_string();
    assert!(
        matches!(&error, Error::Locked { owner, .. } if owner.contains(&pid)),
        "{error}"
    );
    holder.signal("-STOP");
    assert!(matches!(options().open(&path), Err(Error::Locked { .. })));
    drop(holder);
    let log = options().open(&path).unwrap();
    assert_eq!(log.read(0).unwrap(), b"held");
    log.close().unwrap();
    // A file says whatever it likes.
    for words in ["1".to_owned(), std::process::id().to_string(), "process 1".to_owned()] {
        std::fs::write(path.join("LOCK"), words).unwrap();
        options().open(&path).unwrap().close().unwrap();
    }
}

#[test]
fn h03_nobody_waits_for_a_lock() {
    let begun = Instant::now();
    for kind in [
        ErrorKind::Unsupported,
        ErrorKind::Interrupted,
        ErrorKind::Other,
        ErrorKind::StaleNetworkFileHandle,
    ] {
        let disk = SimStorage::new();
        disk.inject(Fault::new(OpKind::Lock, FaultKind::Error(kind)).forever());
        let error = try_open(&disk).unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. } if source.kind() == kind),
            "{error}"
        );
        assert!(disk.file_names().is_empty());
        disk.clear_faults();
        let _first = open(&disk);
        assert!(matches!(try_open(&disk), Err(Error::Locked { .. })));
    }
    // Not a measurement: a wait for ever would be longer.
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn h04_a_child_process_inherits_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = options().open(&path).unwrap();
    log.append("a").unwrap();
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let held = std::fs::read_dir(format!("/proc/{}/fd", sleeper.id())).map(|entries| {
        let targets = entries.flatten().filter_map(|e| std::fs::read_link(e.path()).ok());
        targets.filter(|target| target.starts_with(&path)).count()
    });
    log.close().unwrap();
    drop(log);
    let again = options().open(&path).map(|log| log.end());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(held.unwrap_or(0), 0, "descriptors were handed on");
    assert_eq!(again.unwrap(), 1);
}

/// Forks with a file and the lock held: the child may change nothing, and takes nothing with it when it ends. Not with a whole log: its own
/// thread may hold a lock of its at that moment, which nobody in the child would ever let go.
#[cfg(unix)]
fn fork(dir: &Path) {
    use wal::storage::{Access, FsStorage};
    let storage = FsStorage::new(dir);
    storage.create_root().unwrap();
    let lock = storage.try_lock("LOCK", "the parent").unwrap();
    let file = storage.open("file", Access::Create).unwrap();
    file.write_at(0, b"before").unwrap();
    // SAFETY: the child makes a few system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = file.write_at(0, b"child!").is_err()
            && file.set_len(0).is_err()
            && file.sync_data().is_err()
            && storage.open("new", Access::Create).is_err()
            && storage.rename("file", "new").is_err()
            && storage.remove("file").is_err();
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was not refused");
    assert!(
        storage.try_lock("LOCK", "another").is_err(),
        "the child took the lock with it"
    );
    drop(lock);
    assert_eq!(file.write_at(0, b"after!").unwrap(), 6);
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"after!");
}

#[test]
#[cfg(unix)]
fn h04_a_forked_child_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = child("fork", &dir.path().join("log")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn h06_errors_that_network_file_systems_have() {
    // No lock, a handle that went stale at a sync, a quota that is told late.
    for (op, kind) in [
        (OpKind::SyncData, ErrorKind::StaleNetworkFileHandle),
        (OpKind::SyncData, ErrorKind::QuotaExceeded),
        (OpKind::Write, ErrorKind::StaleNetworkFileHandle),
        (OpKind::SyncDir, ErrorKind::StaleNetworkFileHandle),
    ] {
        let disk = SimStorage::new();
        let log = filled(&disk, &marks(0..3, 1300));
        disk.inject(Fault::new(op, FaultKind::Error(kind)));
        let failed = (3..9).map(|n| log.append(mark(n, 1300))).find_map(Result::err);
        assert!(
            matches!(failed, Some(Error::Poisoned { .. })),
            "{op:?} {kind:?}: {failed:?}"
        );
        let durable = log.durable_end();
        assert!(durable >= 3);
        kill(&disk, log);
        let end = open(&disk).end();
        assert!(end >= durable);
        goes_on(&disk, marks(0..end, 1300));
    }
}

#[test]
fn h07_reading_needs_no_permission_to_write() {
    let disk = SimStorage::new();
    let log = filled(&disk, &marks(0..9, 500));
    log.append_with(mark(9, 3000), wal::Durability::Written).unwrap();
    kill(&disk, log);
    let (file, at) = find(&disk, &mark(9, 3000));
    zero(&disk, &file, at.start + 500..at.end);
    // Left-overs, and a next segment that is empty.
    disk.write_file("log.meta.tmp", b"half");
    disk.write_file("00000000000000000009-0000000000000004.wal", b"");
    disk.set_read_only(true);
    let before = disk.fingerprint();
    let log = options().open_read_only_storage(shared(&disk)).unwrap();
    assert!(try_read(log.reader_of(0, Visible::Written).unwrap()).unwrap() == marks(0..9, 500));
    assert!(verify(&disk).is_clean());
    let error = try_open(&disk).unwrap_err();
    assert!(
        matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied),
        "{error}"
    );
    assert_eq!(disk.fingerprint(), before);
}

#[test]
fn h09_a_thread_that_dies_is_noticed() {
    // The log's own thread, at each thing that it does; and one that appends.
    let deadline = Instant::now() + Duration::from_secs(60);
    for op in [OpKind::Write, OpKind::SyncData] {
        let disk = SimStorage::new();
        let log = options()
            .policy(FsyncPolicy::Interval(Duration::from_millis(1)))
            .open_storage(shared(&disk))
            .unwrap();
        log.sync().unwrap();
        log.append("first").unwrap();
        disk.inject(Fault::new(op, FaultKind::Panic).on_file(".wal"));
        while log.failure().is_none() {
            // Where the thread that appends meets it, that is told as well.
            let append = || log.append_with("a", wal::Durability::Buffered);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(append));
            assert!(Instant::now() < deadline, "{op:?}: nobody is told");
        }
        assert!(matches!(log.append("b"), Err(Error::Poisoned { .. })));
        assert!(log.close().is_err());
    }
    // The thread that makes checkpoints.
    let disk = SimStorage::new();
    let store = kv::Options::new()
        .log(options())
        .checkpoint_bytes(2000)
        .open_storage(shared(&disk))
        .unwrap();
    disk.inject(Fault::new(OpKind::Create, FaultKind::Panic).on_file("checkpoint"));
    let mut n = 0u64;
    while disk.faults_hit() == 0 || store.checkpoint_failure().is_none() {
        if store.put(n.to_le_bytes(), mark(n, 500)).is_err() {
            break;
        }
        n += 1;
        assert!(Instant::now() < deadline, "nobody is told");
    }
    assert_eq!(disk.faults_hit(), 1);
    disk.process_kill();
    drop(store);
    assert!(open_store(&disk).len() as u64 >= n);
}
