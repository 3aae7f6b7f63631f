//! What a damaged disk says.

use std::sync::Arc;

use wal::storage::Storage;
use wal::storage::sim::SimStorage;
use wal::{FsyncPolicy, RecoveryReport};

use super::damage::{Damage, Kind};
use super::scenes::{Contents, Map, Scene, Statement, blank_behind, last_segment, options, store_options};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// It does not open, and says why; nothing was changed.
    Refused,
    /// It opens; reading, or the consumer, says what is lost.
    Told,
    /// Every answer is right, and there is word of the damage.
    Noted,
    /// Every answer is right, and nothing is said: no answer depends on it.
    Harmless,
    /// Records are missing that were promised, or an old position counts again, and nothing that is left could tell it from a crash, or from
    /// an earlier day.
    Undecided,
}

fn share(disk: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(disk.clone())
}

/// Everything but the lock's file.
fn fingerprint(disk: &SimStorage) -> u64 {
    let disk = disk.fork();
    disk.remove_file("LOCK");
    disk.fingerprint()
}

/// Classifies it. `Err` is a violation.
pub fn judge(scene: &Scene, damage: &Damage, hurt: &SimStorage) -> Result<Class, String> {
    let floor = floor(scene, damage);
    let acknowledged = scene.truth.acknowledged;
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match &scene.truth.contents {
        Contents::Log { records, consumer } => judge_log(damage.kind(), hurt, records, acknowledged, floor, *consumer),
        Contents::Store(states) => judge_store(hurt, states, acknowledged, floor),
    }));
    judged.unwrap_or_else(|_| Err("a panic".to_owned()))
}

/// How many records something that the damage leaves vouches for: never may fewer be there without an error.
fn floor(scene: &Scene, damage: &Damage) -> u64 {
    let truth = &scene.truth;
    if damage.file() != last_segment(&scene.disk).0 {
        return truth.acknowledged;
    }
    let Some(place) = damage.place() else {
        return truth.witnessed_elsewhere;
    };
    let is_left = |s: &&Statement| s.pos + FRAME_HEADER <= place.start || place.end <= s.pos;
    let left = truth.statements.iter().filter(is_left);
    left.map(|s| s.durable_end)
        .max()
        .unwrap_or(0)
        .max(truth.witnessed_elsewhere)
}

/// Bytes of a frame's header.
const FRAME_HEADER: usize = 32;

/// Whether verification sees it; and whether it has any word of it.
fn look(hurt: &SimStorage) -> (bool, bool) {
    match wal::inspect::verify(&share(hurt)) {
        Ok(found) => (!found.is_clean(), !found.notes.is_empty() || found.cut.is_some()),
        Err(_) => (true, true),
    }
}

fn refused(hurt: &SimStorage, before: u64, seen: bool, error: &dyn std::fmt::Display) -> Result<Class, String> {
    if fingerprint(hurt) != before {
        return Err(format!("it was refused, but changed: {error}"));
    }
    if !seen {
        return Err(format!("it was refused, but verify finds it clean: {error}"));
    }
    Ok(Class::Refused)
}

fn judge_log(
    kind: Kind,
    hurt: &SimStorage,
    records: &[Vec<u8>],
    acknowledged: u64,
    floor: u64,
    consumer: u64,
) -> Result<Class, String> {
    let before = fingerprint(hurt);
    let (seen, mut word) = look(hurt);
    if fingerprint(hurt) != before {
        return Err("verify changed it".to_owned());
    }
    let log = match options(FsyncPolicy::Always).open_storage(share(hurt)) {
        Ok(log) => log,
        Err(e) => return refused(hurt, before, seen, &e),
    };
    word |= !log.report().notes.is_empty();
    let (start, end) = (log.start(), log.end());
    if start != 0 {
        return Err(format!("it begins at {start}"));
    }
    if end > records.len() as u64 {
        return Err(format!("{end} records, of {} ever written", records.len()));
    }
    let mut told = None;
    for offset in 0..end {
        match log.read(offset) {
            Ok(record) if record == records[offset as usize] => {}
            Ok(_) => return Err(format!("another record at {offset}")),
            Err(e) => told = Some(e.to_string()),
        }
    }
    let mut old = false;
    match log.consumer("c").open_existing().map(|c| c.committed()) {
        Ok(at) if at == consumer => {}
        Ok(at) if kind.is_old() && at < consumer => old = true,
        Ok(at) => return Err(format!("the consumer was moved from {consumer} to {at}")),
        Err(e) => told = Some(e.to_string()),
    }
    if let Some(error) = told {
        return if seen {
            Ok(Class::Told)
        } else {
            Err(format!("verify finds it clean, but: {error}"))
        };
    }
    decided(hurt, seen, word, old, missing(&log.report(), end, acknowledged, floor)?)
}

fn judge_store(hurt: &SimStorage, states: &[Map], acknowledged: u64, floor: u64) -> Result<Class, String> {
    let before = fingerprint(hurt);
    let (seen, mut word) = match kv::verify(&share(hurt)) {
        Ok(found) => (
            !found.is_clean(),
            !found.log.notes.is_empty() || found.log.cut.is_some(),
        ),
        Err(_) => (true, true),
    };
    if fingerprint(hurt) != before {
        return Err("verify changed it".to_owned());
    }
    let store = match store_options().open_storage(share(hurt)) {
        Ok(store) => store,
        Err(e) => return refused(hurt, before, seen, &e),
    };
    let report = store.report();
    word |= !report.log.notes.is_empty() || !report.unusable.is_empty();
    let snapshot = store.snapshot();
    let at = snapshot.offset();
    let state: Map = snapshot.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    if states.get(at as usize) != Some(&state) {
        return Err(format!("not the state at {at}"));
    }
    if !report.unusable.is_empty() && !seen {
        return Err(format!("verify finds it clean, but {:?}", report.unusable));
    }
    // The log, too, is asked for everything.
    let mut told = None;
    match store.watch(0) {
        Ok(_) => {
            for offset in 0..at {
                if let Err(e) = store.at(offset) {
                    told = Some(e.to_string());
                }
            }
        }
        Err(e) => told = Some(e.to_string()),
    }
    if let Some(error) = told {
        return if seen {
            Ok(Class::Told)
        } else {
            Err(format!("verify finds it clean, but: {error}"))
        };
    }
    decided(hurt, seen, word, false, missing(&report.log, at, acknowledged, floor)?)
}

/// Whether acknowledged records are missing. That must be labelled, and no more than can be helped.
fn missing(report: &RecoveryReport, end: u64, acknowledged: u64, floor: u64) -> Result<bool, String> {
    if end >= acknowledged {
        return Ok(false);
    }
    if end < floor {
        return Err(format!("it ends at {end}; {floor} are vouched for: {report:?}"));
    }
    Ok(true)
}

fn decided(hurt: &SimStorage, seen: bool, word: bool, old: bool, missing: bool) -> Result<Class, String> {
    // Where only zeros are left there is nothing to tell of: so it looks before anything is written.
    if missing && !word && !old && !blank_behind(hurt) {
        return Err("records are missing, and no word".to_owned());
    }
    Ok(if missing || old {
        Class::Undecided
    } else if seen || word {
        Class::Noted
    } else {
        Class::Harmless
    })
}
