//! Failures that other logs and stores have had in public, each as a scenario of our own that knows nothing of their formats. A test's name
//! begins with the case's identifier; `wal/docs/testing.md` lists them. The disk is looked at as an operator would: records are
//! found by what is in them, not by where the format puts them.

mod a_torn_tail;
mod b_damage;
mod c_directory;
mod d_syncs;
mod e_resources;
mod f_checkpoints;
mod g_consumers;
mod h_processes;
mod i_concurrency;
mod j_limits;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wal::storage::Storage;
use wal::storage::sim::SimStorage;
use wal::{Damage, FsyncPolicy, Options, Visible, Wal};

/// Small segments, and no marks by the clock, so that every run is the same.
fn options() -> Options {
    Options::new().segment_bytes(4096).mark_delay(Duration::from_secs(3600))
}

/// Never synced but when asked.
fn manual() -> Options {
    options().policy(FsyncPolicy::Os)
}

fn shared(disk: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(disk.clone())
}

fn open(disk: &SimStorage) -> Wal {
    try_open(disk).unwrap_or_else(|e| panic!("{e}"))
}

fn try_open(disk: &SimStorage) -> wal::Result<Wal> {
    options().open_storage(shared(disk))
}

fn open_store(disk: &SimStorage) -> kv::Store {
    try_open_store(disk).unwrap_or_else(|e| panic!("{e}"))
}

fn try_open_store(disk: &SimStorage) -> kv::Result<kv::Store> {
    kv::Options::new().log(options()).open_storage(shared(disk))
}

/// Kills the process that has the log open. What it wrote is there, synced or not; dropping the handle afterwards closes nothing.
fn kill<T>(disk: &SimStorage, open: T) {
    disk.process_kill();
    drop(open);
}

fn try_open_manual(disk: &SimStorage) -> wal::Result<Wal> {
    manual().open_storage(shared(disk))
}

fn verify(disk: &SimStorage) -> wal::inspect::Verification {
    wal::inspect::verify(&shared(disk)).unwrap_or_else(|e| panic!("{e}"))
}

/// What everybody says of a disk: whoever opens it for writing and reads it all, whoever opens it read-only, and the verifier. They must
/// agree, and a refused open must leave every byte as it was.
fn judged(disk: &SimStorage) -> wal::Result<Vec<Vec<u8>>> {
    let (by_writer, by_reader) = (disk.fork(), disk.fork());
    let log = try_open(&by_writer);
    if log.is_err() {
        assert_eq!(
            fingerprint(&by_writer),
            fingerprint(disk),
            "a refused open changed the disk"
        );
    }
    let records = log.and_then(|log| {
        let records = try_read(log.reader(log.start())?);
        kill(&by_writer, log);
        records
    });
    let read = options().open_read_only_storage(shared(&by_reader)).and_then(|log| {
        assert_eq!(fingerprint(&by_reader), fingerprint(disk), "a reader changed the disk");
        try_read(log.reader_of(log.start(), Visible::Written)?)
    });
    assert_eq!(by_reader.fingerprint(), disk.fingerprint(), "a reader changed the disk");
    let sound = wal::inspect::verify(&shared(disk)).is_ok_and(|found| {
        let positions = |f: &wal::inspect::Finding| matches!(f.corruption.damage, Damage::Position(_));
        found.damage.iter().all(positions)
    });
    assert_eq!(
        sound,
        records.is_ok(),
        "verify and open disagree: {:?}",
        records.as_ref().err()
    );
    match (&records, &read) {
        (Ok(written), Ok(read)) => assert_eq!(written, read, "readers and the writer disagree"),
        (Err(_), Err(_)) => {}
        _ => panic!("one opens: {:?}, the other not: {:?}", records.err(), read.err()),
    }
    records
}

/// A record that a test finds again on the disk, whatever the format around it: `len` bytes that begin with its number and hold no other mark.
fn mark(n: u64, len: usize) -> Vec<u8> {
    let mut record = format!("<<record {n}>>").into_bytes();
    record.resize(len.max(record.len()), b'.');
    record
}

/// Where a record lies: file and bytes.
fn find(disk: &SimStorage, record: &[u8]) -> (String, Range<usize>) {
    for name in disk.file_names() {
        let content = disk.read_file(&name).unwrap_or_default();
        if let Some(at) = content.windows(record.len()).position(|w| w == record) {
            return (name, at..at + record.len());
        }
    }
    panic!("{:?} is nowhere", String::from_utf8_lossy(record))
}

/// Every durable record from the start on.
fn read_all(log: &Wal) -> Vec<Vec<u8>> {
    try_read(log.reader(log.start()).unwrap_or_else(|e| panic!("{e}"))).unwrap_or_else(|e| panic!("{e}"))
}

fn try_read(mut reader: wal::Reader) -> wal::Result<Vec<Vec<u8>>> {
    let mut records = Vec::new();
    while let Some(record) = reader.next()? {
        records.push(record.bytes.to_vec());
    }
    Ok(records)
}

/// A log of `records`, each appended on its own, all of them durable.
fn filled(disk: &SimStorage, records: &[Vec<u8>]) -> Wal {
    let log = open(disk);
    for record in records {
        log.append(record).unwrap_or_else(|e| panic!("{e}"));
    }
    log
}

fn marks(range: Range<u64>, len: usize) -> Vec<Vec<u8>> {
    range.map(|n| mark(n, len)).collect()
}

/// Puts other bytes in place of a file's.
fn overwrite(disk: &SimStorage, file: &str, range: Range<usize>, bytes: &[u8]) {
    let mut content = disk.read_file(file).unwrap_or_default();
    content[range].copy_from_slice(bytes);
    disk.write_file(file, &content);
}

fn zero(disk: &SimStorage, file: &str, range: Range<usize>) {
    overwrite(disk, file, range.clone(), &vec![0; range.len()]);
}

/// Appends, crashes, and reads again: what follows a recovery must be found by the next.
fn goes_on(disk: &SimStorage, mut expected: Vec<Vec<u8>>) {
    let log = open(disk);
    assert_eq!(log.end() - log.start(), expected.len() as u64);
    expected.push(b"appended after the recovery".to_vec());
    log.append(expected.last().expect("just pushed"))
        .unwrap_or_else(|e| panic!("{e}"));
    disk.power_cut(expected.len() as u64);
    drop(log);
    assert!(judged(disk).unwrap_or_else(|e| panic!("{e}")) == expected);
}

/// The segments' files, oldest first.
fn segments(disk: &SimStorage) -> Vec<String> {
    disk.file_names().into_iter().filter(|n| n.ends_with(".wal")).collect()
}

/// Everything on the disk but the lock's file, which only says who held it.
fn fingerprint(disk: &SimStorage) -> u64 {
    let disk = disk.fork();
    disk.remove_file("LOCK");
    disk.fingerprint()
}
