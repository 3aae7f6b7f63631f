//! The crash campaign: lives of a log and of a store, crashed at every change of the disk, every legal image or many, and crashed again while
//! they recover.
//!
//! `cargo test --release --test campaign -- --images 1000000` goes on with random lives until so many distinct images were tried. Without
//! arguments it tries the lives in `histories.rs` to small bounds. A failure is made as small as it can be, and printed with what brings
//! it back.

mod engine;
mod histories;
mod log_history;
mod store_history;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use engine::{Bounds, History, Tried, explore, shrink};

struct Args {
    /// Distinct images to try at least.
    images: u64,
    seed: u64,
    bounds: Bounds,
}

fn parse() -> Result<Args, String> {
    let mut args = Args {
        images: 0,
        seed: 1,
        bounds: Bounds {
            images: 64,
            depth_two_every: 97,
            depth_two_images: 8,
            seed: 1,
        },
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            words
                .next()
                .and_then(|n| n.parse().ok())
                .ok_or(format!("{word} wants a number"))
        };
        match word.as_str() {
            "--images" => {
                args.images = number()?;
                // Deeper, where it is asked for in earnest.
                args.bounds.images = 1024;
                args.bounds.depth_two_every = 61;
                args.bounds.depth_two_images = 32;
            }
            "--seed" => args.seed = number()?,
            "--per-crash" => args.bounds.images = number()? as usize,
            // What a test runner hands to every test.
            "--nocapture" | "--quiet" | "-q" | "--test-threads=1" => {}
            other if !other.starts_with('-') => {}
            other => return Err(format!("unknown argument {other}")),
        }
    }
    args.bounds.seed = args.seed;
    Ok(args)
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(args) => args,
        Err(e) => {
            eprintln!("{e}\nusage: campaign [--images N] [--seed N] [--per-crash N]");
            return ExitCode::FAILURE;
        }
    };
    // Checks panic; what they say is kept, and told once.
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let mut tried = in_parallel(histories::named(), &args.bounds);
    let mut next = args.seed;
    while tried.failures.is_empty() && (tried.distinct.len() as u64) < args.images {
        tried.add(in_parallel(
            (next..next + 16).map(histories::random).collect(),
            &args.bounds,
        ));
        next += 16;
        println!("{:>10} distinct images, {:?}", tried.distinct.len(), started.elapsed());
    }
    println!(
        "{} images checked, {} of them distinct, {} from crashes inside recovery; {} crashes, {} of them with every legal image; {} violations; {:.0?}",
        tried.images,
        tried.distinct.len(),
        tried.depth_two,
        tried.crashes,
        tried.exhaustive,
        tried.failures.len(),
        started.elapsed()
    );
    for failure in &tried.failures {
        println!("\nVIOLATION {failure}");
    }
    if tried.failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

/// Tries histories on all cores. A failing one is made small first.
fn in_parallel(histories: Vec<Box<dyn History>>, bounds: &Bounds) -> Tried {
    let todo: Vec<_> = histories.into_iter().map(|h| std::sync::Mutex::new(Some(h))).collect();
    let next = AtomicU64::new(0);
    let work = || {
        let mut tried = Tried::default();
        while let Some(slot) = todo.get(usize::try_from(next.fetch_add(1, Ordering::SeqCst)).unwrap_or(usize::MAX)) {
            let Some(history) = slot.lock().ok().and_then(|mut h| h.take()) else {
                continue;
            };
            let mut found = explore(&*history, bounds);
            if let Some(first) = found.failures.pop() {
                let (_, small) = shrink(history, bounds);
                found.failures.push(small.unwrap_or(first));
            }
            tried.add(found);
        }
        tried
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut tried = Tried::default();
        for worker in workers {
            match worker.join() {
                Ok(part) => tried.add(part),
                Err(e) => std::panic::resume_unwind(e),
            }
        }
        tried
    })
}
