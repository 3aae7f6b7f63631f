//! The closing scoreboard, as text and as JSON, and what of it would be a broken promise.

use serde_json::{Value, json};

/// What a consumer handled, over all offsets.
pub(crate) struct Tally {
    pub(crate) processed: u64,
    pub(crate) missed: u64,
    pub(crate) duplicated_offsets: Vec<u64>,
}

impl Tally {
    pub(crate) fn of(handled: &[u64], records: u64) -> Self {
        let mut counts = vec![0u64; usize::try_from(records).unwrap_or_default()];
        for offset in handled {
            if let Some(count) = usize::try_from(*offset).ok().and_then(|n| counts.get_mut(n)) {
                *count += 1;
            }
        }
        let repeated = counts
            .iter()
            .zip(0..)
            .filter(|(count, _)| **count > 1)
            .map(|(_, offset)| offset);
        Self {
            processed: handled.len() as u64,
            missed: counts.iter().filter(|count| **count == 0).count() as u64,
            duplicated_offsets: repeated.collect(),
        }
    }

    fn duplicated(&self) -> u64 {
        self.duplicated_offsets.len() as u64
    }
}

pub(crate) struct Kv {
    pub(crate) loaded_from_checkpoint: u64,
    pub(crate) replayed: u64,
    pub(crate) keys: u64,
    pub(crate) equal_to_fold: bool,
}

pub(crate) struct Torn {
    pub(crate) cut_offset: Option<u64>,
    pub(crate) opened: bool,
}

pub(crate) struct Corrupt {
    pub(crate) target: u64,
    pub(crate) refused: bool,
    pub(crate) offset: Option<u64>,
    pub(crate) file: Option<String>,
    pub(crate) position: Option<u64>,
    pub(crate) unchanged: bool,
}

pub(crate) struct Score {
    pub(crate) records: u64,
    pub(crate) crash_at: u64,
    pub(crate) last_offset: u64,
    pub(crate) at_least_once: Tally,
    pub(crate) at_most_once: Tally,
    pub(crate) replayed: u64,
    pub(crate) first_consumer_offset: u64,
    pub(crate) second_consumer_offset: u64,
    pub(crate) kv: Kv,
    pub(crate) torn: Torn,
    pub(crate) corrupt: Corrupt,
}

impl Score {
    /// What was promised and did not come about.
    pub(crate) fn failures(&self) -> Vec<&'static str> {
        let n = self.records;
        let checks = [
            ("every record read back", self.last_offset + 1 == n),
            ("at least once: none missed", self.at_least_once.missed == 0),
            (
                "at least once: only the uncommitted repeated",
                self.at_least_once.duplicated_offsets == [self.crash_at],
            ),
            ("at most once: none repeated", self.at_most_once.duplicated() == 0),
            (
                "at most once: only the one in hand missed",
                self.at_most_once.missed == 1,
            ),
            (
                "a new consumer replays everything",
                self.replayed == n && self.second_consumer_offset == n,
            ),
            ("the others stay where they are", self.first_consumer_offset == n),
            ("the store equals the fold of its log", self.kv.equal_to_fold),
            (
                "a torn record is cut and the log opens",
                self.torn.opened && self.torn.cut_offset == Some(n),
            ),
            (
                "a flipped bit is refused where it is",
                self.corrupt.refused && self.corrupt.offset == Some(self.corrupt.target),
            ),
            ("and nothing is changed", self.corrupt.unchanged),
        ];
        checks.iter().filter(|(_, held)| !held).map(|(what, _)| *what).collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "last_offset": self.last_offset,
            "processed": self.at_least_once.processed,
            "missed": self.at_least_once.missed,
            "duplicated": self.at_least_once.duplicated(),
            "duplicated_offsets": self.at_least_once.duplicated_offsets,
            "at_most_once": {
                "processed": self.at_most_once.processed,
                "missed": self.at_most_once.missed,
                "duplicated": self.at_most_once.duplicated(),
            },
            "replayed": self.replayed,
            "first_consumer_offset": self.first_consumer_offset,
            "second_consumer_offset": self.second_consumer_offset,
            "kv": {
                "loaded_from_checkpoint": self.kv.loaded_from_checkpoint,
                "replayed": self.kv.replayed,
                "keys": self.kv.keys,
                "equal_to_fold": self.kv.equal_to_fold,
            },
            "torn": { "cut_offset": self.torn.cut_offset, "opened": self.torn.opened },
            "corrupt": {
                "refused": self.corrupt.refused,
                "offset": self.corrupt.offset,
                "file": self.corrupt.file,
                "position": self.corrupt.position,
                "unchanged": self.corrupt.unchanged,
            },
        })
    }

    pub(crate) fn to_text(&self) -> String {
        let yes = |held: bool| if held { "yes" } else { "NO" };
        let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        let (alo, amo) = (&self.at_least_once, &self.at_most_once);
        let rows = [
            ("log", "last offset".to_owned(), self.last_offset.to_string()),
            (
                "commit after the work",
                "processed / missed / twice".to_owned(),
                tally(alo),
            ),
            (
                "",
                "twice at offset".to_owned(),
                format!("{:?}", alo.duplicated_offsets),
            ),
            (
                "commit before the work",
                "processed / missed / twice".to_owned(),
                tally(amo),
            ),
            ("a new consumer", "replayed".to_owned(), self.replayed.to_string()),
            (
                "",
                "first / second stand at".to_owned(),
                format!("{} / {}", self.first_consumer_offset, self.second_consumer_offset),
            ),
            (
                "store after a kill",
                "from checkpoint / replayed".to_owned(),
                format!("{} / {}", self.kv.loaded_from_checkpoint, self.kv.replayed),
            ),
            (
                "",
                "keys; equal to the fold".to_owned(),
                format!("{}; {}", self.kv.keys, yes(self.kv.equal_to_fold)),
            ),
            (
                "torn last record",
                "cut at offset; opens".to_owned(),
                format!("{}; {}", number(self.torn.cut_offset), yes(self.torn.opened)),
            ),
            (
                "one flipped bit",
                "refused at offset; byte".to_owned(),
                format!("{}; {}", number(self.corrupt.offset), number(self.corrupt.position)),
            ),
            ("", "files unchanged".to_owned(), yes(self.corrupt.unchanged).to_owned()),
        ];
        let mut text = String::from("\n");
        for (what, figure, value) in rows {
            text += &format!("{what:<24}{figure:<30}{value}\n");
        }
        text
    }
}

fn tally(t: &Tally) -> String {
    format!("{} / {} / {}", t.processed, t.missed, t.duplicated())
}
