//! From files to a state: the newest checkpoint that is whole, then the log from there.

use std::sync::Arc;

use wal::storage::Storage;
use wal::{Offset, ReadOnlyWal, Reader, RecoveryReport, Wal, inspect};

use crate::checkpoint::format::{FormatError, record_digest};
use crate::checkpoint::{self, Listed};
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::state::State;

/// What opening a store found and did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct OpenReport {
    /// What the log's recovery found.
    pub log: Arc<RecoveryReport>,
    /// The applied offset of the checkpoint that was loaded; `None` where the log was replayed from its beginning.
    pub checkpoint: Option<Offset>,
    /// Entries in that checkpoint.
    pub loaded: u64,
    /// Records replayed after it.
    pub replayed: u64,
    /// Bytes of those records.
    pub replayed_bytes: u64,
    /// Checkpoints that could not be used, and why.
    pub unusable: Vec<String>,
}

/// A log to fold, open for writing or not.
pub(crate) trait Source {
    fn id(&self) -> [u8; 16];
    fn start(&self) -> Offset;
    fn end(&self) -> Offset;
    fn reader(&self, from: Offset) -> wal::Result<Reader>;
    fn read(&self, offset: Offset) -> wal::Result<Vec<u8>>;
}

impl Source for Wal {
    fn id(&self) -> [u8; 16] {
        self.id()
    }
    fn start(&self) -> Offset {
        self.start()
    }
    fn end(&self) -> Offset {
        self.written_end()
    }
    fn reader(&self, from: Offset) -> wal::Result<Reader> {
        self.reader_of(from, wal::Visible::Written)
    }
    fn read(&self, offset: Offset) -> wal::Result<Vec<u8>> {
        self.read(offset)
    }
}

impl Source for ReadOnlyWal {
    fn id(&self) -> [u8; 16] {
        self.id()
    }
    fn start(&self) -> Offset {
        self.start()
    }
    fn end(&self) -> Offset {
        self.durable_end()
    }
    fn reader(&self, from: Offset) -> wal::Result<Reader> {
        self.reader(from)
    }
    fn read(&self, offset: Offset) -> wal::Result<Vec<u8>> {
        self.read(offset)
    }
}

/// The state after the records `[0, end)`.
pub(crate) fn load(storage: &dyn Storage, log: &impl Source, end: Offset) -> Result<(State, OpenReport)> {
    let mut report = OpenReport::default();
    let start = log.start();
    let mut state = None;
    for listed in checkpoint::list(storage)? {
        // Of a later moment than the one asked for.
        if listed.applied > end {
            continue;
        }
        match usable(storage, log, &listed)? {
            Ok(loaded) => {
                report.checkpoint = Some(loaded.applied);
                report.loaded = loaded.map.len() as u64;
                state = Some(loaded);
                break;
            }
            Err(reason) => report.unusable.push(format!("{}: {reason}", listed.name)),
        }
    }
    let mut state = match state {
        Some(state) => state,
        None if start == 0 => State::default(),
        None => {
            return Err(Error::NoUsableCheckpoint {
                log_start: start,
                reasons: if report.unusable.is_empty() {
                    vec!["there is none".to_owned()]
                } else {
                    report.unusable
                },
            });
        }
    };
    let mut reader = log.reader(state.applied)?;
    (report.replayed, report.replayed_bytes) = state.replay(&mut reader, end)?;
    Ok((state, report))
}

/// Loads a checkpoint if it is whole and of this log.
fn usable(storage: &dyn Storage, log: &impl Source, listed: &Listed) -> Result<Result<State, String>> {
    let header = match &listed.header {
        Ok(header) => header,
        Err(FormatError::Version(found)) => {
            return Err(Error::Log(wal::Error::UnsupportedVersion {
                file: checkpoint::path(storage, &listed.name),
                found: *found,
                newest: checkpoint::format::VERSION,
            }));
        }
        Err(e) => return Ok(Err(e.to_string())),
    };
    if header.log != log.id() {
        return Ok(Err("it is of another log".to_owned()));
    }
    if header.applied < log.start() {
        return Ok(Err(format!(
            "it is of offset {}, and the log begins at {}",
            header.applied,
            log.start()
        )));
    }
    // The record below it, where it is still there, must be the one that was applied last.
    if header.applied > log.start() && record_digest(&log.read(header.applied - 1)?) != header.last_record {
        return Ok(Err(
            "the log holds another record below it than the one it was made from".to_owned(),
        ));
    }
    Ok(match checkpoint::load(storage, &listed.name)? {
        Ok((header, map)) => Ok(State {
            map,
            applied: header.applied,
        }),
        Err(e) => Err(e.to_string()),
    })
}

/// One past the last record that a checkpoint of this directory's log vouches for.
pub(crate) fn known_durable(storage: &dyn Storage) -> Offset {
    let Some(id) = inspect::log_id(storage) else { return 0 };
    let listed = checkpoint::list(storage).unwrap_or_default();
    let vouched = listed
        .iter()
        .filter_map(|c| c.header.as_ref().ok())
        .filter(|h| h.log == id);
    vouched.map(|h| h.applied).max().unwrap_or(0)
}

/// The oldest offset at which the store can be shown.
pub(crate) fn history_start(storage: &dyn Storage, log: &impl Source) -> Result<Offset> {
    if log.start() == 0 {
        return Ok(0);
    }
    let listed = checkpoint::list(storage)?;
    let of_log = listed
        .iter()
        .filter(|c| c.header.as_ref().is_ok_and(|h| h.log == log.id()));
    Ok(of_log
        .map(|c| c.applied)
        .filter(|s| *s >= log.start())
        .min()
        .unwrap_or(log.end()))
}

/// The state at `wanted`, or an error that names the bounds.
pub(crate) fn at(storage: &dyn Storage, log: &impl Source, wanted: Offset) -> Result<State> {
    let (start, end) = (history_start(storage, log)?, log.end());
    if !(start..=end).contains(&wanted) {
        return Err(Error::OutOfRange { wanted, start, end });
    }
    Ok(load(storage, log, wanted)?.0)
}

/// See [`crate::Options::read_storage`].
pub(crate) fn read(storage: &Arc<dyn Storage>, options: wal::Options, wanted: Option<Offset>) -> Result<Snapshot> {
    let mut tries = 0;
    loop {
        let log = options.clone().open_read_only_storage(Arc::clone(storage))?;
        let end = log.durable_end();
        let state = match wanted {
            Some(wanted) => at(&**storage, &log, wanted),
            None => load(&**storage, &log, end).map(|(state, _)| state),
        };
        match state {
            Ok(state) => return Ok(Snapshot { state }),
            // A writer replaced checkpoints, or removed segments, while they were read: look again.
            Err(
                Error::NoUsableCheckpoint { .. } | Error::Log(wal::Error::OutOfRange { .. } | wal::Error::Io { .. }),
            ) if tries < 3 => {
                tries += 1;
            }
            Err(e) => return Err(e),
        }
    }
}
