//! The campaign: lives of a log and of a store, on a disk that crashes at every change, whose every operation fails once, or that leaves out a
//! sync.
//!
//! ```sh
//! cargo test --test campaign                                  # everything, to small bounds
//! cargo test --release --test campaign -- --images 1000000    # until so many distinct crash images were tried
//! cargo test --test campaign -- --only syncs                  # or crashes, faults
//! cargo test --test campaign -- --replay 'JSON'               # what a violation printed
//! ```
//!
//! A violation is made as small as it can be, and printed with what brings it back.

mod crashes;
mod faults;
mod life;
mod lives;
mod log_life;
mod store_life;
mod syncs;
mod threads_life;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crashes::Bounds;
use life::{Lab, Life};
use parking_lot::Mutex;

struct Args {
    /// Distinct images to try at least.
    images: u64,
    /// Second faults behind every so many'th failed sync.
    second_every: u64,
    only: Option<String>,
    replay: Option<crashes::Failure>,
    bounds: Bounds,
}

fn parse() -> Result<Args, String> {
    let mut args = Args {
        images: 0,
        second_every: 4,
        only: None,
        replay: None,
        bounds: Bounds {
            images: 64,
            depth_two_every: 97,
            depth_two_images: 8,
            seed: 1,
        },
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|e| format!("{word}: {e}"));
        match word.as_str() {
            "--images" => {
                args.images = number(value()?)?;
                // Deeper, where it is asked for in earnest.
                args.second_every = 1;
                args.bounds.images = 1024;
                args.bounds.depth_two_every = 61;
                args.bounds.depth_two_images = 32;
            }
            "--seed" => args.bounds.seed = number(value()?)?,
            "--only" => {
                let part = value()?;
                if !["crashes", "faults", "syncs"].contains(&part.as_str()) {
                    return Err(format!("there are no {part}"));
                }
                args.only = Some(part);
            }
            "--replay" => args.replay = Some(serde_json::from_str(&value()?).map_err(|e| e.to_string())?),
            // What a test runner hands to every test.
            "--nocapture" | "--quiet" | "-q" | "--test-threads=1" => {}
            other if !other.starts_with('-') => {}
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(args)
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(args) => args,
        Err(e) => {
            eprintln!("{e}\nusage: campaign [--images N] [--seed N] [--only crashes|faults|syncs] [--replay JSON]");
            return ExitCode::FAILURE;
        }
    };
    // Checks panic; what they say is kept, and told once.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::spawn(watch_for_a_hang);
    if let Some(failure) = &args.replay {
        return replay(failure);
    }
    let wanted = |part: &str| args.only.as_ref().is_none_or(|only| only == part);
    let mut kept = true;
    if wanted("syncs") {
        kept &= leave_out_syncs(&args);
    }
    if wanted("faults") {
        kept &= fail(&args);
    }
    if wanted("crashes") {
        kept &= crash(&args);
    }
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(failure: &crashes::Failure) -> ExitCode {
    let mut tried = crashes::Tried::default();
    match crashes::crash(&failure.life, &Lab::plain(), failure.at, &failure.bounds, &mut tried) {
        Ok(()) => println!(
            "{} images of the crash at change {}: all hold",
            tried.images, failure.at
        ),
        Err(what) => {
            println!("{what}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn crash(args: &Args) -> bool {
    let started = Instant::now();
    let explore = |life: &Life| crashes::explore(life, &Lab::plain(), &args.bounds);
    let mut tried = crashes::Tried::default();
    let mut next = args.bounds.seed;
    let mut lives = lives::named();
    loop {
        in_parallel(&lives, explore)
            .into_iter()
            .for_each(|part| tried.add(part));
        if !tried.failures.is_empty() || tried.distinct.len() as u64 >= args.images {
            break;
        }
        println!(
            "{:>10} distinct images, {:.0?}",
            tried.distinct.len(),
            started.elapsed()
        );
        lives = (next..next + 16).map(lives::random).collect();
        next += 16;
    }
    println!(
        "crashes: {} images checked, {} of them distinct, {} from crashes inside recovery; {} crashes, {} of them with every legal image; {} violations; {:.0?}",
        tried.images,
        tried.distinct.len(),
        tried.depth_two,
        tried.crashes,
        tried.exhaustive,
        tried.failures.len(),
        started.elapsed()
    );
    for failure in &tried.failures {
        let small = crashes::shrink(failure.clone());
        println!(
            "\nVIOLATION: {}\n  {:?}\n  crash at change {}\n  --replay '{}'",
            small.what,
            small.life,
            small.at,
            serde_json::to_string(&small).unwrap_or_else(|e| e.to_string())
        );
    }
    tried.failures.is_empty()
}

fn fail(args: &Args) -> bool {
    let started = Instant::now();
    let mut lives = lives::named();
    if args.images > 0 {
        lives.extend((args.bounds.seed..args.bounds.seed + 100).map(lives::random));
    }
    let mut tried = faults::Tried::default();
    in_parallel(&lives, |life| faults::explore(life, 3, args.second_every))
        .into_iter()
        .for_each(|part| tried.add(part));
    println!(
        "faults: {} in {} lives, and {} more while those were recovered from, each checked as it is left and after power cuts; {} violations; {:.0?}",
        tried.faults,
        lives.len(),
        tried.seconds,
        tried.failures.len(),
        started.elapsed()
    );
    for (kind, n) in &tried.by_kind {
        println!("  {n:>6} {kind}");
    }
    for failure in &tried.failures {
        println!(
            "\nVIOLATION: {}\n  {:?}\n  {}",
            failure.what, failure.life, failure.fault
        );
    }
    tried.failures.is_empty()
}

fn leave_out_syncs(args: &Args) -> bool {
    let started = Instant::now();
    let bounds = Bounds {
        images: 64,
        depth_two_every: 23,
        depth_two_images: 16,
        seed: args.bounds.seed,
    };
    let lives = lives::named();
    let found = syncs::find(&lives);
    let outcomes = in_parallel(&found, |(sync, lives)| syncs::leave_out(sync, lives, &bounds));
    let mut kept = true;
    for ((sync, _), outcome) in found.iter().zip(outcomes) {
        match outcome {
            Some(what) => println!("  {sync}: noticed: {}", what.split(". ").next().unwrap_or_default()),
            None => {
                kept = false;
                println!("VIOLATION: nothing notices that {sync} is left out");
            }
        }
    }
    println!(
        "syncs: {} left out, one at a time; {:.0?}",
        found.len(),
        started.elapsed()
    );
    kept
}

/// Does the work on all cores. Results are in the order of the tasks.
fn in_parallel<T: Sync, R: Send>(tasks: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let results: Vec<_> = tasks.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Ok(n) = usize::try_from(next.fetch_add(1, Ordering::SeqCst))
                    && let Some(task) = tasks.get(n)
                {
                    *results[n].lock() = Some(work(task));
                }
            });
        }
    });
    let done = results.into_iter().filter_map(Mutex::into_inner);
    done.collect()
}

static BEATS: AtomicU64 = AtomicU64::new(0);

/// Says that something was done: for [`watch_for_a_hang`].
fn beat() {
    BEATS.fetch_add(1, Ordering::Relaxed);
}

/// A life that never ends is a broken promise as well.
fn watch_for_a_hang() {
    let mut seen = u64::MAX;
    loop {
        let now = BEATS.load(Ordering::Relaxed);
        if now == seen {
            eprintln!("VIOLATION: a life hangs");
            std::process::exit(1);
        }
        seen = now;
        std::thread::sleep(Duration::from_secs(120));
    }
}
