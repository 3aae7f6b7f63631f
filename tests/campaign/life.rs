//! Lives, and what is known of a disk when one ends.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wal::storage::sim::SimStorage;

use super::{log_life, store_life, threads_life};

/// A life of a log or a store, to be lived on a simulated disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Life {
    Log(Vec<log_life::Step>),
    Store(Vec<store_life::Step>),
    /// So many appends by each of several threads, of the sizes and levels that the number chooses.
    Threads(threads_life::Plan),
}

/// What is known when a life ends, and so what must hold of the disk that it leaves.
pub trait Oracle {
    /// Checks a disk, opening it, writing to it and opening it again. Panics where it does not hold.
    fn check(&self, disk: &SimStorage);

    /// Opens the disk and makes the first write, which the disk may not survive. Returns what must hold then: more may have been written.
    fn recover(&self, disk: &SimStorage) -> Box<dyn Oracle>;
}

impl Life {
    /// Lives it, until the end or until the disk dies. After an injected fault it goes on as a program would that knows what it may do then. A
    /// step that does not do what it must is an error, in words.
    pub fn live(&self, disk: &SimStorage, lab: &Lab) -> Result<Box<dyn Oracle>, String> {
        told(|| -> Box<dyn Oracle> {
            match self {
                Self::Log(steps) => Box::new(log_life::live(steps, disk, lab)),
                Self::Store(steps) => Box::new(store_life::live(steps, disk, lab)),
                Self::Threads(plan) => Box::new(threads_life::live(plan, disk)),
            }
        })
    }

    /// The same with one step less, in every way: for making a failure small.
    pub fn shorter(&self) -> Vec<Self> {
        fn without<S: Copy>(steps: &[S], of: fn(Vec<S>) -> Life) -> Vec<Life> {
            let without = |n: usize| {
                let mut steps = steps.to_vec();
                steps.remove(n);
                of(steps)
            };
            (0..steps.len()).rev().map(without).collect()
        }
        match self {
            Self::Log(steps) => without(steps, Self::Log),
            Self::Store(steps) => without(steps, Self::Store),
            Self::Threads(plan) => plan.shorter().into_iter().map(Self::Threads).collect(),
        }
    }
}

/// Does what may fail because something goes wrong a second time. It must not go on failing when nothing more does.
pub fn try_again<T, E: std::fmt::Display>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let mut failed = Ok(());
    for _ in 0..3 {
        match attempt() {
            Ok(done) => return done,
            Err(e) => failed = Err(e),
        }
    }
    panic!(
        "{what} again and again: {}",
        failed.err().map(|e| e.to_string()).unwrap_or_default()
    )
}

/// Runs a check. `Err` holds what it panicked with.
pub fn told<T>(check: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(check)).map_err(|panic| words(&*panic))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_default()
}

type Prepare<'a> = Box<dyn Fn(usize, &SimStorage) + Sync + 'a>;

/// Provides the disks of a life, so that something can be arranged on each.
pub struct Lab<'a> {
    prepare: Prepare<'a>,
    made: Mutex<Vec<SimStorage>>,
}

impl<'a> Lab<'a> {
    /// Disks on which nothing goes wrong but what a life does.
    pub fn plain() -> Self {
        Self::with(|_, _| {})
    }

    /// Calls `prepare` with each disk and its number.
    pub fn with(prepare: impl Fn(usize, &SimStorage) + Sync + 'a) -> Self {
        Self {
            prepare: Box::new(prepare),
            made: Mutex::default(),
        }
    }

    /// A disk without the directory.
    pub fn missing(&self) -> SimStorage {
        let disk = SimStorage::missing();
        let mut made = self.made.lock();
        (self.prepare)(made.len(), &disk);
        made.push(disk.clone());
        disk
    }

    /// Arranges on the disk that is left what was arranged on the first.
    pub fn adopt(&self, disk: &SimStorage) {
        (self.prepare)(0, disk);
    }

    /// All that were made, the first first.
    pub fn made(&self) -> Vec<SimStorage> {
        self.made.lock().clone()
    }
}
