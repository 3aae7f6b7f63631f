//! Puts the sums right behind harm, so that a fuzzer comes past them: a second writer of `wal/docs/format.md` and of the checkpoint's format,
//! which shares no code with the first.
//!
//! Only sums change. Lengths, versions, counters and everything else stay as the harm left them.

use std::collections::BTreeMap;

use twox_hash::XxHash3_64;
use wal::storage::sim::SimStorage;

/// Puts the sums of every file of a log or store right.
pub fn seal(disk: &SimStorage) {
    let mut files: BTreeMap<String, Vec<u8>> = disk
        .file_names()
        .into_iter()
        .map(|name| (name.clone(), disk.read_file(&name).unwrap_or_default()))
        .collect();
    for (name, file) in &mut files {
        if name == "consumers.list" {
            consumers_list(file);
        } else if name.ends_with(".kv") {
            checkpoint(file);
        } else if name.ends_with(".wal") {
            segment_frames(file);
        }
    }
    // What names the checksum of a frame names it as it is now: segments their predecessor's last, consumers the one below their position.
    let frame_crcs: Vec<(u64, Vec<u8>)> = files
        .iter()
        .filter(|(name, _)| name.ends_with(".wal"))
        .filter_map(|(_, file)| Some((u64_at(file, 32)?, file.clone())))
        .collect();
    let crc_of = |generation: Option<u64>, pos: Option<u64>| {
        let (_, file) = frame_crcs.iter().find(|(g, _)| Some(*g) == generation)?;
        file.get(usize::try_from(pos?).ok()?..)?.first_chunk::<4>().copied()
    };
    for (name, file) in &mut files {
        let slotted = if name == "log.meta" {
            Some((128, [(0, 0), (2048, 0), (4096, 1), (6144, 1)], None))
        } else if name.ends_with(".offset") {
            Some((512, [(0, 0), (2048, 0), (4096, 1), (6144, 1)], Some((56, 64, 72))))
        } else if name.ends_with(".wal") {
            Some((128, [(0, 0), (2048, 0), (0, 0), (2048, 0)], Some((56, 72, 80))))
        } else {
            None
        };
        if let Some((len, copies, link)) = slotted {
            for (at, seed) in copies {
                let Some(copy) = file.get_mut(at..at + len) else {
                    continue;
                };
                if let Some((generation, pos, crc)) = link
                    && let Some(now) = crc_of(u64_at(copy, generation), u64_at(copy, pos))
                {
                    put(copy, crc, &now);
                }
                let sum = crc32(seed, &copy[..len - 4]);
                put(copy, len - 4, &sum.to_le_bytes());
            }
        }
        disk.write_file(name, file);
    }
}

/// Puts the sums of the frame right that stands at the beginning of `bytes`, which is position `pos` of a segment. Returns its length; `None`
/// where no frame does.
pub fn frame(bytes: &mut [u8], log: &[u8], generation: u64, pos: u64) -> Option<usize> {
    let len = bytes
        .get(8..12)
        .map(|b| u32::from_le_bytes(b.try_into().expect("four")) as usize)?;
    if *bytes.get(4)? == 0 {
        return None;
    }
    if let Some(payload) = bytes.get(32..32 + len) {
        let digest = XxHash3_64::oneshot(payload);
        put(bytes, 24, &digest.to_le_bytes());
    }
    let place = crc32(0, &[log, &generation.to_le_bytes()].concat()) ^ (pos >> 3) as u32;
    let header = bytes.get(4..32)?;
    let sum = crc32(place, header);
    put(bytes, 0, &sum.to_le_bytes());
    Some((32 + len).next_multiple_of(8))
}

/// All frames of a segment, as far as their lengths lead.
fn segment_frames(file: &mut [u8]) {
    let (Some(log), Some(generation)) = (file.get(16..32).map(<[u8]>::to_vec), u64_at(file, 32)) else {
        return;
    };
    let mut pos = 4096;
    while let Some(rest) = file.get_mut(pos..) {
        let Some(len) = frame(rest, &log, generation, pos as u64) else {
            return;
        };
        pos += len;
    }
}

fn consumers_list(file: &mut [u8]) {
    if let Some(end) = file.len().checked_sub(4) {
        let sum = crc32(0, &file[..end]);
        put(file, end, &sum.to_le_bytes());
    }
}

/// The header's digest, which seeds the blocks' and the trailer's.
fn checkpoint(file: &mut [u8]) {
    let Some(header) = file.get_mut(..64) else { return };
    let head = XxHash3_64::oneshot(&header[..56]);
    put(header, 56, &head.to_le_bytes());
    let seed = |n: u64| head.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let Some(end) = file.len().checked_sub(64).filter(|end| *end >= 64) else {
        return;
    };
    let (blocks, trailer) = file.split_at_mut(end);
    if let Some(count) = u64_at(trailer, 8) {
        let sum = XxHash3_64::oneshot_with_seed(seed(count), &trailer[..56]);
        put(trailer, 56, &sum.to_le_bytes());
    }
    let mut pos = 64;
    for n in 0.. {
        let Some(block) = blocks.get_mut(pos..).filter(|block| block.len() >= 32) else {
            return;
        };
        let len = u32::from_le_bytes(block[8..12].try_into().expect("four")) as usize;
        if let Some(payload) = block.get(32..32 + len) {
            let sum = XxHash3_64::oneshot_with_seed(seed(n), payload);
            put(block, 24, &sum.to_le_bytes());
        }
        let sum = XxHash3_64::oneshot_with_seed(seed(n), &block[8..32]);
        put(block, 0, &sum.to_le_bytes());
        pos += 32 + len;
    }
}

fn crc32(initial: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(initial);
    hasher.update(bytes);
    hasher.finalize()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::seal;
    use crate::disks::{sound_log, sound_store};

    #[test]
    fn sound_files_have_the_sums_that_sealing_would_give_them() {
        for disk in [sound_log(false), sound_log(true), sound_store()] {
            for name in disk.file_names().iter().filter(|name| *name != "LOCK") {
                let sound = disk.read_file(name).expect("is there");
                seal(&disk);
                assert!(
                    disk.read_file(name).expect("is there") == sound,
                    "{name} was sealed otherwise"
                );
            }
        }
    }

    #[test]
    fn a_changed_frame_is_believed_once_sealed() {
        let disk = sound_log(true);
        let storage: std::sync::Arc<dyn wal::storage::Storage> = std::sync::Arc::new(disk.clone());
        let name = disk
            .file_names()
            .into_iter()
            .find(|name| name.ends_with(".wal"))
            .expect("has segments");
        let mut file = disk.read_file(&name).expect("is there");
        let at = file.windows(9).position(|w| w == [1; 9]).expect("the second record");
        file[at] = 77;
        disk.write_file(&name, &file);
        assert!(!wal::inspect::verify(&storage).expect("looks").damage.is_empty());
        seal(&disk);
        let log = crate::disks::log_options().open_storage(storage).expect("opens");
        assert_eq!(log.read(1).expect("reads"), [77, 1, 1, 1, 1, 1, 1, 1, 1]);
    }
}
