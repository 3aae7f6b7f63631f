//! The promises of the contract, one by one. Each test's name begins with the promise that it holds the code to; each was seen to
//! fail with the code that keeps it taken out.

mod consumers;
mod crash;
mod faults;
mod format;
mod hostile;
mod kv;
mod kv_crash;
mod kv_views;
mod log;
mod policies;
mod readers;
mod retention;
mod rot;
mod torn;

use std::sync::Arc;
use std::time::Duration;

use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{FsyncPolicy, Options, Wal};

/// Small segments, and no marks by the clock, so that every run is the same.
fn options() -> Options {
    Options::new().segment_bytes(4096).mark_delay(Duration::from_secs(3600))
}

fn open(disk: &SimStorage) -> Wal {
    try_open(disk).unwrap()
}

fn try_open(disk: &SimStorage) -> wal::Result<Wal> {
    options().open_storage(Arc::new(disk.clone()))
}

fn open_with(disk: &SimStorage, policy: FsyncPolicy) -> Wal {
    options().policy(policy).open_storage(Arc::new(disk.clone())).unwrap()
}

fn verify(disk: &SimStorage) -> wal::inspect::Verification {
    wal::inspect::verify(&(Arc::new(disk.clone()) as Arc<dyn wal::storage::Storage>)).unwrap()
}

/// Every record from `from` on, up to what is durable.
fn read_all(log: &Wal, from: u64) -> wal::Result<Vec<Vec<u8>>> {
    let mut reader = log.reader(from)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next()? {
        records.push(record.bytes.to_vec());
    }
    Ok(records)
}

fn failing_sync() -> Fault {
    Fault::new(OpKind::SyncData, FaultKind::Error(std::io::ErrorKind::Other))
}

/// The segments' files, oldest first.
fn segments(disk: &SimStorage) -> Vec<String> {
    disk.file_names().into_iter().filter(|n| n.ends_with(".wal")).collect()
}

#[test]
fn handles_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Wal>();
    shared::<wal::ReadOnlyWal>();
    shared::<wal::Ticket>();
    shared::<wal::Error>();
    shared::<::kv::Store>();
    shared::<::kv::Snapshot>();
    shared::<::kv::Error>();
    sent::<wal::Reader>();
    sent::<wal::Tail>();
    sent::<wal::Consumer>();
    sent::<::kv::Watch>();
    sent::<::kv::Entries>();
}
