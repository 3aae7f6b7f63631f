//! Reading a checkpoint.

use wal::storage::{Access, Storage, StorageFile, read_full_at};

use super::format::{self, BLOCK_HEADER_LEN, BlockHeader, FormatError, HEADER_LEN, Header, TRAILER_LEN};
use super::path;
use crate::error::{Error, Result};
use crate::map::{Builder, Map};

/// Reads a checkpoint whole, checking every byte. Damage comes as words, for the caller to fall back; errors of the disk as errors.
///
/// Memory is the map and one block.
pub(crate) fn load(storage: &dyn Storage, name: &str) -> Result<Result<(Header, Map), FormatError>> {
    let file = storage
        .open(name, Access::Read)
        .map_err(|e| Error::io("open", path(storage, name), e))?;
    read(&*file).map_err(|e| Error::io("read", path(storage, name), e))
}

fn read(file: &dyn StorageFile) -> std::io::Result<Result<(Header, Map), FormatError>> {
    let len = file.len()?;
    let mut buf = vec![0; HEADER_LEN];
    let got = read_full_at(file, 0, &mut buf)?;
    let header = match Header::decode(&buf[..got]) {
        Ok(header) => header,
        Err(e) => return Ok(Err(e)),
    };
    let Some(end) = len
        .checked_sub(TRAILER_LEN as u64)
        .filter(|end| *end >= HEADER_LEN as u64)
    else {
        return Ok(Err(FormatError::Damaged("it has no end")));
    };
    let got = read_full_at(file, end, &mut buf)?;
    let totals = match format::decode_trailer(&buf[..got], &header, len) {
        Ok(totals) => totals,
        Err(e) => return Ok(Err(e)),
    };
    let mut builder = Builder::new();
    let mut pos = HEADER_LEN as u64;
    for n in 0..totals.blocks {
        buf.resize(BLOCK_HEADER_LEN, 0);
        let got = read_full_at(file, pos, &mut buf)?;
        pos += BLOCK_HEADER_LEN as u64;
        let block = match BlockHeader::decode(&buf[..got], &header, n, end.saturating_sub(pos)) {
            Ok(block) => block,
            Err(e) => return Ok(Err(e)),
        };
        buf.resize(block.payload_len, 0);
        let got = read_full_at(file, pos, &mut buf)?;
        pos += block.payload_len as u64;
        let entries = match block.entries(&buf[..got]) {
            Ok(entries) => entries,
            Err(e) => return Ok(Err(e)),
        };
        for (key, value) in entries {
            if !builder.push(key, value) {
                return Ok(Err(FormatError::Damaged("its keys are out of order")));
            }
        }
    }
    let map = builder.finish();
    if pos != end || map.len() as u64 != totals.entries || map.bytes() != totals.bytes {
        return Ok(Err(FormatError::Damaged("it does not hold what its end says")));
    }
    Ok(Ok((header, map)))
}
