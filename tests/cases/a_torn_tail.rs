//! A: the torn tail.

use wal::storage::sim::SimStorage;
use wal::{TornEvidence, Witness};

use super::*;

#[test]
fn a01_append_after_a_torn_tail() {
    let disk = SimStorage::new();
    let mut expected = marks(0..5, 40);
    kill(&disk, filled(&disk, &expected));
    for round in 0..10 {
        // The last record is torn, as if it had never been acknowledged.
        let (file, at) = find(&disk, &expected.pop().unwrap());
        disk.truncate_file(&file, at.end - 3);
        let log = open(&disk);
        assert_eq!(log.end(), expected.len() as u64, "round {round}");
        assert_eq!(log.report().cut.as_ref().unwrap().offset, log.end());
        for n in 0..2 {
            expected.push(mark(1000 + 2 * round + n, 40));
            log.append(expected.last().unwrap()).unwrap();
        }
        kill(&disk, log);
        // The second recovery is the test: what was appended behind the tear is there.
        assert!(judged(&disk).unwrap() == expected, "round {round}");
    }
}

#[test]
fn a02_a_torn_tail_wherever_it_is_torn() {
    let records = marks(0..10, 100);
    let disk = SimStorage::new();
    kill(&disk, filled(&disk, &records));
    let (file, last) = find(&disk, &records[9]);
    let (_, before) = find(&disk, &records[8]);
    for len in before.end.next_multiple_of(8)..=last.end.next_multiple_of(8) {
        let disk = disk.fork();
        disk.truncate_file(&file, len);
        // A frame ends at a multiple of eight.
        let whole = if len >= last.end.next_multiple_of(8) { 10 } else { 9 };
        assert!(judged(&disk).unwrap() == records[..whole], "cut at {len}");
        let log = open(&disk);
        let report = log.report();
        match &report.cut {
            Some(cut) => assert_eq!((cut.offset, cut.file.as_str()), (9, format!("sim/{file}").as_str())),
            // Exactly between two records; the file is too short all the same, and that is told.
            None => assert!(!report.notes.is_empty(), "cut at {len}: no word"),
        }
        kill(&disk, log);
        goes_on(&disk, records[..whole].to_vec());
    }
}

#[test]
fn a04_a_tail_of_zeros() {
    let records = marks(0..10, 100);
    // Zeros behind everything, after a clean close and after a kill.
    for closed in [true, false] {
        for zeros in [1, 7, 4 << 10, 4 << 20] {
            let disk = SimStorage::new();
            let log = filled(&disk, &records);
            if closed {
                log.close().unwrap();
            } else {
                kill(&disk, log);
            }
            let file = segments(&disk).pop().unwrap();
            disk.truncate_file(&file, disk.read_file(&file).unwrap().len() + zeros);
            assert!(judged(&disk).unwrap() == records, "{zeros} zeros");
            goes_on(&disk, records.clone());
        }
    }
    // Zeros instead of what was never synced.
    let disk = SimStorage::new();
    let log = try_open_manual(&disk).unwrap();
    for (n, record) in records.iter().enumerate() {
        if n == 8 {
            log.sync().unwrap();
        }
        log.append(record).unwrap();
    }
    kill(&disk, log);
    let (file, nine) = find(&disk, &records[9]);
    let (_, eight) = find(&disk, &records[8]);
    let len = disk.read_file(&file).unwrap().len();
    for (from, whole) in [
        (nine.end - 10, 9),
        (nine.start + 50, 9),
        (nine.start, 9),
        (eight.start + 50, 8),
    ] {
        let disk = disk.fork();
        zero(&disk, &file, from..len);
        assert!(judged(&disk).unwrap() == records[..whole], "zeros from {from}");
        let log = open(&disk);
        assert_eq!(log.report().cut.as_ref().unwrap().offset, whole as u64);
        kill(&disk, log);
        goes_on(&disk, records[..whole].to_vec());
    }
}

#[test]
fn a05_a_preallocated_file_after_a_kill() {
    let large = || options().segment_bytes(8 << 20);
    let disk = SimStorage::new();
    let mut expected = Vec::new();
    for round in 0..4 {
        let log = large().open_storage(shared(&disk)).unwrap();
        let report = log.report();
        assert!(report.cut.is_none() && report.notes.is_empty(), "{report:?}");
        assert!(read_all(&log) == expected);
        // Nothing, one record, three.
        for n in 0..[0, 1, 3, 0][round] {
            expected.push(mark(10 * round as u64 + n, 100));
            log.append(expected.last().unwrap()).unwrap();
        }
        kill(&disk, log);
    }
    assert!(judged(&disk).unwrap() == expected);
}

#[test]
fn a06_zeros_are_no_records_and_records_of_zeros_are_no_end() {
    let disk = SimStorage::new();
    // The least that a record can be, and the most that looks like nothing.
    let records = [
        vec![],
        vec![0],
        vec![0; 8],
        vec![0; 3000],
        vec![],
        mark(1, 20),
        vec![0; 9000],
        mark(2, 20),
    ];
    kill(&disk, filled(&disk, &records));
    assert!(judged(&disk).unwrap() == records);
    let file = segments(&disk).pop().unwrap();
    disk.truncate_file(&file, disk.read_file(&file).unwrap().len() + (1 << 20));
    assert!(judged(&disk).unwrap() == records);
    goes_on(&disk, records.to_vec());
}

#[test]
fn a08_several_torn_writes_at_once() {
    let records = marks(0..10, 100);
    let disk = SimStorage::new();
    let log = try_open_manual(&disk).unwrap();
    for (n, record) in records.iter().enumerate() {
        if n == 5 {
            log.sync().unwrap();
        }
        log.append(record).unwrap();
    }
    kill(&disk, log);
    let at = |n: usize| find(&disk, &records[n]).1;
    let (file, _) = find(&disk, &records[5]);
    let (five, seven, eight) = (at(4).end.next_multiple_of(8)..at(5).end, at(7), at(8));
    let len = disk.read_file(&file).unwrap().len();
    zero(&disk, &file, five);
    zero(&disk, &file, seven.start + 30..seven.end);
    zero(&disk, &file, eight.start - 32..len);
    assert!(
        find(&disk, &records[6]).1.len() == 100,
        "the record behind the hole is whole"
    );
    assert!(judged(&disk).unwrap() == records[..5]);
    let log = open(&disk);
    let report = log.report();
    let cut = report.cut.as_ref().unwrap();
    assert_eq!((cut.offset, cut.evidence), (5, TornEvidence::LaterFrame));
    assert_eq!(report.proven_end, 5);
    kill(&disk, log);
    goes_on(&disk, records[..5].to_vec());
}

#[test]
fn a09_a_page_inside_a_record_is_missing() {
    let large = |n: u8| -> Vec<u8> {
        (0..40_960u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ n)
            .collect()
    };
    let disk = SimStorage::new();
    let log = try_open_manual(&disk).unwrap();
    let first = mark(0, 100);
    log.append(&first).unwrap();
    log.sync().unwrap();
    log.append(large(1)).unwrap();
    kill(&disk, log);
    let (file, at) = find(&disk, &large(1));
    for size in [4096, 512] {
        for page in at.start / size..=(at.end - 1) / size {
            let disk = disk.fork();
            zero(
                &disk,
                &file,
                (page * size).max(at.start)..((page + 1) * size).min(at.end),
            );
            assert!(
                judged(&disk).unwrap() == std::slice::from_ref(&first),
                "page {page} of {size}"
            );
        }
    }
    // Zeros that were meant.
    let disk = SimStorage::new();
    kill(&disk, filled(&disk, &[vec![0; 40_960]]));
    assert!(judged(&disk).unwrap() == [vec![0; 40_960]]);
}

#[test]
fn a12_recovery_that_is_interrupted() {
    // Three segments, two checkpoints, and a torn tail.
    let disk = SimStorage::new();
    let store = kv::Options::new()
        .log(manual())
        .checkpoint_bytes(0)
        .open_storage(shared(&disk))
        .unwrap();
    for n in 0..40u64 {
        store.put(n.to_le_bytes(), mark(n, 300)).unwrap();
        if n % 15 == 14 {
            store.checkpoint().unwrap();
        }
    }
    store.sync().unwrap();
    store.put("torn", mark(99, 1000)).unwrap();
    kill(&disk, store);
    let (file, at) = find(&disk, &mark(99, 1000));
    zero(&disk, &file, at.start + 100..at.start + 600);
    let check = |disk: &SimStorage, what: &str| {
        let store = open_store(disk);
        assert_eq!(store.len(), 40, "{what}");
        for n in 0..40u64 {
            assert_eq!(store.get(n.to_le_bytes()).unwrap().unwrap()[..], mark(n, 300), "{what}");
        }
        kill(disk, store);
    };
    // A first append makes recovery write what it has to.
    let recover = |disk: &SimStorage| {
        let store = try_open_store(disk)?;
        store.delete("nothing")?;
        store.checkpoint()
    };
    let counted = disk.fork();
    recover(&counted).unwrap();
    let steps = counted.mutations();
    assert!(steps > 10, "{steps}");
    for step in 0..steps {
        for power in [false, true] {
            let disk = disk.fork();
            disk.crash_at(step);
            let _ = recover(&disk);
            assert!(disk.crashed());
            if power {
                disk.power_cut(step);
            } else {
                disk.process_kill();
            }
            check(&disk, &format!("crash at {step}"));
        }
    }
    // Recovered again and again with nothing written.
    for round in 0..5 {
        check(&disk, &format!("round {round}"));
    }
}

#[test]
fn a13_torn_or_lost_the_evidence_decides() {
    let records = marks(0..10, 100);
    let flip_last = |disk: &SimStorage| {
        let (file, at) = find(disk, &records[9]);
        assert!(disk.flip_bit(&file, at.start + 40, 3));
    };
    // A clean close says that the last record was durable.
    let disk = SimStorage::new();
    filled(&disk, &records).close().unwrap();
    let closed = disk.fork();
    flip_last(&disk);
    let error = judged(&disk).unwrap_err();
    assert!(matches!(&error, wal::Error::Corrupt(c) if c.offset == 9), "{error}");
    // Killed: nothing does. It is cut, and called undecided.
    let disk = SimStorage::new();
    kill(&disk, filled(&disk, &records));
    let killed = disk.fork();
    flip_last(&disk);
    assert!(judged(&disk).unwrap() == records[..9]);
    let log = open(&disk);
    let report = log.report();
    let cut = report.cut.as_ref().unwrap();
    assert_eq!((cut.offset, cut.evidence), (9, TornEvidence::Undecided));
    // Killed, but a consumer had committed it, or a checkpoint has it.
    let disk = killed.fork();
    let log = open(&disk);
    let mut consumer = log.consumer("reader").open().unwrap();
    while consumer.next().unwrap().is_some() {}
    consumer.commit().unwrap();
    drop(consumer);
    kill(&disk, log);
    flip_last(&disk);
    let error = judged(&disk).unwrap_err();
    assert!(
        matches!(&error, wal::Error::Corrupt(c) if matches!(c.witness, Some(Witness::Consumer { committed: 10, .. }))),
        "{error}"
    );
    let disk = SimStorage::new();
    let store = open_store(&disk);
    for record in &records {
        store.put("key", record).unwrap();
    }
    store.checkpoint().unwrap();
    kill(&disk, store);
    flip_last(&disk);
    let before = fingerprint(&disk);
    assert!(matches!(
        try_open_store(&disk),
        Err(kv::Error::Log(wal::Error::Corrupt(_)))
    ));
    assert_eq!(fingerprint(&disk), before);
    // Five records cut off a log that was closed.
    let disk = closed;
    let (file, at) = find(&disk, &records[4]);
    disk.truncate_file(&file, at.end.next_multiple_of(8));
    let error = judged(&disk).unwrap_err();
    assert!(matches!(&error, wal::Error::Corrupt(c) if c.offset == 5), "{error}");
}
