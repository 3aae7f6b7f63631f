//! Whatever bytes there are: no panic, no hang, no memory beyond a record.

use std::sync::Arc;

use proptest::prelude::*;
use wal::inspect::{Survivor, Survivors, decode_frame, encode_frame, verify};
use wal::storage::sim::SimStorage;

use super::{open, options, read_all, segments, try_open};

/// A small log to do harm to.
fn victim() -> SimStorage {
    let disk = SimStorage::new();
    let log = open(&disk);
    for n in 0..60u8 {
        log.append(vec![n; usize::from(n) * 5]).unwrap();
    }
    log.append_batch(&[b"a", b"b"]).unwrap();
    drop(log.consumer("c").open().unwrap());
    log.close().unwrap();
    disk
}

/// Harm: overwrite, cut, exchange, remove.
#[derive(Debug, Clone)]
enum Harm {
    Overwrite { file: usize, pos: usize, bytes: Vec<u8> },
    Cut { file: usize, len: usize },
    Exchange { a: usize, b: usize },
    Remove { file: usize },
}

fn harm() -> impl Strategy<Value = Harm> {
    let bytes = proptest::collection::vec(any::<u8>(), 1..40);
    prop_oneof![
        (0..8usize, 0..9000usize, bytes).prop_map(|(file, pos, bytes)| Harm::Overwrite { file, pos, bytes }),
        (0..8usize, 0..9000usize).prop_map(|(file, len)| Harm::Cut { file, len }),
        (0..8usize, 0..8usize).prop_map(|(a, b)| Harm::Exchange { a, b }),
        (0..8usize).prop_map(|file| Harm::Remove { file }),
    ]
}

fn hurt(disk: &SimStorage, harm: &Harm) {
    let names = disk.file_names();
    if names.is_empty() {
        return;
    }
    let name = |n: &usize| names[n % names.len()].clone();
    match harm {
        Harm::Overwrite { file, pos, bytes } => {
            let name = name(file);
            let mut content = disk.read_file(&name).unwrap();
            for (n, byte) in bytes.iter().enumerate() {
                if let Some(there) = content.get_mut(pos + n) {
                    *there = *byte;
                }
            }
            disk.write_file(&name, &content);
        }
        Harm::Cut { file, len } => {
            disk.truncate_file(&name(file), *len);
        }
        Harm::Exchange { a, b } => {
            let (a, b) = (name(a), name(b));
            let (of_a, of_b) = (disk.read_file(&a).unwrap(), disk.read_file(&b).unwrap());
            disk.write_file(&a, &of_b);
            disk.write_file(&b, &of_a);
        }
        Harm::Remove { file } => {
            disk.remove_file(&name(file));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn l7_no_harm_makes_it_panic_or_invent_a_record(harms in proptest::collection::vec(harm(), 1..4)) {
        let disk = victim();
        let whole = read_all(&open(&disk.fork()), 0).unwrap();
        for harm in &harms {
            hurt(&disk, harm);
        }
        let storage = Arc::new(disk.clone()) as Arc<dyn wal::storage::Storage>;
        let before = disk.fingerprint();
        let _ = verify(&storage);
        if let Ok(mut survivors) = Survivors::open(&storage) {
            while let Ok(Some(survivor)) = survivors.next() {
                if let Survivor::Record(record) = survivor {
                    prop_assert_eq!(record.bytes, &whole[record.offset as usize][..]);
                }
            }
        }
        let _ = options().open_read_only_storage(storage);
        prop_assert_eq!(disk.fingerprint(), before);
        if let Ok(log) = try_open(&disk) {
            if let Ok(records) = read_all(&log, log.start()) {
                let start = log.start() as usize;
                prop_assert!(records.len() <= whole.len() - start.min(whole.len()));
                prop_assert_eq!(&records[..], &whole[start..start + records.len()]);
            }
            let _ = log.append(b"on");
        }
    }

    #[test]
    fn l7_the_decoder_takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), pos in 0..1000u64) {
        if let Ok(frame) = decode_frame(&bytes, &[0; 16], 1, pos * 8) {
            prop_assert!(frame.len <= bytes.len() as u64);
        }
    }

    #[test]
    fn l5_what_is_encoded_decodes_and_any_change_is_seen(
        records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..6),
        base in 0..u64::MAX / 2,
        lag in 0..100u64,
        change in any::<(usize, u8)>(),
    ) {
        let (log, generation, pos) = ([9; 16], 5, 4096);
        let bytes = encode_frame(&records, base, base.saturating_sub(lag), &log, generation, pos).unwrap();
        let frame = decode_frame(&bytes, &log, generation, pos).unwrap();
        prop_assert!(frame.records().eq(records.iter().map(|r| &r[..])));
        prop_assert_eq!((frame.base_offset, frame.durable_end), (base, base.saturating_sub(lag)));
        let mut changed = bytes.clone();
        let covered = 32 + frame.payload.len();
        changed[change.0 % covered] ^= change.1 | 1;
        prop_assert!(decode_frame(&changed, &log, generation, pos).is_err());
        prop_assert!(decode_frame(&bytes, &log, generation, pos + 8).is_err());
        prop_assert!(decode_frame(&bytes, &log, generation + 1, pos).is_err());
        prop_assert!(decode_frame(&bytes, &[8; 16], generation, pos).is_err());
    }
}

#[test]
fn l7_a_file_of_noise_and_one_of_sound_nonsense_end_quickly() {
    let disk = victim();
    let name = segments(&disk)[1].clone();
    let mut noise = 0x2545_f491_4f6c_dd1du64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise as u8
    })
    .take(1 << 20)
    .collect();
    disk.write_file(&name, &bytes);
    assert!(try_open(&disk).is_err());
    let found = verify(&(Arc::new(disk) as _)).unwrap();
    assert!(!found.is_clean());
}

/// A header with a right checksum may say that the segment before it is longer than any file. Where that segment has all its records the log
/// opens, and what measures or searches the segment stays inside the file.
#[test]
fn l7_an_end_far_behind_the_file_s_is_not_searched_up_to() {
    let disk = victim();
    let sound = read_all(&open(&disk), 0).unwrap();
    let names = segments(&disk);
    let mut header = disk.read_file(&names[1]).unwrap();
    for copy in [0, 2048] {
        header[copy + 64..copy + 72].copy_from_slice(&(1u64 << 62).to_le_bytes());
        let sum = crc32fast::hash(&header[copy..copy + 124]);
        header[copy + 124..copy + 128].copy_from_slice(&sum.to_le_bytes());
    }
    disk.write_file(&names[1], &header);
    // One frame behind the last record is damaged too, so that there is something to search for.
    let mut first = disk.read_file(&names[0]).unwrap();
    let end = first.len();
    first[end - 16..].fill(0xee);
    disk.write_file(&names[0], &first);

    let report = verify(&(Arc::new(disk.clone()) as _)).unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    assert!(!report.notes.is_empty(), "the damage is not told");
    for segment in &report.segments {
        assert!(segment.end_pos <= segment.file_bytes, "{segment:?}");
    }
    let log = open(&disk);
    assert!(!log.report().notes.is_empty());
    assert_eq!(read_all(&log, 0).unwrap(), sound);
    let copy = SimStorage::new();
    log.backup_to(&(Arc::new(copy.clone()) as _)).unwrap();
    assert_eq!(read_all(&open(&copy), 0).unwrap(), sound);
}

/// The meta file names the log's first segment by generation and by offset. They must agree: a start behind the end would be a log that no
/// reader can enter.
#[test]
fn l7_a_start_that_is_not_the_first_segment_s_is_damage() {
    for start in [1u64, 1 << 24, u64::MAX] {
        let disk = victim();
        let mut meta = disk.read_file("log.meta").unwrap();
        for (copy, seed) in [(0, 0), (2048, 0), (4096, 1), (6144, 1)] {
            meta[copy + 56..copy + 64].copy_from_slice(&start.to_le_bytes());
            let mut sum = crc32fast::Hasher::new_with_initial(seed);
            sum.update(&meta[copy..copy + 124]);
            meta[copy + 124..copy + 128].copy_from_slice(&sum.finalize().to_le_bytes());
        }
        disk.write_file("log.meta", &meta);
        let before = disk.fingerprint();
        assert!(matches!(try_open(&disk), Err(wal::Error::Corrupt(_))), "{start}");
        let storage: Arc<dyn wal::storage::Storage> = Arc::new(disk.clone());
        assert!(options().open_read_only_storage(Arc::clone(&storage)).is_err());
        assert!(!verify(&storage).unwrap().is_clean());
        assert_eq!(disk.fingerprint(), before);
    }
}
