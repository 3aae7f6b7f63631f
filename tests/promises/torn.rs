//! What a crash leaves half-done is cut off without help.

use wal::storage::sim::SimStorage;
use wal::{FsyncPolicy, TornEvidence};

use super::{open, open_with, read_all, segments, verify};

/// Durable records, then some that were only written, then a kill. Returns where the durable ones end in the file.
fn with_a_tail() -> (SimStorage, Vec<Vec<u8>>, usize, usize) {
    let disk = SimStorage::new();
    let log = open_with(&disk, FsyncPolicy::Os);
    let mut records = Vec::new();
    for n in 0..4u8 {
        let record = vec![n + 1; 90];
        log.append(&record).unwrap();
        records.push(record);
    }
    log.sync().unwrap();
    let end = |disk: &SimStorage| {
        disk.read_file(&segments(disk)[0])
            .unwrap()
            .iter()
            .rposition(|b| *b != 0)
            .unwrap()
            + 1
    };
    let durable = end(&disk).next_multiple_of(8);
    for n in 4..7u8 {
        let record = vec![n + 1; 150];
        log.append(&record).unwrap();
        records.push(record);
    }
    disk.process_kill();
    drop(log);
    let written = end(&disk).next_multiple_of(8);
    (disk, records, durable, written)
}

fn check(disk: &SimStorage, records: &[Vec<u8>], what: &str) {
    let before = disk.fingerprint();
    assert!(verify(disk).is_clean(), "{what}: a torn tail is no damage");
    assert_eq!(disk.fingerprint(), before);
    let log = open(disk);
    let kept = log.end() as usize;
    assert!((4..=7).contains(&kept), "{what}: {kept} kept");
    assert!(read_all(&log, 0).unwrap() == records[..kept], "{what}");
    assert_eq!(log.append(b"on").unwrap(), kept as u64, "{what}");
    log.close().unwrap();
    let log = open(disk);
    assert_eq!(log.end() as usize, kept + 1, "{what}");
    assert_eq!(log.read(kept as u64).unwrap(), b"on", "{what}");
    assert!(read_all(&log, 0).unwrap()[..kept] == records[..kept], "{what}");
    log.close().unwrap();
    assert!(verify(disk).is_clean(), "{what}");
}

#[test]
fn l4_the_unsynced_tail_cut_or_zeroed_at_every_byte_opens_with_whole_records() {
    let (disk, records, durable, written) = with_a_tail();
    let name = segments(&disk)[0].clone();
    let whole = disk.read_file(&name).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for at in durable..=written {
        let cut = disk.fork();
        cut.truncate_file(&name, at);
        seen.insert(open(&cut.fork()).end());
        check(&cut, &records, &format!("cut at {at}"));
        let zeroed = disk.fork();
        zeroed.truncate_file(&name, at);
        zeroed.truncate_file(&name, whole.len());
        check(&zeroed, &records, &format!("zeroed from {at}"));
        // Only the byte itself: a hole inside.
        let hole = disk.fork();
        let mut bytes = whole.clone();
        bytes[at.min(whole.len() - 1)] = 0;
        hole.write_file(&name, &bytes);
        check(&hole, &records, &format!("hole at {at}"));
    }
    assert_eq!(seen, (4..=7).collect());
}

#[test]
fn l3_bytes_behind_a_cut_never_come_back() {
    // A record torn in the middle, with a whole one behind it that was written later.
    let (disk, records, durable, _) = with_a_tail();
    let name = segments(&disk)[0].clone();
    let mut bytes = disk.read_file(&name).unwrap();
    bytes[durable + 40] ^= 0xff;
    disk.write_file(&name, &bytes);
    let log = open(&disk);
    assert_eq!(log.end(), 4);
    let cut = log.report().cut.clone().unwrap();
    assert_eq!((cut.pos as usize, cut.offset), (durable, 4));
    assert_eq!(cut.evidence, TornEvidence::LaterFrame);
    assert!(cut.file.contains(&name));
    // The bytes stay as evidence; new records have the offsets, and the old ones never show.
    for n in 0..3u8 {
        assert_eq!(log.append([n + 200; 150]).unwrap(), u64::from(n) + 4);
    }
    drop(log);
    for _ in 0..2 {
        let log = open(&disk);
        let read = read_all(&log, 0).unwrap();
        assert!(read[..4] == records[..4]);
        assert_eq!(read[4..], [vec![200; 150], vec![201; 150], vec![202; 150]]);
    }
}
