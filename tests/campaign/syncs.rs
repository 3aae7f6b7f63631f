//! Leaves out one sync at a time, wherever it is made, and sees that crashes notice. A sync that nothing notices is not needed, or the
//! campaign is blind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use wal::storage::sim::{Fault, FaultKind, Op, OpKind};

use super::crashes::{Bounds, explore};
use super::life::{Lab, Life};

/// A sync by what it is of and by the change that it follows: the same in every life.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sync {
    kind: OpKind,
    file: String,
    after: Option<(OpKind, String)>,
}

impl Sync {
    /// Not one that directly follows a sync of the same: nothing is left for it to make durable. Two threads bring that about, when the
    /// first sync has taken in what was written for the second.
    fn of(op: &Op, before: Option<&Op>) -> Option<Self> {
        let syncs = matches!(op.kind, OpKind::SyncData | OpKind::SyncDir | OpKind::CreateRoot);
        let idle = before.is_some_and(|b| b.kind == op.kind && b.file == op.file);
        (syncs && !idle).then(|| Self {
            kind: op.kind,
            file: class(&op.file),
            after: before
                .filter(|_| op.kind != OpKind::CreateRoot)
                .map(|b| (b.kind, class(&b.file))),
        })
    }

    fn left_out(&self) -> Fault {
        let this = self.clone();
        Fault::new(self.kind, FaultKind::IgnoreSync)
            .only_if(move |op, before| Self::of(op, before).as_ref() == Some(&this))
            .forever()
    }
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            OpKind::CreateRoot => return write!(f, "the directory's in its parent"),
            OpKind::SyncDir => write!(f, "the directory's")?,
            _ => write!(f, "{}'s", self.file)?,
        }
        match &self.after {
            Some((kind, file)) if file.is_empty() => write!(f, " after {kind:?}"),
            Some((kind, file)) => write!(f, " after {kind:?} of {file}"),
            None => Ok(()),
        }
    }
}

/// A file's name without the numbers and names in it.
fn class(file: &str) -> String {
    let ending = file.find('.').map_or("", |dot| &file[dot..]);
    match file.split_once(|c: char| c.is_ascii_digit()) {
        _ if file.starts_with("consumer-") => format!("consumer-*{ending}"),
        Some((before, _)) => format!("{before}*{ending}"),
        None => file.to_owned(),
    }
}

/// Every sync that the lives make, and which of them make it.
pub fn find(lives: &[Life]) -> Vec<(Sync, Vec<&Life>)> {
    let mut found: BTreeMap<Sync, Vec<&Life>> = BTreeMap::new();
    for life in lives {
        let lab = Lab::with(|_, disk| disk.start_trace());
        let disk = lab.missing();
        life.live(&disk, &lab).unwrap_or_else(|e| panic!("{e}"));
        let mut syncs = BTreeSet::new();
        for disk in lab.made() {
            let mut before = None;
            for op in disk.trace().into_iter().filter(|op| op.kind.is_mutation()) {
                syncs.extend(Sync::of(&op, before.as_ref()));
                before = Some(op);
            }
        }
        for sync in syncs {
            found.entry(sync).or_default().push(life);
        }
    }
    found.into_iter().collect()
}

/// What crashes find when it is never made.
pub fn leave_out(sync: &Sync, lives: &[&Life], bounds: &Bounds) -> Option<String> {
    let lab = Lab::with(|_, disk| disk.inject(sync.left_out()));
    let mut failures = lives
        .iter()
        .filter_map(|life| explore(life, &lab, bounds).failures.pop());
    failures.next().map(|failure| failure.what)
}
