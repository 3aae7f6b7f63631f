//! A consistent copy of a live log.

use std::sync::Arc;

use crate::codec::frame::{self, Kind};
use crate::codec::meta::{self, Meta};
use crate::consumer::Consumers;
use crate::error::{Error, Result};
use crate::inspect;
use crate::log::{Log, Mark, reader};
use crate::offset::Offset;
use crate::segment::Segment;
use crate::storage::{Access, Storage, StorageFile, read_full_at, replace_file, write_all_at};

/// Copies everything below the durable end. The meta file comes last: until then the copy does not open.
pub(crate) fn copy(log: &Arc<Log>, consumers: &Consumers, to: &Arc<dyn Storage>) -> Result<Offset> {
    let root = to.root().display().to_string();
    to.create_root()
        .map_err(|e| Error::io("create the directory", root.as_str(), e))?;
    let names = to.list().map_err(|e| Error::io("list", root.as_str(), e))?;
    if let Some(name) = names.first() {
        return Err(Error::NotALog {
            dir: to.root().to_path_buf(),
            reason: format!("a backup goes into a missing or empty directory, and this one holds {name}"),
        });
    }
    // Nothing that is being copied is removed meanwhile.
    let _pin = log.pin(0, "backup".to_owned(), false);
    // Before the durable end is taken, so that no consumer in the copy is beyond its log.
    let files = consumers.files()?;
    match log.sync() {
        Ok(_) => {}
        // A log that has stopped can still be copied up to its durable end.
        Err(Error::Poisoned { .. }) => {}
        Err(e) => return Err(e),
    }
    let mark = log.durable();
    for segment in log.segments() {
        if segment.generation() <= mark.generation {
            copy_segment(log, &segment, mark, &**to)?;
        }
    }
    for (name, bytes) in files {
        replace_file(&**to, &name, &bytes).map_err(|e| Error::io("write", path(&**to, &name), e))?;
    }
    let meta = Meta {
        seq: 1,
        newest_gen: mark.generation,
        durable_end: mark.offset,
        ..log.meta()
    };
    replace_file(&**to, meta::FILE_NAME, &meta.encode_file())
        .map_err(|e| Error::io("write", path(&**to, meta::FILE_NAME), e))?;
    match inspect::verify(to)?.damage.into_iter().next() {
        Some(finding) => Err(finding.corruption.into()),
        None => Ok(mark.offset),
    }
}

fn copy_segment(log: &Log, segment: &Segment, mark: Mark, to: &dyn Storage) -> Result<()> {
    let from = segment.file()?;
    let end = reader::limit(segment, mark);
    let target = to.open(&segment.name, Access::Create);
    let target = target.map_err(|e| Error::io("create", path(to, &segment.name), e))?;
    copy_bytes(&*from, &*target, end, segment, to)?;
    if segment.generation() == mark.generation {
        let mut close = Vec::new();
        let stamp = log.now_ms().to_le_bytes();
        frame::encode_control(
            &mut close,
            Kind::Close,
            &stamp,
            mark.offset,
            mark.offset,
            segment.seed,
            end,
        );
        write_all_at(&*target, end, &close).map_err(|e| Error::io("write", path(to, &segment.name), e))?;
    }
    target
        .sync_data()
        .map_err(|e| Error::io("sync", path(to, &segment.name), e))
}

fn copy_bytes(
    from: &dyn StorageFile,
    target: &dyn StorageFile,
    end: u64,
    segment: &Segment,
    to: &dyn Storage,
) -> Result<()> {
    let mut buf = vec![0; 256 << 10];
    let mut pos = 0;
    while pos < end {
        let len = usize::try_from(end - pos).map_or(buf.len(), |left| left.min(buf.len()));
        let got = read_full_at(from, pos, &mut buf[..len]).map_err(|e| Error::io("read", segment.path(), e))?;
        if got == 0 {
            // Shorter than it was: the verification of the copy says so.
            break;
        }
        write_all_at(target, pos, &buf[..got]).map_err(|e| Error::io("write", path(to, &segment.name), e))?;
        pos += got as u64;
    }
    Ok(())
}

fn path(storage: &dyn Storage, name: &str) -> String {
    storage.root().join(name).display().to_string()
}
