//! Crashes a life at every change of its disk, brings up what each crash may leave, and checks it; and again inside the recovery that
//! follows.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use wal::storage::sim::SimStorage;

use super::beat;
use super::life::{Lab, Life, Oracle, told};

/// How far to go.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
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
#[derive(Debug, Default)]
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
    /// The first failure of each life.
    pub failures: Vec<Failure>,
}

/// A broken promise, and all that is needed to see it again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    pub life: Life,
    /// The change at which the disk died.
    pub at: u64,
    pub bounds: Bounds,
    pub what: String,
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

/// Tries a life as far as the bounds go, or to its first failure.
pub fn explore(life: &Life, lab: &Lab<'_>, bounds: &Bounds) -> Tried {
    let mut tried = Tried::default();
    let whole = lab.missing();
    let failed = |at: u64, what: String| Failure {
        life: life.clone(),
        at,
        bounds: *bounds,
        what,
    };
    // Once to its end, to count its changes; then to every change, the end among them.
    if let Err(what) = life.live(&whole, lab) {
        tried.failures.push(failed(whole.mutations(), what));
        return tried;
    }
    for at in 0..=whole.mutations() {
        if let Err(what) = crash(life, lab, at, bounds, &mut tried) {
            tried.failures.push(failed(at, what));
            break;
        }
    }
    tried
}

/// Tries the crash at one change.
pub fn crash(life: &Life, lab: &Lab<'_>, at: u64, bounds: &Bounds, tried: &mut Tried) -> Result<(), String> {
    let disk = lab.missing();
    disk.crash_at(at);
    let oracle = life.live(&disk, lab)?;
    tried.crashes += 1;
    let mut result = Ok(());
    let mut number = 0;
    let (_, all) = disk.for_each_crash_image(bounds.images, bounds.seed ^ at, |image| {
        number += 1;
        if result.is_err() {
            return;
        }
        beat();
        lab.adopt(&image);
        tried.images += 1;
        tried.distinct.insert(image.fingerprint());
        if bounds.depth_two_every > 0 && tried.images.is_multiple_of(bounds.depth_two_every) {
            result = recover_and_crash(&*oracle, &image, lab, bounds, tried);
        }
        if result.is_ok() {
            result = told(|| oracle.check(&image));
        }
        if let Err(what) = &mut result {
            *what = format!("image {number}: {what}");
        }
    });
    tried.exhaustive += u64::from(all);
    result
}

/// Crashes the recovery of an image at each of its changes, and after the last.
fn recover_and_crash(
    oracle: &dyn Oracle,
    image: &SimStorage,
    lab: &Lab<'_>,
    bounds: &Bounds,
    tried: &mut Tried,
) -> Result<(), String> {
    for at in 0.. {
        let disk = image.fork();
        lab.adopt(&disk);
        disk.crash_at(at);
        let after = told(|| oracle.recover(&disk))?;
        let mut result = Ok(());
        disk.for_each_crash_image(bounds.depth_two_images, bounds.seed ^ at, |again| {
            if result.is_ok() {
                beat();
                tried.images += 1;
                tried.depth_two += 1;
                tried.distinct.insert(again.fingerprint());
                result =
                    told(|| after.check(&again)).map_err(|what| format!("recovery crashed at change {at}: {what}"));
            }
        });
        if result.is_err() || !disk.crashed() {
            return result;
        }
    }
    Ok(())
}

/// Makes a failing life as short as it can be and still fail.
pub fn shrink(mut failure: Failure) -> Failure {
    'again: loop {
        for shorter in failure.life.shorter() {
            if let Some(found) = explore(&shorter, &Lab::plain(), &failure.bounds).failures.pop() {
                failure = found;
                continue 'again;
            }
        }
        return failure;
    }
}
