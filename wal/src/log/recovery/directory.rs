//! What is in a log's directory, by the names of its files.

use super::Contents;
use crate::codec::{cursor, meta, registry, segment_header};
use crate::error::{Corruption, Damage, Error, Result};
use crate::offset::Offset;
use crate::storage::Storage;

/// Names in a directory, sorted by what they are.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) has_meta: bool,
    pub(super) segments: Vec<(u64, Offset)>,
    pub(super) cursors: Vec<String>,
    pub(super) has_registry: bool,
    pub(super) tmp: Vec<String>,
    pub(super) foreign: Vec<String>,
}

pub(crate) const LOCK_FILE: &str = "LOCK";

pub(super) fn list(storage: &dyn Storage) -> Result<Listing> {
    let root = || storage.root().to_path_buf();
    let names = storage.list().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound { dir: root() },
        std::io::ErrorKind::NotADirectory => Error::NotALog {
            dir: root(),
            reason: "it is a file".to_owned(),
        },
        _ => Error::io("list", root().display().to_string(), e),
    })?;
    let mut listing = Listing::default();
    for name in names {
        if name == meta::FILE_NAME {
            listing.has_meta = true;
        } else if let Some((base, generation)) = segment_header::parse_file_name(&name) {
            listing.segments.push((generation, base));
        } else if cursor::is_file_name(&name) {
            listing.cursors.push(name);
        } else if name == registry::FILE_NAME {
            listing.has_registry = true;
        } else if is_temporary(&name) {
            listing.tmp.push(name);
        } else if name != LOCK_FILE {
            listing.foreign.push(name);
        }
    }
    listing.segments.sort_unstable();
    listing.cursors.sort_unstable();
    Ok(listing)
}

/// Whether a name is that of a file of this crate that was being made. Other people's `*.tmp` files are theirs.
fn is_temporary(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|name| {
        name == meta::FILE_NAME
            || name == registry::FILE_NAME
            || segment_header::parse_file_name(name).is_some()
            || cursor::is_file_name(name)
    })
}

/// Checks that a directory without a meta file holds nothing of anybody.
pub(crate) fn check_vacant(storage: &dyn Storage) -> Result<()> {
    without_meta(storage, list(storage)?).map(drop)
}

/// Creation makes the meta file first: without it there is no log yet, or it was lost.
pub(super) fn without_meta(storage: &dyn Storage, listing: Listing) -> Result<Contents> {
    if let Some(&(_, offset)) = listing.segments.first() {
        return Err(Corruption {
            file: storage.root().join(meta::FILE_NAME).display().to_string(),
            pos: 0,
            offset,
            damage: Damage::Missing,
            witness: None,
            dir: storage.root().to_path_buf(),
        }
        .into());
    }
    let other = listing.foreign.first().or(listing.cursors.first());
    match other {
        Some(name) => Err(Error::NotALog {
            dir: storage.root().to_path_buf(),
            reason: format!("it has no {} but holds {name}", meta::FILE_NAME),
        }),
        None => Ok(Contents::Empty { leftovers: listing.tmp }),
    }
}
