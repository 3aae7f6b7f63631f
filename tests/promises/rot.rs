//! Damage to what was promised: seen, placed, and never taken for a torn write.

use std::sync::Arc;

use wal::inspect::{Survivor, Survivors};
use wal::storage::sim::SimStorage;
use wal::{Error, Options, Wal};

use super::{open, options, read_all, segments, try_open, verify};

/// Three segments, closed in order, with a batch and a consumer.
fn three_segments() -> (SimStorage, Vec<Vec<u8>>) {
    let disk = SimStorage::new();
    let log = options()
        .segment_bytes(1024)
        .open_storage(Arc::new(disk.clone()))
        .unwrap();
    let mut records = Vec::new();
    for n in 0..3u8 {
        for record in [vec![n; 300], format!("text {n}").into_bytes(), Vec::new()] {
            log.append(&record).unwrap();
            records.push(record);
        }
        let batch = vec![vec![n + 100; 40], vec![n + 200; 333]];
        log.append_batch(&batch).unwrap();
        records.extend(batch);
        if n < 2 {
            log.rotate().unwrap();
        }
    }
    let mut consumer = log.consumer("c").open().unwrap();
    consumer.poll(7).unwrap();
    consumer.commit().unwrap();
    drop(consumer);
    log.close().unwrap();
    assert_eq!(segments(&disk).len(), 3);
    (disk, records)
}

fn consumer_at(log: &Wal) -> wal::Result<u64> {
    Ok(log.consumer("c").open_existing()?.committed())
}

/// What a reader of everything meets: all of it as it was, or an error with a place.
enum Outcome {
    Harmless,
    Reported(String, u64),
}

fn outcome(disk: &SimStorage, records: &[Vec<u8>], what: &str) -> Outcome {
    let place = |e: Error| match e {
        Error::Corrupt(c) => Outcome::Reported(c.file, c.pos),
        Error::UnsupportedVersion { file, .. } => Outcome::Reported(file, 0),
        Error::ConsumerDamaged { .. } | Error::ConsumerDiverged { .. } => Outcome::Reported("consumer".to_owned(), 0),
        other => panic!("{what}: {other}"),
    };
    let log = match try_open(disk) {
        Ok(log) => log,
        Err(e) => return place(e),
    };
    assert_eq!(
        log.durable_end(),
        records.len() as u64,
        "{what}: a shorter log, and no word"
    );
    match read_all(&log, 0) {
        Ok(read) => assert!(read == records, "{what}: other records"),
        Err(e) => return place(e),
    }
    match consumer_at(&log) {
        Ok(7) => Outcome::Harmless,
        Ok(other) => panic!("{what}: the consumer was moved to {other}"),
        Err(e) => place(e),
    }
}

#[test]
fn l5_a_flipped_bit_in_every_byte_is_placed_or_changes_nothing() {
    let (disk, records) = three_segments();
    let (mut reported, mut harmless) = (0, 0);
    for name in disk.file_names() {
        for pos in 0..disk.read_file(&name).unwrap().len() {
            let hurt = disk.fork();
            let bit = (pos % 8) as u32;
            assert!(hurt.flip_bit(&name, pos, bit));
            let what = format!("{name} byte {pos} bit {bit}");
            let before = hurt.fingerprint();
            let verified = verify(&hurt);
            match outcome(&hurt.fork(), &records, &what) {
                Outcome::Harmless => {
                    harmless += 1;
                    assert!(verified.is_clean(), "{what}: {:?}", verified.damage);
                }
                Outcome::Reported(file, place) => {
                    reported += 1;
                    assert!(file.contains(&name) || file == "consumer", "{what}: placed in {file}");
                    assert!(place as usize <= pos, "{what}: placed at {place}");
                    assert!(!verified.is_clean(), "{what}: verify saw nothing");
                    assert!(
                        verified.damage.iter().all(|f| f.corruption.file.contains(&name)),
                        "{what}: {:?}",
                        verified.damage
                    );
                }
            }
            // Every flip is at least noted, but for those in the lock's file.
            let seen = !verified.is_clean() || !verified.notes.is_empty() || verified.cut.is_some();
            assert!(seen || name == "LOCK", "{what}: no word at all");
            assert_eq!(hurt.fingerprint(), before, "{what}: looking changed it");
        }
    }
    println!("{reported} reported, {harmless} harmless");
    assert!(reported > 2000, "{reported}");
}

#[test]
fn l4_damage_to_durable_data_is_refused_with_everything_and_nothing_changes() {
    let (disk, _) = three_segments();
    // The last segment: open does not read the others.
    let name = segments(&disk)[2].clone();
    let hurt = disk.fork();
    hurt.flip_bit(&name, 4096 + 40, 0);
    // And a crash afterwards, so that open has to scan.
    let len = hurt.read_file(&name).unwrap().len();
    hurt.truncate_file(&name, len - 8);
    let before = hurt.fingerprint();
    let verified = verify(&hurt);
    assert_eq!(verified.damage[0].lost, 10..11, "what is whole behind it is not lost");
    assert_eq!((verified.damage.len(), verified.records, verified.end), (1, 14, 15));
    let error = try_open(&hurt).unwrap_err();
    let Error::Corrupt(corruption) = &error else {
        panic!("{error}")
    };
    assert!(corruption.file.contains(&name));
    assert_eq!((corruption.pos, corruption.offset), (4096, 10));
    assert!(corruption.witness.is_some());
    let text = error.to_string();
    for part in [&name, "byte 4096", "offset 10", "nothing was changed", "walctl verify"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    hurt.remove_file("LOCK");
    disk.remove_file("LOCK");
    let lock_aside = |d: &SimStorage| {
        let d = d.fork();
        d.remove_file("LOCK");
        d.fingerprint()
    };
    assert_eq!(lock_aside(&hurt), {
        let again = disk.fork();
        again.flip_bit(&name, 4096 + 40, 0);
        again.truncate_file(&name, len - 8);
        lock_aside(&again)
    });
    assert_ne!(before, 0);
}

#[test]
fn l4_what_is_whole_can_be_read_up_to_and_beyond_damage() {
    let (disk, records) = three_segments();
    let name = segments(&disk)[1].clone();
    disk.flip_bit(&name, 4096 + 40, 0);
    let log = open(&disk);
    // Other records of the same segment are not in its way.
    assert!(matches!(log.read(5), Err(Error::Corrupt(c)) if c.offset == 5));
    assert_eq!(log.read(6).unwrap(), records[6]);
    let mut reader = log.reader(0).unwrap();
    let mut read = 0;
    let error = loop {
        match reader.next() {
            Ok(Some(record)) => {
                assert_eq!(record.bytes, records[record.offset as usize]);
                read += 1;
            }
            Ok(None) => panic!("no word of the damage"),
            Err(e) => break e,
        }
    };
    assert!(matches!(&error, Error::Corrupt(c) if c.offset == 5), "{error}");
    assert!(reader.next().is_err(), "an error does not go away by itself");
    assert_eq!(reader.skip_damage().unwrap(), Some(5..6));
    while let Some(record) = reader.next().unwrap() {
        assert_eq!(record.bytes, records[record.offset as usize]);
        read += 1;
    }
    assert_eq!(read, records.len() - 1);
    drop(log);
    let mut survivors = Survivors::open(&(Arc::new(disk) as _)).unwrap();
    let (mut whole, mut lost) = (0, Vec::new());
    while let Some(survivor) = survivors.next().unwrap() {
        match survivor {
            Survivor::Record(record) => {
                assert_eq!(record.bytes, records[record.offset as usize]);
                whole += 1;
            }
            Survivor::Lost(finding) => lost.push(finding.lost),
        }
    }
    assert_eq!(whole, records.len() - 1);
    assert_eq!((lost.len(), &lost[0]), (1, &(5..6)));
}

#[test]
fn l5_swapped_copied_renamed_removed_and_foreign_files_are_noticed() {
    let (disk, records) = three_segments();
    let names = segments(&disk);
    let other = three_segments().0;
    let check = |hurt: SimStorage, what: &str| {
        let verified = verify(&hurt);
        match outcome(&hurt, &records, what) {
            Outcome::Reported(..) => assert!(!verified.is_clean(), "{what}: verify saw nothing"),
            Outcome::Harmless => panic!("{what} went unnoticed"),
        }
    };
    for (n, name) in names.iter().enumerate() {
        let gone = disk.fork();
        gone.remove_file(name);
        check(gone, &format!("segment {n} removed"));
        let foreign = disk.fork();
        foreign.write_file(name, &other.read_file(&segments(&other)[n]).unwrap());
        check(foreign, &format!("segment {n} of another log"));
        let body = disk.fork();
        let mut mixed = disk.read_file(name).unwrap();
        let theirs = other.read_file(&segments(&other)[n]).unwrap();
        mixed.truncate(4096);
        mixed.extend_from_slice(&theirs[4096..]);
        body.write_file(name, &mixed);
        check(body, &format!("frames of segment {n} of another log"));
        let swapped = disk.fork();
        swapped.write_file(name, &disk.read_file(&names[(n + 1) % 3]).unwrap());
        check(swapped, &format!("segment {n} replaced by another"));
        let cut = disk.fork();
        cut.truncate_file(name, 4096 + 100);
        check(cut, &format!("segment {n} cut"));
        let blank = disk.fork();
        blank.truncate_file(name, 4096);
        blank.truncate_file(name, disk.read_file(name).unwrap().len());
        check(blank, &format!("segment {n} blanked"));
    }
    let renamed = disk.fork();
    renamed.write_file(
        "00000000000000000099-0000000000000004.wal",
        &disk.read_file(&names[2]).unwrap(),
    );
    check(renamed, "a copy under a later name");
    let foreign = disk.fork();
    foreign.write_file("log.meta", &other.read_file("log.meta").unwrap());
    check(foreign, "the meta file of another log");
    let gone = disk.fork();
    gone.remove_file("log.meta");
    check(gone, "no meta file");
}

#[test]
fn l5_reads_verify_too() {
    let disk = SimStorage::new();
    let log = open(&disk);
    for n in 0..20u8 {
        log.append([n; 100]).unwrap();
    }
    // Behind the back of the open log.
    let name = segments(&disk)[0].clone();
    let file = wal::storage::Storage::open(&disk, &name, wal::storage::Access::ReadWrite).unwrap();
    file.write_at(4096 + 132 + 60, b"!").unwrap();
    assert!(matches!(log.read(1), Err(Error::Corrupt(c)) if c.offset == 1));
    assert_eq!(log.read(2).unwrap(), [2; 100]);
}

#[test]
fn l5_records_that_end_in_their_own_crc_cannot_stand_in_for_each_other() {
    let with_crc = |text: &[u8]| [text, &crc32fast::hash(text).to_le_bytes()].concat();
    let (mine, other) = (with_crc(b"pay 100 to Alice"), with_crc(b"pay 900 to Mallo"));
    // What makes a plain CRC-32 blind: both have the same.
    assert_eq!(crc32fast::hash(&mine), crc32fast::hash(&other));
    let disk = SimStorage::new();
    let log = open(&disk);
    log.append(&mine).unwrap();
    log.close().unwrap();
    let name = segments(&disk)[0].clone();
    let mut bytes = disk.read_file(&name).unwrap();
    bytes[4096 + 32..][..other.len()].copy_from_slice(&other);
    // Some files begin with a time mark.
    let at = disk
        .read_file(&name)
        .unwrap()
        .windows(mine.len())
        .position(|w| w == mine)
        .unwrap();
    let mut bytes = disk.read_file(&name).unwrap();
    bytes[at..][..other.len()].copy_from_slice(&other);
    disk.write_file(&name, &bytes);
    let log = open(&disk);
    assert!(matches!(log.read(0), Err(Error::Corrupt(_))));
}

#[test]
fn l4_the_undecidable_case_is_labelled() {
    // Damage to the last record of a log that was killed before anything could vouch for it.
    let disk = SimStorage::new();
    let log = open(&disk);
    log.append([1; 300]).unwrap();
    log.append([2; 300]).unwrap();
    disk.process_kill();
    drop(log);
    let name = segments(&disk)[0].clone();
    let at = disk
        .read_file(&name)
        .unwrap()
        .windows(300)
        .position(|w| w == [2; 300])
        .unwrap();
    disk.flip_bit(&name, at, 3);
    let log = open(&disk);
    let cut = log.report().cut.clone().unwrap();
    assert_eq!((cut.offset, cut.evidence), (1, wal::TornEvidence::Undecided));
    assert_eq!(log.read(0).unwrap(), [1; 300]);
}

#[test]
fn l4_a_mark_an_idle_log_a_consumer_and_a_caller_are_witnesses() {
    type Witness<'a> = (&'a str, &'a dyn Fn(&SimStorage, &Wal));
    let mark = |disk: &SimStorage, log: &Wal| {
        let before = disk.mutations();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while log.stats().marks == 0 {
            assert!(std::time::Instant::now() < deadline, "no mark");
            std::thread::yield_now();
        }
        assert!(disk.mutations() > before || log.stats().marks > 0);
    };
    let consumer = |_: &SimStorage, log: &Wal| {
        let mut consumer = log.consumer("c").open().unwrap();
        consumer.poll(10).unwrap();
        consumer.commit().unwrap();
    };
    let caller = |_: &SimStorage, _: &Wal| {};
    let all: [Witness<'_>; 3] = [("mark", &mark), ("consumer", &consumer), ("caller", &caller)];
    for (who, bring_about) in all {
        let disk = SimStorage::new();
        let delay = std::time::Duration::from_millis(if who == "mark" { 1 } else { 3_600_000 });
        let log = Options::new()
            .mark_delay(delay)
            .open_storage(Arc::new(disk.clone()))
            .unwrap();
        log.append([1; 300]).unwrap();
        log.append([2; 300]).unwrap();
        bring_about(&disk, &log);
        disk.process_kill();
        drop(log);
        let name = segments(&disk)[0].clone();
        let at = disk
            .read_file(&name)
            .unwrap()
            .windows(300)
            .position(|w| w == [2; 300])
            .unwrap();
        disk.flip_bit(&name, at, 3);
        let known = if who == "caller" { 2 } else { 0 };
        let opened = options().known_durable(known).open_storage(Arc::new(disk.clone()));
        assert!(
            matches!(&opened, Err(Error::Corrupt(c)) if c.offset == 1),
            "{who}: {opened:?}"
        );
    }
}

#[test]
fn l4_a_lost_newest_segment_is_noticed_also_after_a_kill() {
    let disk = SimStorage::new();
    let log = open(&disk);
    log.append([1; 300]).unwrap();
    log.rotate().unwrap();
    log.append([2; 300]).unwrap();
    disk.process_kill();
    drop(log);
    // Only the meta file knows of it: nothing was written after its first record.
    let name = segments(&disk)[1].clone();
    disk.remove_file(&name);
    let error = try_open(&disk).unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt(c) if c.file.contains(&name) && c.offset == 1),
        "{error}"
    );
    assert!(!verify(&disk).is_clean());
}
