use std::time::{Duration, SystemTime};

use wal::{Delivery, Durability, Error, FsyncPolicy, Options};

fn small() -> Options {
    Options::new().segment_bytes(4096)
}

#[test]
fn l1_offsets_are_dense_and_batches_whole() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().open(dir.path().join("log")).unwrap();
    assert_eq!(log.append(b"a").unwrap(), 0);
    assert_eq!(log.append_batch(&[b"b", b"c"]).unwrap(), 1..3);
    assert_eq!(log.append_batch::<&[u8]>(&[]).unwrap(), 3..3);
    assert_eq!(log.append(b"").unwrap(), 3);
    for (offset, want) in [&b"a"[..], b"b", b"c", b""].iter().enumerate() {
        assert_eq!(log.read(offset as u64).unwrap(), *want);
    }
    let many = vec![b"x"; 70_000];
    assert!(matches!(
        log.append_batch(&many),
        Err(Error::BatchTooLarge { records: 70_000, .. })
    ));
    assert_eq!(log.end(), 4);
}

#[test]
fn l1_order_survives_rotation_and_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut want = Vec::new();
    for round in 0..5 {
        let log = small().policy(FsyncPolicy::Os).open(&path).unwrap();
        assert_eq!(log.durable_end(), want.len() as u64, "{:?}", log.report());
        for n in 0..200u32 {
            let record = format!("{round} {n} {}", "x".repeat((n % 97) as usize)).into_bytes();
            assert_eq!(log.append(&record).unwrap(), want.len() as u64);
            want.push(record);
        }
        let mut reader = log.reader_of(0, wal::Visible::Written).unwrap();
        let mut got = Vec::new();
        while let Some(r) = reader.next().unwrap() {
            got.push(r.bytes.to_vec());
        }
        assert!(got == want);
        if round % 2 == 0 {
            log.close().unwrap();
        }
    }
    let log = small().open_read_only(&path).unwrap();
    assert_eq!(log.durable_end(), 1000);
    for (n, want) in want.iter().enumerate() {
        assert_eq!(&log.read(n as u64).unwrap(), want);
    }
    let verified = wal::inspect::verify(&(std::sync::Arc::new(wal::storage::FsStorage::new(&path)) as _)).unwrap();
    assert!(verified.is_clean(), "{verified:?}");
    assert_eq!(verified.records, 1000);
    assert!(verified.notes.is_empty(), "{:?}", verified.notes);
}

#[test]
fn l9_tail_waits_and_ends_with_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().open(dir.path().join("log")).unwrap();
    let mut tail = log.tail(0).unwrap();
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        while let Some(r) = tail.next().unwrap() {
            got.push(r.bytes.to_vec());
        }
        got
    });
    let mut want = Vec::new();
    for n in 0..100u32 {
        let record = vec![n as u8; 100];
        log.append(&record).unwrap();
        want.push(record);
    }
    log.close().unwrap();
    assert!(reader.join().unwrap() == want);
}

#[test]
fn l10_consumers_keep_their_own_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = small().open(&path).unwrap();
    for n in 0..100u32 {
        log.append(n.to_le_bytes()).unwrap();
    }
    let mut one = log.consumer("one").open().unwrap();
    assert_eq!(one.poll(60).unwrap().len(), 60);
    one.commit().unwrap();
    assert!(matches!(log.consumer("one").open(), Err(Error::ConsumerBusy { .. })));
    drop(one);
    log.close().unwrap();
    let log = small().open(&path).unwrap();
    let mut one = log.consumer("one").open_existing().unwrap();
    assert_eq!((one.committed(), one.lag()), (60, 40));
    let mut two = log.consumer("two").delivery(Delivery::AtMostOnce).open().unwrap();
    assert_eq!(two.next().unwrap().unwrap().offset, 0);
    assert_eq!(two.committed(), 1);
    assert_eq!(one.next().unwrap().unwrap().offset, 60);
    assert!(matches!(
        log.consumer("three").open_existing(),
        Err(Error::UnknownConsumer { .. })
    ));
}

#[test]
fn l12_tickets_are_acknowledged_without_a_waiter() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().open(dir.path().join("log")).unwrap();
    let tickets: Vec<_> = (0..50u32).map(|n| log.append_async(n.to_le_bytes()).unwrap()).collect();
    let end = tickets.last().unwrap().end();
    assert!(log.wait_durable(end, Duration::from_secs(30)).unwrap());
    assert!(tickets.iter().all(wal::Ticket::is_durable));
    let before = log.end();
    assert_eq!(
        log.offset_at(SystemTime::now() + Duration::from_secs(5)).unwrap(),
        before
    );
    assert_eq!(log.offset_at(SystemTime::UNIX_EPOCH).unwrap(), 0);
    log.append_with(b"w", Durability::Written).unwrap();
    assert_eq!(log.written_end(), before + 1);
}

#[test]
fn l4_backup_of_a_live_log_opens() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().open(dir.path().join("log")).unwrap();
    for n in 0..300u32 {
        log.append_with(format!("record number {n} of many"), Durability::Written)
            .unwrap();
    }
    let mut c = log.consumer("c").open().unwrap();
    log.sync().unwrap();
    c.poll(17).unwrap();
    c.commit().unwrap();
    let copy = dir.path().join("copy");
    assert_eq!(log.backup(&copy).unwrap(), 300);
    assert!(log.backup(&copy).is_err());
    let copied = small().open(&copy).unwrap();
    assert!(copied.report().was_closed);
    assert_eq!(copied.end(), 300);
    assert_eq!(copied.consumer("c").open_existing().unwrap().committed(), 17);
    assert_eq!(copied.append(b"on").unwrap(), 300);
}
