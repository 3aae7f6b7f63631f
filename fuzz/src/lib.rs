//! What the fuzz targets share: bytes taken apart, and disks that hold something to do harm to.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wal::storage::sim::SimStorage;

/// Takes an input apart, a piece at a time. Behind its end there are zeros.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(b, rest)| (*b, rest));
        self.0 = rest;
        first
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (piece, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        piece
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub fn log_options() -> wal::Options {
    wal::Options::new().segment_bytes(1024).record_bytes_max(1 << 20).mark_delay(Duration::from_secs(3600))
}

pub fn store_options() -> kv::Options {
    kv::Options::new().log(log_options()).checkpoint_bytes(0).history(kv::History::Everything)
}

/// A sound log of several segments, with a consumer and, like one that was killed, an end that nobody closed. Made once.
pub fn sound_log() -> SimStorage {
    static MADE: OnceLock<SimStorage> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let disk = SimStorage::new();
        let log = log_options().open_storage(Arc::new(disk.clone())).expect("a new log opens");
        for n in 0..20u8 {
            log.append(vec![n; usize::from(n) * 9]).expect("appends");
        }
        log.append_batch(&[vec![1; 10], Vec::new(), vec![3; 30]]).expect("appends");
        let mut consumer = log.consumer("c").open().expect("opens");
        consumer.poll(9).expect("polls");
        consumer.commit().expect("commits");
        log.append(b"the end").expect("appends");
        disk.process_kill();
        disk
    });
    made.fork()
}

/// The records of [`sound_log`].
pub fn sound_records() -> Vec<Vec<u8>> {
    let mut records: Vec<_> = (0..20u8).map(|n| vec![n; usize::from(n) * 9]).collect();
    records.extend([vec![1; 10], Vec::new(), vec![3; 30], b"the end".to_vec()]);
    records
}

/// A sound store with two checkpoints and its whole log. Made once.
pub fn sound_store() -> SimStorage {
    static MADE: OnceLock<SimStorage> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let disk = SimStorage::new();
        let store = store_options().open_storage(Arc::new(disk.clone())).expect("a new store opens");
        for n in 0..30u8 {
            store.put([n % 17], vec![n; usize::from(n)]).expect("puts");
            if n == 10 || n == 20 {
                store.checkpoint().expect("makes a checkpoint");
            }
        }
        store.delete([3]).expect("deletes");
        store.close().expect("closes");
        disk
    });
    made.fork()
}

/// Does harm to a disk as `input` says: overwrites, flips, cuts, exchanges, copies, removes, or puts in place a file of any bytes.
pub fn harm(disk: &SimStorage, input: &mut Input<'_>) {
    for _ in 0..8 {
        if input.is_empty() {
            return;
        }
        let names = disk.file_names();
        let Some(name) = names.get(usize::from(input.byte()) % names.len().max(1)).cloned() else { return };
        let other = &names[usize::from(input.byte()) % names.len()];
        let mut content = disk.read_file(&name).unwrap_or_default();
        match input.byte() % 7 {
            0 => {
                let pos = usize::from(input.u16());
                let len = usize::from(input.byte());
                for (n, byte) in input.bytes(len).iter().enumerate() {
                    if let Some(there) = content.get_mut(pos + n) {
                        *there = *byte;
                    }
                }
            }
            1 => {
                let pos = usize::from(input.u16());
                if let Some(there) = content.get_mut(pos) {
                    *there ^= 1 << (input.byte() % 8);
                }
            }
            2 => content.truncate(usize::from(input.u16())),
            3 => {
                let theirs = disk.read_file(other).unwrap_or_default();
                disk.write_file(other, &content);
                content = theirs;
            }
            4 => {
                disk.remove_file(&name);
                continue;
            }
            5 => {
                // A piece of one file at another place: sound bytes where they do not belong.
                let theirs = disk.read_file(other).unwrap_or_default();
                let (from, to) = (usize::from(input.u16()), usize::from(input.u16()));
                let piece = theirs.get(from..theirs.len().min(from + usize::from(input.u16()))).unwrap_or_default();
                if let Some(place) = content.get_mut(to..to + piece.len()) {
                    place.copy_from_slice(piece);
                }
            }
            _ => {
                let len = usize::from(input.u16());
                content = input.bytes(len).to_vec();
            }
        }
        disk.write_file(&name, &content);
    }
}
