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
    /// Second faults, while the first was being recovered from.
    pub seconds: u64,
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
        self.seconds += other.seconds;
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

/// Tries every fault of a life, or goes to the first failure. Where a sync fails, also every fault of what follows to recover: for every
/// `second_every`th sync.
pub fn explore(life: &Life, images: usize, second_every: u64) -> Tried {
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
                let place = format!("{way:?} at {:?} number {nth} of disk {number} ({})", op.kind, op.file);
                if let Err(what) = try_faults(life, number, std::slice::from_ref(&fault), images) {
                    tried.failures.push(failed(place, what));
                    return tried;
                }
                let stops = matches!(way, FaultKind::SyncFails { drop_dirty: true });
                if stops && nth.is_multiple_of(second_every) {
                    let second = explore_second(life, number, &fault, op.index, images);
                    tried.seconds += second.tried;
                    if let Some((second, what)) = second.failure {
                        tried.failures.push(failed(format!("{place}, then {second}"), what));
                        return tried;
                    }
                }
            }
        }
    }
    tried
}

#[derive(Default)]
struct Second {
    tried: u64,
    failure: Option<(String, String)>,
}

/// How many operations after a fault belong to what is done about it, about.
const RECOVERY_OPS: usize = 40;

/// Lets something go wrong again, in each operation that follows `first`, which strikes operation `struck`.
fn explore_second(life: &Life, number: usize, first: &Fault, struck: u64, images: usize) -> Second {
    let mut second = Second::default();
    // What follows, and how many operations of its kind there were before.
    let lab = Lab::with(|n, disk| {
        if n == number {
            disk.inject(first.clone());
        }
        disk.start_trace();
    });
    if life.live(&lab.missing(), &lab).is_err() {
        return second;
    }
    let Some(disk) = lab.made().into_iter().nth(number) else {
        return second;
    };
    let mut count: BTreeMap<OpKind, u64> = BTreeMap::new();
    for op in &disk.trace() {
        let nth = count.entry(op.kind).or_default();
        *nth += 1;
        if op.index <= struck || op.index > struck + RECOVERY_OPS as u64 {
            continue;
        }
        for way in ways(op.kind) {
            // An operation that the first fault strikes is not seen by the second.
            let seen = if op.kind == OpKind::SyncData { *nth - 1 } else { *nth };
            let fault = Fault::new(op.kind, *way).nth(seen);
            beat();
            second.tried += 1;
            if let Err(what) = try_faults(life, number, &[first.clone(), fault], images) {
                second.failure = Some((format!("{way:?} at {:?} number {nth} ({})", op.kind, op.file), what));
                return second;
            }
        }
    }
    second
}

fn try_faults(life: &Life, number: usize, faults: &[Fault], images: usize) -> Result<(), String> {
    let lab = Lab::with(|n, disk| {
        if n == number {
            faults.iter().for_each(|fault| disk.inject(fault.clone()));
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
