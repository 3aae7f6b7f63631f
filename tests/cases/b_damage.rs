//! B: damage in the middle.

use std::io::ErrorKind;

use wal::Error;
use wal::inspect::{Survivor, Survivors};
use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};

use super::*;

/// Five sealed segments and one that is written, eight records of 500 bytes in most of them.
fn six_segments(disk: &SimStorage) -> Vec<Vec<u8>> {
    let records = marks(0..40, 500);
    filled(disk, &records).close().unwrap();
    assert_eq!(segments(disk).len(), 6);
    records
}

/// Records that are whole, with their offsets; and offsets that are lost.
type Salvaged = (Vec<(u64, Vec<u8>)>, Vec<Range<u64>>);

fn salvaged(disk: &SimStorage) -> Salvaged {
    let mut survivors = Survivors::open(&shared(disk)).unwrap();
    let (mut records, mut lost) = (Vec::new(), Vec::new());
    while let Some(survivor) = survivors.next().unwrap() {
        match survivor {
            Survivor::Record(record) => records.push((record.offset, record.bytes.to_vec())),
            Survivor::Lost(finding) => lost.push(finding.lost),
        }
    }
    (records, lost)
}

#[test]
fn b01_a_flipped_bit_in_the_middle_costs_nothing_behind_it() {
    let records = marks(0..10, 100);
    let disk = SimStorage::new();
    let log = filled(&disk, &records);
    let killed = disk.fork();
    log.close().unwrap();
    for disk in [disk, killed] {
        let (file, four) = find(&disk, &records[4]);
        for pos in find(&disk, &records[3]).1.end..find(&disk, &records[5]).1.start {
            for bit in 0..8 {
                let disk = disk.fork();
                disk.flip_bit(&file, pos, bit);
                match judged(&disk) {
                    Ok(read) => assert!(read == records, "byte {pos} bit {bit}: records are gone without a word"),
                    Err(Error::Corrupt(c)) => {
                        assert!(
                            (3..=5).contains(&c.offset) && c.file.ends_with(&file),
                            "byte {pos}: {c}"
                        );
                        // All that is whole can be had, and each other offset is named.
                        let (whole, lost) = salvaged(&disk);
                        assert_eq!(whole.len(), 9, "byte {pos} bit {bit}: lost {lost:?}");
                        assert!(whole.iter().all(|(offset, bytes)| records[*offset as usize] == *bytes));
                        assert_eq!(lost.len(), 1);
                    }
                    Err(e) => panic!("byte {pos} bit {bit}: {e}"),
                }
            }
        }
        assert!(four.len() == 100);
    }
}

#[test]
fn b02_a_segment_that_ends_before_the_next_one_begins() {
    let disk = SimStorage::new();
    let records = six_segments(&disk);
    let victim = segments(&disk)[1].clone();
    let content = disk.read_file(&victim).unwrap();
    let inside = |record: &Vec<u8>| find(&disk, record).0 == victim;
    let last = records.iter().rposition(inside).unwrap();
    let at = find(&disk, &records[last]).1;
    type Harm<'a> = (&'a str, &'a dyn Fn(&SimStorage));
    let harm: [Harm; 6] = [
        ("a byte less", &|d| assert!(d.truncate_file(&victim, content.len() - 1))),
        ("a record less", &|d| assert!(d.truncate_file(&victim, at.start - 32))),
        ("only the header", &|d| assert!(d.truncate_file(&victim, 4096))),
        ("nothing", &|d| assert!(d.truncate_file(&victim, 0))),
        ("a flipped bit", &|d| assert!(d.flip_bit(&victim, at.start + 9, 0))),
        ("zeros", &|d| zero(d, &victim, at.start - 32..at.end)),
    ];
    for (what, harm) in harm {
        let disk = disk.fork();
        harm(&disk);
        match judged(&disk) {
            Err(Error::Corrupt(c)) => {
                assert!(c.file.ends_with(&victim), "{what}: {c}");
                // Opening alone tells, without reading the records, that some are gone.
                let inside = ["a flipped bit", "zeros"].contains(&what);
                assert!(try_open(&disk).is_err() || inside, "{what}");
            }
            Err(e) => panic!("{what}: {e}"),
            // The seal lost its last byte, and no record anything.
            Ok(read) => {
                assert!(read == records, "{what}: records are gone without a word");
                assert!(!verify(&disk).notes.is_empty(), "{what}: no word");
                continue;
            }
        }
        let (whole, lost) = salvaged(&disk);
        assert!(!lost.is_empty(), "{what}");
        assert!(
            whole.iter().all(|(offset, bytes)| records[*offset as usize] == *bytes),
            "{what}"
        );
        assert!(
            whole.iter().any(|(offset, _)| *offset == 39),
            "{what}: what comes after is not given up"
        );
    }
}

#[test]
fn b03_nothing_repairs_by_itself() {
    let disk = SimStorage::new();
    let records = six_segments(&disk);
    let victim = segments(&disk)[2].clone();
    let hit = records.iter().position(|r| find(&disk, r).0 == victim).unwrap() + 3;
    disk.flip_bit(&victim, find(&disk, &records[hit]).1.start + 100, 5);
    let before = fingerprint(&disk);
    for _ in 0..3 {
        assert!(judged(&disk).is_err());
        // Opened for good, not on a copy, read as far as it goes, and closed.
        if let Ok(log) = try_open(&disk) {
            assert!(log.read(hit as u64).unwrap_err().is_corruption());
            assert_eq!(log.read(39).unwrap(), records[39]);
            log.close().unwrap();
        }
        assert_eq!(fingerprint(&disk), before);
    }
    // Salvage goes to a new place, and says what is lost.
    let (whole, lost) = salvaged(&disk);
    assert!(lost.len() == 1 && lost[0].clone().eq([hit as u64]));
    let elsewhere = SimStorage::new();
    let rescued: Vec<_> = whole.into_iter().map(|(_, bytes)| bytes).collect();
    filled(&elsewhere, &rescued).close().unwrap();
    assert_eq!(judged(&elsewhere).unwrap().len(), 39);
    assert_eq!(fingerprint(&disk), before);
}

#[test]
fn b04_what_cannot_be_read_is_not_taken_for_damage_and_damage_is_not_removed() {
    let disk = SimStorage::new();
    let records = six_segments(&disk);
    let before = fingerprint(&disk);
    for kind in [ErrorKind::Other, ErrorKind::OutOfMemory, ErrorKind::PermissionDenied] {
        for op in [OpKind::Read, OpKind::Open, OpKind::Len, OpKind::List] {
            for nth in 1.. {
                let disk = disk.fork();
                disk.inject(Fault::new(op, FaultKind::Error(kind)).nth(nth));
                let outcome = try_open(&disk).and_then(|log| {
                    let read = try_read(log.reader(log.start())?);
                    kill(&disk, log);
                    read
                });
                let hit = disk.faults_hit() > 0;
                match outcome {
                    Err(Error::Io { .. }) => assert!(hit),
                    Err(e) => panic!("{op:?} {nth} {kind:?}: {e}"),
                    Ok(read) => assert!(read == records, "{op:?} {nth} {kind:?}: {} records", read.len()),
                }
                disk.clear_faults();
                assert_eq!(fingerprint(&disk), before, "{op:?} {nth}");
                assert!(judged(&disk).unwrap() == records);
                if !hit {
                    break;
                }
            }
        }
    }
    // A store over a damaged log: no checkpoint makes its damaged segment superfluous.
    let disk = SimStorage::new();
    let store = kv::Options::new()
        .log(options())
        .checkpoint_bytes(0)
        .open_storage(shared(&disk))
        .unwrap();
    for record in &records {
        store.put(record, record).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let (file, at) = find(&disk, &records[9]);
    disk.flip_bit(&file, at.start + 20, 1);
    let before = fingerprint(&disk);
    for _ in 0..3 {
        let error = try_open_store(&disk).unwrap_err();
        assert!(matches!(&error, kv::Error::Log(e) if e.is_corruption()), "{error}");
        assert_eq!(fingerprint(&disk), before);
    }
}

#[test]
fn b06_lengths_that_lie() {
    let records = marks(0..4, 100);
    let disk = SimStorage::new();
    kill(&disk, filled(&disk, &records));
    let lies: [u64; 7] = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 63, u64::MAX];
    for record in &records {
        let (file, at) = find(&disk, record);
        for start in at.start - 32..at.start {
            for lie in lies {
                let short = u32::try_from(lie).unwrap_or(u32::MAX);
                let spellings = [
                    lie.to_le_bytes().to_vec(),
                    lie.to_be_bytes().to_vec(),
                    short.to_le_bytes().to_vec(),
                    short.to_be_bytes().to_vec(),
                ];
                for bytes in spellings {
                    let disk = disk.fork();
                    overwrite(&disk, &file, start..start + bytes.len(), &bytes);
                    match judged(&disk) {
                        Ok(read) => assert!(records.starts_with(&read) && read.len() >= 3),
                        Err(Error::Corrupt(_)) => {}
                        Err(e) => panic!("{lie:x} at {start}: {e}"),
                    }
                }
            }
        }
    }
}

#[test]
fn b09_bytes_that_are_no_text_and_files_that_are_no_files_of_ours() {
    // Keys and values are bytes, in order of their bytes.
    let disk = SimStorage::new();
    let store = open_store(&disk);
    let keys: [&[u8]; 5] = [b"", &[0], &[0x7f, 0xff], &[0xff], &[0xff, 0xfe, 0x00, 0x80]];
    for key in keys.iter().rev() {
        store.put(key, key).unwrap();
    }
    store.checkpoint().unwrap();
    store.put([0xff, 0xff], []).unwrap();
    kill(&disk, store);
    let store = open_store(&disk);
    let read: Vec<Vec<u8>> = store.snapshot().iter().map(|(key, _)| key.to_vec()).collect();
    assert!(read[..5].iter().zip(keys).all(|(a, b)| a == b) && read[5] == [0xff, 0xff]);
    kill(&disk, store);

    // A whole record whose inside makes no sense.
    let disk = SimStorage::new();
    let store = open_store(&disk);
    store.put("a", "b").unwrap();
    store.close().unwrap();
    drop(store);
    let log = open(&disk);
    let whole = log.read(0).unwrap();
    log.append(&whole[..whole.len() - 1]).unwrap();
    log.close().unwrap();
    drop(log);
    let error = try_open_store(&disk).unwrap_err();
    assert!(matches!(error, kv::Error::NotAWrite { offset: 1, .. }), "{error}");

    // Noise in place of each kind of file.
    let disk = SimStorage::new();
    let store = open_store(&disk);
    let mut feed = store.consumer("feed").open().unwrap();
    for n in 0..9u64 {
        store.put(n.to_le_bytes(), mark(n, 700)).unwrap();
    }
    store.checkpoint().unwrap();
    while feed.next().unwrap().is_some() {}
    feed.commit().unwrap();
    drop(feed);
    kill(&disk, store);
    for file in disk.file_names() {
        for seed in 0..20u32 {
            let disk = disk.fork();
            let noise: Vec<u8> = (0..4096u32)
                .map(|n| ((n ^ seed << 12).wrapping_mul(2_654_435_761) >> 19) as u8)
                .collect();
            disk.write_file(&file, &noise);
            let _ = judged(&disk);
            if let Ok(store) = try_open_store(&disk) {
                assert_eq!(store.len(), 9, "{file} {seed}");
            }
            kv::verify(&shared(&disk)).map(|v| v.is_clean()).unwrap_or_default();
        }
    }
}

#[test]
fn b10_nothing_of_an_abandoned_record_gets_into_the_next() {
    let disk = SimStorage::new();
    let log = try_open_manual(&disk).unwrap();
    let mut expected = vec![mark(0, 100)];
    log.append(&expected[0]).unwrap();
    log.sync().unwrap();
    log.append(mark(1, 100 << 10)).unwrap();
    kill(&disk, log);
    let (file, at) = find(&disk, &mark(1, 100 << 10));
    zero(&disk, &file, at.start + 50_000..at.end);
    // What follows the tear is in the next segments, and nothing else is.
    let log = open(&disk);
    for record in marks(2..20, 900) {
        log.append(&record).unwrap();
        expected.push(record);
    }
    kill(&disk, log);
    assert!(judged(&disk).unwrap() == expected);
    // Any one record is lost: those before and behind it are read as they were written.
    for n in 0..expected.len() {
        let disk = disk.fork();
        let (file, at) = find(&disk, &expected[n]);
        zero(&disk, &file, at.start - 32..at.end);
        let (whole, _) = salvaged(&disk);
        assert!(whole.iter().all(|(offset, bytes)| expected[*offset as usize] == *bytes));
        assert!(whole.len() >= expected.len() - 2, "{n}: {}", whole.len());
    }
}
