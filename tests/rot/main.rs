//! Damage to a disk that was left in order, or by a kill: every bit flipped, every sector blanked or taken from elsewhere, every file cut,
//! removed, renamed, copied, or put back from an earlier day. What opening, reading and verifying then say is classified; that acknowledged
//! data is missing, or other than it was, without a word is a violation.
//!
//! ```sh
//! cargo test --test rot                          # one bit of every fourth byte
//! cargo test --release --test rot -- --full      # every bit
//! ```

mod damage;
mod outcome;
mod scenes;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use damage::{Damage, Kind};
use outcome::{Class, judge};
use parking_lot::Mutex;
use scenes::Scene;

/// How often each kind of damage to each kind of file ended in each class.
type Table = BTreeMap<(&'static str, String, Kind), BTreeMap<Class, u64>>;

fn main() -> ExitCode {
    let full = std::env::args().any(|word| word == "--full");
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let scenes = scenes::all();
    let mut tasks: Vec<(&Scene, Damage)> = Vec::new();
    for scene in &scenes {
        tasks.extend(damage::all(scene, full).into_iter().map(|damage| (scene, damage)));
    }
    let table = Mutex::new(Table::new());
    let violations = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((scene, damage)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let hurt = scene.disk.fork();
            damage.apply(&hurt, scene);
            match judge(scene, damage, &hurt) {
                Ok(class) => {
                    let row = (scene.name, damage.file_class(), damage.kind());
                    *table.lock().entry(row).or_default().entry(class).or_default() += 1;
                }
                Err(what) => violations.lock().push(format!("{}: {damage:?}: {what}", scene.name)),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    print(&table.into_inner());
    let violations = violations.into_inner();
    for violation in violations.iter().take(40) {
        println!("VIOLATION: {violation}");
    }
    println!(
        "rot: {} pieces of damage in {} scenes; {} violations; {:.0?}",
        tasks.len(),
        scenes.len(),
        violations.len(),
        started.elapsed()
    );
    if violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print(table: &Table) {
    let classes = [
        Class::Refused,
        Class::Told,
        Class::Noted,
        Class::Harmless,
        Class::Undecided,
    ];
    print!("{:<24} {:<14} {:<22}", "scene", "file", "damage");
    for class in classes {
        print!(" {:>9}", format!("{class:?}").to_lowercase());
    }
    println!();
    for ((scene, file, kind), counts) in table {
        print!("{scene:<24} {file:<14} {:<22}", kind.words());
        for class in classes {
            print!(" {:>9}", counts.get(&class).unwrap_or(&0));
        }
        println!();
    }
}
