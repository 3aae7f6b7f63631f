//! Crashes a history at every change of its disk, brings up what each crash may leave, and checks it; and again inside the recovery that
//! follows.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wal::storage::sim::SimStorage;

/// A life of a log or a store: steps that are the same in every run.
pub trait History: Sync + Send {
    /// What it is, in a line that can be read.
    fn describe(&self) -> String;

    /// Lives it, until the end or until the disk dies. Returns what must hold of every image.
    fn live(&self, disk: &SimStorage) -> Box<dyn Oracle>;

    /// The same with one step less, in every way: for making a failure small.
    fn shorter(&self) -> Vec<Box<dyn History>>;
}

/// What is known when the disk dies.
pub trait Oracle {
    /// Checks an image, opening it, writing to it and opening it again. Panics where it does not hold.
    fn check(&self, image: &SimStorage);

    /// Opens the image and makes the first write, which the disk may not survive. Returns what must hold then: more may have been written.
    fn recover(&self, image: &SimStorage) -> Box<dyn Oracle>;
}

/// How far to go.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// All images of a crash are tried up to so many combinations; beyond, so many samples.
    pub images: usize,
    /// Of every so many images, one is crashed again at every change of its recovery. 0: none.
    pub depth_two_every: u64,
    /// As `images`, for those.
    pub depth_two_images: usize,
    /// Chooses the samples.
    pub seed: u64,
}

/// What was tried.
#[derive(Debug, Default, Clone)]
pub struct Tried {
    /// Images checked.
    pub images: u64,
    /// Distinct disks among them.
    pub distinct: HashSet<u64>,
    /// Crashes, and those of which every legal image was tried.
    pub crashes: u64,
    pub exhaustive: u64,
    /// Images that came of a crash inside recovery.
    pub depth_two: u64,
    /// The first failure of each history.
    pub failures: Vec<Failure>,
}

/// A broken promise, and how to see it again.
#[derive(Debug, Clone)]
pub struct Failure {
    pub history: String,
    /// The change at which the disk died.
    pub at: u64,
    /// The number of the image.
    pub image: u64,
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\n  crash at change {}, image {}: {}",
            self.history, self.at, self.image, self.what
        )
    }
}

impl Tried {
    pub fn add(&mut self, other: Self) {
        self.images += other.images;
        self.distinct.extend(other.distinct);
        self.crashes += other.crashes;
        self.exhaustive += other.exhaustive;
        self.depth_two += other.depth_two;
        self.failures.extend(other.failures);
    }
}

/// Tries a history as far as the bounds go, or to its first failure.
pub fn explore(history: &dyn History, bounds: &Bounds) -> Tried {
    let mut tried = Tried::default();
    let whole = SimStorage::missing();
    // Once to its end, then to every change on the way.
    let first = live(history, &whole).map(drop).err().map(|what| (0, what));
    let ends = if first.is_some() { 0 } else { whole.mutations() };
    let lives = (0..ends)
        .map(|at| (at, None))
        .chain(first.map(|first| (whole.mutations(), Some(first))));
    for (at, failure) in lives {
        let failure = failure.or_else(|| {
            let disk = SimStorage::missing();
            disk.crash_at(at);
            match live(history, &disk) {
                Ok(oracle) => try_crash(&*oracle, &disk, at, bounds, &mut tried),
                Err(what) => Some((0, what)),
            }
        });
        if let Some((image, what)) = failure {
            tried.failures.push(Failure {
                history: history.describe(),
                at,
                image,
                what,
            });
            break;
        }
    }
    tried
}

/// Lives a history. A step that does not do what it must is a failure, too.
fn live(history: &dyn History, disk: &SimStorage) -> Result<Box<dyn Oracle>, String> {
    let mut oracle = None;
    match broken(|| oracle = Some(history.live(disk))) {
        Some(what) => Err(what),
        None => oracle.ok_or_else(|| "it has no end".to_owned()),
    }
}

/// Checks what a crash may leave. Returns the first failure.
fn try_crash(
    oracle: &dyn Oracle,
    disk: &SimStorage,
    at: u64,
    bounds: &Bounds,
    tried: &mut Tried,
) -> Option<(u64, String)> {
    let mut failure = None;
    let mut number = 0;
    tried.crashes += 1;
    let (_, all) = disk.for_each_crash_image(bounds.images, bounds.seed ^ at, |image| {
        number += 1;
        if failure.is_some() {
            return;
        }
        tried.images += 1;
        tried.distinct.insert(image.fingerprint());
        if bounds.depth_two_every > 0 && tried.images.is_multiple_of(bounds.depth_two_every) {
            failure = recover_and_crash(oracle, &image, bounds, tried).map(|what| (number, what));
        }
        if failure.is_none() {
            failure = broken(|| oracle.check(&image)).map(|what| (number, what));
        }
    });
    tried.exhaustive += u64::from(all);
    failure
}

/// Crashes the recovery of an image at each of its changes.
fn recover_and_crash(oracle: &dyn Oracle, image: &SimStorage, bounds: &Bounds, tried: &mut Tried) -> Option<String> {
    for at in 0.. {
        let disk = image.fork();
        disk.crash_at(at);
        let after = oracle.recover(&disk);
        if !disk.crashed() {
            return None;
        }
        let mut failure = None;
        disk.for_each_crash_image(bounds.depth_two_images, bounds.seed ^ at, |again| {
            if failure.is_some() {
                return;
            }
            tried.images += 1;
            tried.depth_two += 1;
            tried.distinct.insert(again.fingerprint());
            failure = broken(|| after.check(&again)).map(|what| format!("recovery crashed at change {at}: {what}"));
        });
        if failure.is_some() {
            return failure;
        }
    }
    None
}

/// What a check panics with, if it does.
fn broken(check: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(check)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(
        text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default(),
    )
}

/// Makes a failing history as short as it can be and still fail.
pub fn shrink(history: Box<dyn History>, bounds: &Bounds) -> (Box<dyn History>, Option<Failure>) {
    let mut best = history;
    let mut failure = None;
    'again: loop {
        for shorter in best.shorter() {
            if let Some(found) = explore(&*shorter, bounds).failures.into_iter().next() {
                (best, failure) = (shorter, Some(found));
                continue 'again;
            }
        }
        return (best, failure);
    }
}
