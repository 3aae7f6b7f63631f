//! Writing a checkpoint.

use wal::storage::{Storage, StorageFile, create_afresh, write_all_at};

use super::format::{self, BlockBuilder, Header, Totals};
use super::path;
use crate::error::{Error, Result};
use crate::map::Map;

/// Bytes after which what was written is synced, so that the sync at the end, and with it every sync of the log that has to
/// wait behind it, is short.
const SYNC_BYTES: u64 = 8 << 20;

/// Writes the checkpoint of `map`, durable under its name when this returns. Returns what it holds and the file's length.
///
/// The caller has made sure that the log is durable up to `header.applied`.
pub(crate) fn write(storage: &dyn Storage, header: &Header, map: &Map) -> Result<(Totals, u64)> {
    let name = format::file_name(header.applied);
    let tmp = format!("{name}.tmp");
    let written = create(storage, &tmp, header, map).and_then(|done| {
        storage
            .rename(&tmp, &name)
            .map_err(|e| Error::io("rename", path(storage, &tmp), e))?;
        Ok(done)
    });
    match written {
        Ok(done) => {
            storage
                .sync_dir()
                .map_err(|e| Error::io("sync the directory of", path(storage, &name), e))?;
            Ok(done)
        }
        Err(e) => {
            // Gives the space back; the one before stays in force.
            let _ = storage.remove(&tmp);
            Err(e)
        }
    }
}

fn create(storage: &dyn Storage, tmp: &str, header: &Header, map: &Map) -> Result<(Totals, u64)> {
    let failed = |op: &'static str| move |e| Error::io(op, path(storage, tmp), e);
    let mut out = Output {
        file: &*create_afresh(storage, tmp).map_err(failed("create"))?,
        pos: 0,
        synced: 0,
    };
    out.write(&header.encode()).map_err(failed("write"))?;
    let mut totals = Totals::default();
    let mut block = BlockBuilder::default();
    for (key, value) in map.iter() {
        block.add(key, value);
        totals.entries += 1;
        totals.bytes += (key.len() + value.len()) as u64;
        if block.is_full() {
            out.write(block.finish(header, totals.blocks))
                .map_err(failed("write"))?;
            block.clear();
            totals.blocks += 1;
        }
    }
    if !block.is_empty() {
        out.write(block.finish(header, totals.blocks))
            .map_err(failed("write"))?;
        totals.blocks += 1;
    }
    let len = out.pos + format::TRAILER_LEN as u64;
    out.write(&format::encode_trailer(header, &totals, len))
        .map_err(failed("write"))?;
    out.file.sync_data().map_err(failed("sync"))?;
    Ok((totals, len))
}

struct Output<'a> {
    file: &'a dyn StorageFile,
    pos: u64,
    synced: u64,
}

impl Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        write_all_at(self.file, self.pos, bytes)?;
        self.pos += bytes.len() as u64;
        if self.pos - self.synced >= SYNC_BYTES {
            self.file.sync_data()?;
            self.synced = self.pos;
        }
        Ok(())
    }
}
