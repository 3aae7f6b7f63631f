//! Processes that really die: a child under load (writers, consumers, checkpoints, retention) is killed by SIGKILL at a random moment, again and
//! again on one directory, and what is there afterwards is held against what the child had reported as acknowledged.
//!
//! `cargo test --release --test kill -- --rounds 300`; without arguments a dozen rounds.

mod child;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use child::{CONSUMERS, WRITERS, options, parse_value};

/// What the child said before it died.
#[derive(Default)]
struct Reported {
    /// Acknowledged writes: offset, writer, sequence number.
    acks: Vec<(u64, u64, u64)>,
    /// The last commit of each consumer.
    commits: BTreeMap<String, u64>,
}

struct Totals {
    acknowledged: u64,
    checked: u64,
    commits: u64,
    cuts: u64,
}

fn main() -> ExitCode {
    if let Some(dir) = std::env::var_os("KILL_CHILD") {
        child::run(Path::new(&dir));
    }
    let mut rounds = 12;
    let mut seed = 1;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rounds" => rounds = words.next().and_then(|n| n.parse().ok()).unwrap_or(rounds),
            "--seed" => seed = words.next().and_then(|n| n.parse().ok()).unwrap_or(seed),
            // What a test runner hands to every test.
            _ => {}
        }
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory beside the build");
    let path = dir.path().join("store");
    let mut totals = Totals {
        acknowledged: 0,
        checked: 0,
        commits: 0,
        cuts: 0,
    };
    for round in 0..rounds {
        seed = u64::wrapping_mul(seed, 6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let reported = run_and_kill(&path, round, Duration::from_millis((seed >> 33) % 150));
        check(&path, round, &reported, &mut totals);
    }
    println!(
        "{rounds} kills: {} writes acknowledged, {} records read and none lost, invented or out of order; {} commits kept; {} torn tails cut",
        totals.acknowledged, totals.checked, totals.commits, totals.cuts
    );
    assert!(totals.acknowledged >= rounds / 2, "the children hardly wrote anything");
    ExitCode::SUCCESS
}

/// Lets a child write for a while, kills it, and returns what it had said by then.
fn run_and_kill(path: &Path, round: u64, life: Duration) -> Reported {
    let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
        .env("KILL_CHILD", path)
        .env("KILL_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped"));
    let (wrote, first_write) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut reported = Reported::default();
        for line in lines.lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |n: usize| words.get(n).and_then(|w| w.parse::<u64>().ok());
            match (words[0], number(1), number(2), number(3)) {
                ("ack", Some(offset), Some(writer), Some(seq)) => {
                    reported.acks.push((offset, writer, seq));
                    let _ = wrote.send(());
                }
                // The last line may be cut by the kill; then it was never said.
                ("commit", _, Some(offset), Some(4)) => {
                    reported.commits.insert(words[1].to_owned(), offset);
                }
                _ => {}
            }
        }
        reported
    });
    // Most lives get as far as writing; some are killed while they open.
    if !round.is_multiple_of(8) {
        let _ = first_write.recv_timeout(Duration::from_secs(30));
    }
    std::thread::sleep(life);
    child.kill().expect("can be killed");
    let status = child.wait().expect("ends");
    assert!(!status.success(), "round {round}: the child ended by itself");
    reader.join().expect("reads")
}

fn check(path: &Path, round: u64, reported: &Reported, totals: &mut Totals) {
    // The child may have died before it had made anything.
    if !path.join("log.meta").exists() {
        assert!(reported.acks.is_empty());
        return;
    }
    let storage: Arc<dyn wal::storage::Storage> = Arc::new(wal::storage::FsStorage::new(path));
    let verified = kv::verify(&storage).expect("can be looked at");
    assert!(verified.is_clean(), "round {round}: {verified:?}");
    let store = options(round)
        .open(path)
        .unwrap_or_else(|e| panic!("round {round}: {e}"));
    totals.cuts += u64::from(store.report().log.cut.is_some());
    let consumers: BTreeMap<_, _> = store.consumers().into_iter().map(|c| (c.name, c.committed)).collect();
    for (name, committed) in &reported.commits {
        let now = consumers
            .get(name)
            .unwrap_or_else(|| panic!("round {round}: consumer {name} is gone"));
        assert!(
            now >= committed,
            "round {round}: consumer {name} committed {committed} and stands at {now}"
        );
        totals.commits += 1;
    }
    let snapshot = store.snapshot();
    store.close().unwrap_or_else(|e| panic!("round {round}: {e}"));
    drop(store);
    let log = wal::Options::new()
        .open_read_only(path)
        .unwrap_or_else(|e| panic!("round {round}: {e}"));
    let mut there = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let mut reader = log.reader(log.start()).unwrap_or_else(|e| panic!("round {round}: {e}"));
    while let Some(record) = reader.next().unwrap_or_else(|e| panic!("round {round}: {e}")) {
        let committed =
            kv::Committed::decode(record.offset, record.bytes).unwrap_or_else(|e| panic!("round {round}: {e}"));
        let value = committed.changes[0].value.as_deref().unwrap_or_default();
        let (writer, seq) =
            parse_value(value).unwrap_or_else(|| panic!("round {round}: a record nobody wrote at {}", record.offset));
        if let Some(before) = last.insert(writer, seq) {
            assert_eq!(
                seq,
                before + 1,
                "round {round}: writer {writer} at offset {}",
                record.offset
            );
        }
        there.insert(record.offset, (writer, seq));
        totals.checked += 1;
    }
    for (offset, writer, seq) in &reported.acks {
        totals.acknowledged += 1;
        if *offset >= log.start() {
            assert_eq!(
                there.get(offset),
                Some(&(*writer, *seq)),
                "round {round}: acknowledged at {offset}, and lost"
            );
        }
    }
    for writer in 0..WRITERS {
        let state = snapshot.get(format!("last/{writer}")).and_then(|v| parse_value(&v));
        let said = reported.acks.iter().filter(|a| a.1 == writer).map(|a| a.2).max();
        assert!(
            state.map(|s| s.1) >= said,
            "round {round}: writer {writer} is at {state:?} and said {said:?}"
        );
        if let Some(last) = last.get(&writer) {
            assert_eq!(
                state,
                Some((writer, *last)),
                "round {round}: the store is not what its log says"
            );
        }
    }
    assert!(consumers.len() <= CONSUMERS.len() + 1);
}
