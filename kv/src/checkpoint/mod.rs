//! Checkpoints: the map and the applied offset, in one file, replaced as one.
//!
//! `checkpoint-{applied}.kv` is written beside the log under a temporary name, synced, and renamed: it is there whole or not at all. It is
//! published only when the log is durable up to its offset, so it is never ahead of the truth. The newest two are kept; a damaged newest falls
//! back to the one before it and a longer replay.

pub(crate) mod format;
mod load;
mod write;

use wal::Offset;
use wal::storage::{Access, Storage, create_afresh, read_full_at, write_all_at};

use crate::error::{Error, Result};
use format::{FormatError, Header};

pub(crate) use load::load;
pub(crate) use write::write;

/// How many are kept.
pub(crate) const KEPT: usize = 2;

/// A checkpoint as listed: nothing but its header was read.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// By the file's name; the header must say the same.
    pub(crate) applied: Offset,
    pub(crate) header: Result<Header, FormatError>,
    pub(crate) file_bytes: u64,
}

/// All checkpoints, newest first.
pub(crate) fn list(storage: &dyn Storage) -> Result<Vec<Listed>> {
    let names = storage.list().map_err(|e| Error::io("list", path(storage, ""), e))?;
    let mut found = Vec::new();
    for name in names {
        let Some(applied) = format::parse_file_name(&name) else {
            continue;
        };
        let failed = |e| Error::io("read", path(storage, &name), e);
        let file = match storage.open(&name, Access::Read) {
            Ok(file) => file,
            // Replaced by a newer one between listing and opening.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(failed(e)),
        };
        let mut bytes = [0; format::HEADER_LEN];
        let got = read_full_at(&*file, 0, &mut bytes).map_err(failed)?;
        let header = Header::decode(&bytes[..got]).and_then(|header| {
            let here = header.applied == applied;
            if here {
                Ok(header)
            } else {
                Err(FormatError::Damaged("it is of another offset than its name says"))
            }
        });
        let file_bytes = file.len().map_err(failed)?;
        found.push(Listed {
            name,
            applied,
            header,
            file_bytes,
        });
    }
    found.sort_unstable_by_key(|c| std::cmp::Reverse(c.applied));
    Ok(found)
}

/// Removes checkpoints beyond those that are kept, and what an interrupted one left. Failures cost only space: it is tried again after
/// the next.
pub(crate) fn remove_old(storage: &dyn Storage, keep: &[Offset]) {
    let Ok(names) = storage.list() else { return };
    for name in names {
        let old = format::parse_file_name(&name).is_some_and(|applied| !keep.contains(&applied));
        let left = name
            .strip_suffix(".tmp")
            .is_some_and(|n| format::parse_file_name(n).is_some());
        if old || left {
            let _ = storage.remove(&name);
        }
    }
}

/// Copies the checkpoints at or below `end` to another directory, durably.
pub(crate) fn copy(from: &dyn Storage, to: &dyn Storage, end: Offset) -> Result<()> {
    for listed in list(from)?.into_iter().filter(|c| c.applied <= end) {
        let tmp = format!("{}.tmp", listed.name);
        let read = |e| Error::io("read", path(from, &listed.name), e);
        let write = |e| Error::io("write", path(to, &listed.name), e);
        let source = from.open(&listed.name, Access::Read).map_err(read)?;
        let target = create_afresh(to, &tmp).map_err(write)?;
        let mut buf = vec![0; 256 << 10];
        let mut pos = 0;
        loop {
            let got = read_full_at(&*source, pos, &mut buf).map_err(read)?;
            if got == 0 {
                break;
            }
            write_all_at(&*target, pos, &buf[..got]).map_err(write)?;
            pos += got as u64;
        }
        target.sync_data().map_err(write)?;
        to.rename(&tmp, &listed.name).map_err(write)?;
    }
    to.sync_dir()
        .map_err(|e| Error::io("sync the directory", path(to, ""), e))
}

pub(crate) fn path(storage: &dyn Storage, name: &str) -> String {
    storage.root().join(name).display().to_string()
}
