//! Lets every operation of a life fail, one at a time, in every way that it may: the life goes on as it can, and what it leaves is checked, as
//! it is and after a power cut.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};
use wal::storage::sim::{Fault, FaultKind, OpKind};

use super::beat;
use super::life::{Lab, Life, told};

/// What was tried.
#[derive(Debug, Default)]
pub struct Tried {
    pub faults: u64,
    pub by_kind: BTreeMap<String, u64>,
    pub failures: Vec<Failure>,
}

/// A broken promise, and what brought it about.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    pub life: Life,
    /// The fault, in words: kind, disk, number of the operation among those of its kind.
    pub fault: String,
    pub what: String,
}

impl Tried {
    pub fn add(&mut self, other: Self) {
        self.faults += other.faults;
        for (kind, n) in other.by_kind {
            *self.by_kind.entry(kind).or_default() += n;
        }
        self.failures.extend(other.failures);
    }
}

/// How an operation may fail.
fn ways(kind: OpKind) -> &'static [FaultKind] {
    const IO: FaultKind = FaultKind::Error(ErrorKind::Other);
    match kind {
        OpKind::Read => &[IO, FaultKind::Short(1), FaultKind::Interrupted],
        OpKind::Write => &[IO, FaultKind::NoSpace, FaultKind::Short(7), FaultKind::Interrupted],
        OpKind::SyncData => &[
            FaultKind::SyncFails { drop_dirty: false },
            FaultKind::SyncFails { drop_dirty: true },
            FaultKind::SyncFindsNoSpace,
        ],
        OpKind::CreateRoot => &[IO, FaultKind::SyncFails { drop_dirty: false }],
        OpKind::Create | OpKind::SetLen => &[IO, FaultKind::NoSpace],
        _ => &[IO],
    }
}

/// Tries every fault of a life, or goes to the first failure.
pub fn explore(life: &Life, images: usize) -> Tried {
    let mut tried = Tried::default();
    let lab = Lab::with(|_, disk| disk.start_trace());
    let whole = lab.missing();
    let failed = |fault: String, what: String| Failure {
        life: life.clone(),
        fault,
        what,
    };
    if let Err(what) = life.live(&whole, &lab) {
        tried.failures.push(failed("none".to_owned(), what));
        return tried;
    }
    for (number, disk) in lab.made().into_iter().enumerate() {
        let mut count: BTreeMap<OpKind, u64> = BTreeMap::new();
        for op in disk.trace() {
            let nth = count.entry(op.kind).or_default();
            *nth += 1;
            for way in ways(op.kind) {
                let fault = Fault::new(op.kind, *way).nth(*nth);
                beat();
                tried.faults += 1;
                *tried.by_kind.entry(format!("{:?}: {way:?}", op.kind)).or_default() += 1;
                if let Err(what) = try_fault(life, number, &fault, images) {
                    let fault = format!("{way:?} at {:?} number {nth} of disk {number} ({})", op.kind, op.file);
                    tried.failures.push(failed(fault, what));
                    return tried;
                }
            }
        }
    }
    tried
}

fn try_fault(life: &Life, number: usize, fault: &Fault, images: usize) -> Result<(), String> {
    let lab = Lab::with(|n, disk| {
        if n == number {
            disk.inject(fault.clone());
        }
    });
    let disk = lab.missing();
    let oracle = life.live(&disk, &lab)?;
    disk.clear_faults();
    // As a process that ends leaves it; and as a power cut may.
    let left = disk.fork();
    left.process_kill();
    told(|| oracle.check(&left)).map_err(|what| format!("without a crash: {what}"))?;
    let mut result = Ok(());
    disk.for_each_crash_image(images, 1, |image| {
        if result.is_ok() {
            result = told(|| oracle.check(&image)).map_err(|what| format!("after a power cut: {what}"));
        }
    });
    result
}
