//! Proves a directory: every byte of log and checkpoints, and that they tell one story.

use std::sync::Arc;

use wal::storage::Storage;
use wal::{Offset, inspect};

use crate::checkpoint;
use crate::error::{Error, Result};
use crate::state::State;

/// Everything that [`verify`] found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Verification {
    /// What the log's own verification found.
    pub log: inspect::Verification,
    /// The checkpoints, newest first.
    pub checkpoints: Vec<CheckpointInfo>,
    /// The fold of the log, if it could be made.
    pub fold: Option<Fold>,
    /// Records that are no writes of a store.
    pub not_writes: Vec<String>,
}

/// A checkpoint, read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointInfo {
    /// The file, as a path.
    pub file: String,
    /// The next record to apply after it.
    pub applied: Offset,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Entries in it; 0 where it is damaged.
    pub entries: u64,
    /// Why it cannot be used.
    pub damage: Option<String>,
    /// Whether it equals the fold of the log up to its offset; `None` where that could not be made.
    pub equals_fold: Option<bool>,
}

/// The fold of the log's records.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fold {
    /// Where it began: 0, with an empty map, or the offset of the oldest whole checkpoint, with its map.
    pub from: Offset,
    /// One past the last record in it.
    pub to: Offset,
    /// Keys at its end.
    pub keys: u64,
}

impl Verification {
    /// Whether no promise is broken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.log.is_clean()
            && self.not_writes.is_empty()
            && self
                .checkpoints
                .iter()
                .all(|c| c.damage.is_none() && c.equals_fold != Some(false))
    }
}

/// Reads every byte of a store, changes nothing, goes on past damage, and checks that each checkpoint equals the fold of the log: from its
/// beginning, or where that is gone, from the oldest checkpoint that is whole. Works beside a writer.
///
/// # Errors
/// As [`inspect::verify`]. Damage is no error: it is the answer.
pub fn verify(storage: &Arc<dyn Storage>) -> Result<Verification> {
    let mut found = Verification {
        log: inspect::verify(storage)?,
        ..Verification::default()
    };
    let id = inspect::log_id(&**storage);
    let mut states = Vec::new();
    for listed in checkpoint::list(&**storage)? {
        let mut info = CheckpointInfo {
            file: checkpoint::path(&**storage, &listed.name),
            applied: listed.applied,
            file_bytes: listed.file_bytes,
            entries: 0,
            damage: None,
            equals_fold: None,
        };
        match checkpoint::load(&**storage, &listed.name) {
            Ok(Ok((header, _))) if header.applied != listed.applied => {
                info.damage = Some("it is of another offset than its name says".to_owned());
            }
            Ok(Ok((header, _))) if Some(header.log) != id => info.damage = Some("it is of another log".to_owned()),
            Ok(Ok((header, map))) => {
                info.entries = map.len() as u64;
                states.push((
                    found.checkpoints.len(),
                    State {
                        map,
                        applied: header.applied,
                    },
                ));
            }
            Ok(Err(damage)) => info.damage = Some(damage.to_string()),
            // Replaced by a newer one since it was listed.
            Err(Error::Log(wal::Error::Io { source, .. })) if source.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        }
        found.checkpoints.push(info);
    }
    found.fold(storage, states)?;
    Ok(found)
}

impl Verification {
    /// Folds the log and compares on the way. `states` are the whole checkpoints, newest first.
    fn fold(&mut self, storage: &Arc<dyn Storage>, mut states: Vec<(usize, State)>) -> Result<()> {
        let mut survivors = inspect::Survivors::open(storage)?;
        let mut state = State::default();
        if self.log.start > 0 {
            // The log no longer reaches back: begin with the oldest checkpoint, which is then taken at its word.
            match states.pop() {
                Some((_, oldest)) if oldest.applied >= self.log.start => state = oldest,
                _ => return Ok(()),
            }
        }
        let from = state.applied;
        self.compare(&state, &mut states);
        while let Some(survivor) = survivors.next()? {
            match survivor {
                inspect::Survivor::Record(record) if record.offset < state.applied => {}
                inspect::Survivor::Record(record) => match state.apply(record.offset, record.bytes) {
                    Ok(()) => self.compare(&state, &mut states),
                    Err(e) => {
                        self.not_writes.push(e.to_string());
                        return Ok(());
                    }
                },
                // Behind a gap the fold means nothing.
                inspect::Survivor::Lost(finding) if finding.lost.end > state.applied => return Ok(()),
                inspect::Survivor::Lost(_) => {}
            }
        }
        for (at, ahead) in states {
            let what = format!(
                "it is of offset {}, and the log ends at {}",
                ahead.applied, state.applied
            );
            self.checkpoints[at].damage = Some(what);
        }
        self.fold = Some(Fold {
            from,
            to: state.applied,
            keys: state.map.len() as u64,
        });
        Ok(())
    }

    fn compare(&mut self, state: &State, states: &mut Vec<(usize, State)>) {
        while let Some((at, checkpoint)) = states.pop_if(|(_, c)| c.applied == state.applied) {
            self.checkpoints[at].equals_fold = Some(checkpoint.map.iter().eq(state.map.iter()));
        }
    }
}
