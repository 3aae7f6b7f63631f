//! Named consumers.

use wal::storage::sim::{Fault, FaultKind, OpKind, SimStorage};
use wal::{Delivery, Error, FsyncPolicy, Reset, Retention, Start, Wal};

use super::{open, open_with, options, try_open};

fn filled(n: u32) -> (SimStorage, Wal) {
    let disk = SimStorage::new();
    let log = open(&disk);
    for n in 0..n {
        log.append(n.to_le_bytes().repeat(20)).unwrap();
    }
    (disk, log)
}

fn consumer_file(disk: &SimStorage) -> String {
    disk.file_names()
        .into_iter()
        .find(|n| n.starts_with("consumer-"))
        .unwrap()
}

#[test]
fn l10_each_consumer_has_its_own_place_and_a_new_one_replays_everything() {
    let (disk, log) = filled(100);
    let mut old = log.consumer("old").open().unwrap();
    while old.next().unwrap().is_some() {}
    old.commit().unwrap();
    assert_eq!((old.committed(), old.lag()), (100, 0));
    let mut new = log.consumer("new").open().unwrap();
    let mut expected = 0;
    while let Some(record) = new.next().unwrap() {
        assert_eq!(record.offset, expected);
        expected += 1;
    }
    assert_eq!(expected, 100);
    drop((old, new));
    log.close().unwrap();
    let log = open(&disk);
    let list = log.consumers();
    let at = |name| list.iter().find(|c| c.name == name).unwrap().committed;
    assert_eq!((at("old"), at("new")), (100, 0));
}

#[test]
fn l10_at_least_once_repeats_and_at_most_once_skips_only_what_was_in_hand() {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
        let (disk, log) = filled(10);
        let mut handled = Vec::new();
        let mut consumer = log.consumer("c").delivery(delivery).open().unwrap();
        for n in 0..5 {
            let offset = consumer.next().unwrap().unwrap().offset;
            if delivery == Delivery::AtMostOnce && n == 4 {
                // Died before the work.
                break;
            }
            handled.push(offset);
            if delivery == Delivery::AtLeastOnce && n < 4 {
                consumer.commit().unwrap();
            }
        }
        disk.power_cut(5);
        drop((consumer, log));
        let log = open(&disk);
        let mut consumer = log.consumer("c").delivery(delivery).open_existing().unwrap();
        while let Some(record) = consumer.next().unwrap() {
            handled.push(record.offset);
        }
        let want: Vec<u64> = match delivery {
            Delivery::AtLeastOnce => vec![0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9],
            Delivery::AtMostOnce => vec![0, 1, 2, 3, 5, 6, 7, 8, 9],
        };
        assert_eq!(handled, want, "{delivery:?}");
    }
}

#[test]
fn l10_a_commit_is_within_what_was_handed_out_and_below_the_durable_end() {
    let disk = SimStorage::new();
    let log = open_with(&disk, FsyncPolicy::Os);
    log.append(b"a").unwrap();
    let mut consumer = log.consumer("c").open().unwrap();
    assert!(consumer.next().unwrap().is_none(), "not durable yet");
    log.sync().unwrap();
    log.append(b"b").unwrap();
    assert_eq!(consumer.next().unwrap().unwrap().offset, 0);
    assert!(matches!(
        consumer.commit_to(2),
        Err(Error::CommitOutOfRange {
            wanted: 2,
            committed: 0,
            handed: 1,
            ..
        })
    ));
    assert!(matches!(consumer.seek(2), Err(Error::OutOfRange { wanted: 2, .. })));
    consumer.commit().unwrap();
    assert!(matches!(consumer.commit_to(0), Err(Error::CommitOutOfRange { .. })));
    consumer.seek(0).unwrap();
    assert_eq!(consumer.next().unwrap().unwrap().bytes, b"a");
}

#[test]
fn l10_a_lost_or_exchanged_position_is_told_and_never_taken_for_another() {
    let (disk, log) = filled(100);
    let mut consumer = log.consumer("c").open().unwrap();
    consumer.poll(60).unwrap();
    consumer.commit().unwrap();
    drop(consumer);
    log.close().unwrap();
    let name = consumer_file(&disk);
    // Damaged beyond all copies.
    let hurt = disk.fork();
    hurt.write_file(&name, &vec![0x5a; 8192]);
    let log = open(&hurt);
    assert!(matches!(log.consumer("c").open(), Err(Error::ConsumerDamaged { .. })));
    assert!(log.consumers()[0].damaged.is_some());
    assert_eq!(
        log.remove_before(90).unwrap().segments_removed,
        0,
        "what it might still need is held"
    );
    log.reset_consumer("c", 40).unwrap();
    assert_eq!(log.consumer("c").open_existing().unwrap().committed(), 40);
    drop(log);
    // Gone.
    let hurt = disk.fork();
    hurt.remove_file(&name);
    assert!(!super::verify(&hurt).is_clean());
    let log = open(&hurt);
    assert!(matches!(log.consumer("c").open(), Err(Error::ConsumerDamaged { .. })));
    assert_eq!(log.remove_before(90).unwrap().segments_removed, 0);
    log.remove_consumer("c").unwrap();
    assert_eq!(
        log.consumer("c").open().unwrap().committed(),
        0,
        "forgotten by name, it may begin anew"
    );
    drop(log);
    assert!(open(&hurt).consumers()[0].damaged.is_none());
    // Another log's, under the right name.
    let (other, log) = filled(100);
    let mut consumer = log.consumer("c").open().unwrap();
    consumer.poll(10).unwrap();
    consumer.commit().unwrap();
    drop((consumer, log));
    let hurt = disk.fork();
    hurt.write_file(&name, &other.read_file(&consumer_file(&other)).unwrap());
    assert!(matches!(
        open(&hurt).consumer("c").open(),
        Err(Error::ConsumerDamaged { .. })
    ));
    // Another consumer's, under this one's name.
    let hurt = disk.fork();
    let log = open(&hurt);
    drop(log.consumer("d").open().unwrap());
    drop(log);
    let theirs = hurt
        .file_names()
        .into_iter()
        .find(|n| n.starts_with("consumer-d"))
        .unwrap();
    hurt.write_file(&name, &hurt.read_file(&theirs).unwrap());
    assert!(matches!(
        open(&hurt).consumer("c").open(),
        Err(Error::ConsumerDamaged { .. })
    ));
}

#[test]
fn l10_a_log_that_lost_its_tail_or_holds_other_records_is_told() {
    let (disk, log) = filled(20);
    let early = SimStorage::new();
    log.backup_to(&(std::sync::Arc::new(early.clone()) as _)).unwrap();
    for n in 0..20u32 {
        log.append(n.to_le_bytes()).unwrap();
    }
    let mut consumer = log.consumer("c").open().unwrap();
    consumer.poll(30).unwrap();
    consumer.commit().unwrap();
    drop(consumer);
    log.close().unwrap();
    // The old copy of the log with the new consumer: the log ends before it.
    let name = consumer_file(&disk);
    early.write_file(&name, &disk.read_file(&name).unwrap());
    assert!(matches!(try_open(&early), Err(Error::Corrupt(c)) if c.offset == 20));
    // The old copy, gone on with other records.
    early.remove_file(&name);
    let log = open(&early);
    for n in 0..20u32 {
        log.append((n + 1000).to_le_bytes()).unwrap();
    }
    log.close().unwrap();
    early.write_file(&name, &disk.read_file(&name).unwrap());
    let log = open(&early);
    assert!(matches!(
        log.consumer("c").open(),
        Err(Error::ConsumerDiverged { committed: 30, .. })
    ));
}

#[test]
fn l10_names_are_any_text_and_no_more() {
    let (disk, log) = filled(1);
    let names = [
        "a",
        "A",
        "a/b",
        "..",
        "é",
        "名前",
        "a\0b",
        &"x".repeat(128),
        "consumer-a.offset",
    ];
    for name in names {
        let mut consumer = log.consumer(name).open().unwrap();
        assert_eq!(consumer.name(), name);
        consumer.seek(1).unwrap();
    }
    assert!(matches!(log.consumer("").open(), Err(Error::ConsumerName { bytes: 0 })));
    assert!(matches!(
        log.consumer(&"x".repeat(129)).open(),
        Err(Error::ConsumerName { bytes: 129 })
    ));
    assert!(matches!(
        log.consumer("none").open_existing(),
        Err(Error::UnknownConsumer { .. })
    ));
    log.close().unwrap();
    let log = open(&disk);
    assert_eq!(log.consumers().len(), names.len());
    for name in names {
        assert_eq!(log.consumer(name).open_existing().unwrap().committed(), 1);
        log.remove_consumer(name).unwrap();
    }
    assert!(log.consumers().is_empty());
    assert!(matches!(log.remove_consumer("a"), Err(Error::UnknownConsumer { .. })));
}

#[test]
fn l10_a_commit_that_fails_leaves_the_one_before_in_force() {
    for kind in [
        FaultKind::Error(std::io::ErrorKind::Other),
        FaultKind::SyncFails { drop_dirty: true },
    ] {
        let (disk, log) = filled(10);
        let mut consumer = log.consumer("c").open().unwrap();
        consumer.poll(3).unwrap();
        consumer.commit().unwrap();
        consumer.poll(3).unwrap();
        disk.inject(Fault::new(OpKind::SyncData, kind).on_file("consumer-"));
        assert!(consumer.commit().is_err());
        assert_eq!(consumer.committed(), 3);
        assert!(
            matches!(consumer.commit(), Err(Error::Poisoned { .. })),
            "not tried again on the same pages"
        );
        // The log goes on; and so does the consumer, opened anew.
        log.append(b"x").unwrap();
        drop(consumer);
        let mut consumer = log.consumer("c").open_existing().unwrap();
        assert_eq!(consumer.committed(), 3);
        consumer.poll(5).unwrap();
        consumer.commit().unwrap();
        disk.power_cut(1);
        drop((consumer, log));
        assert_eq!(open(&disk).consumer("c").open_existing().unwrap().committed(), 8);
    }
}

#[test]
fn l10_a_lazy_commit_is_written_within_its_time_and_at_close() {
    let (disk, log) = filled(10);
    let mut consumer = log.consumer("c").open().unwrap();
    consumer.poll(4).unwrap();
    consumer.commit_lazy().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while consumer.committed() != 4 {
        assert!(std::time::Instant::now() < deadline, "never written");
        std::thread::yield_now();
    }
    consumer.poll(2).unwrap();
    consumer.commit_lazy().unwrap();
    drop(consumer);
    log.close().unwrap();
    assert_eq!(open(&disk).consumer("c").open_existing().unwrap().committed(), 6);
}

#[test]
fn l10_l11_an_expired_consumer_is_told_and_goes_on_only_by_its_rule() {
    for reset in [Reset::Fail, Reset::Earliest, Reset::Latest] {
        let disk = SimStorage::new();
        let retention = Retention {
            bytes_max: Some(20_000),
            lag_records_max: Some(100),
            ..Retention::default()
        };
        let log = options()
            .retention(retention)
            .open_storage(std::sync::Arc::new(disk.clone()))
            .unwrap();
        log.append([0; 100]).unwrap();
        let mut consumer = log
            .consumer("slow")
            .on_out_of_range(reset)
            .start(Start::Earliest)
            .open()
            .unwrap();
        consumer.next().unwrap().unwrap();
        for n in 0..1000u32 {
            log.append(n.to_le_bytes().repeat(25)).unwrap();
        }
        log.retain().unwrap();
        let start = log.start();
        assert!(start > 500, "a bounded lag holds nothing back: {start}");
        // The segment that it is in may still be open; the next one is gone.
        let error = loop {
            match consumer.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a silent end"),
                Err(e) => break e,
            }
        };
        assert!(
            matches!(&error, Error::OutOfRange { start: s, .. } if *s == start),
            "{error}"
        );
        match reset {
            Reset::Fail => {
                assert!(consumer.next().is_err());
                consumer.seek(start).unwrap();
                assert_eq!(consumer.next().unwrap().unwrap().offset, start);
            }
            Reset::Earliest => assert_eq!(consumer.next().unwrap().unwrap().offset, start),
            Reset::Latest => assert!(consumer.next().unwrap().is_none()),
        }
    }
}

#[test]
fn l10_a_consumer_whose_making_failed_can_be_made_again() {
    // At each step of making one, and with another one made meanwhile.
    for (op, nth) in [
        (OpKind::Create, 1),
        (OpKind::SyncDir, 1),
        (OpKind::Create, 2),
        (OpKind::SyncDir, 2),
    ] {
        let disk = SimStorage::new();
        let log = open(&disk);
        log.append([1; 3000]).unwrap();
        log.append([2; 3000]).unwrap();
        disk.inject(Fault::new(op, FaultKind::Error(std::io::ErrorKind::Other)).nth(nth));
        log.consumer("c").open().unwrap_err();
        assert_eq!(disk.faults_hit(), 1, "{op:?} {nth}");
        assert!(matches!(
            log.consumer("c").open_existing(),
            Err(Error::UnknownConsumer { .. })
        ));
        log.consumer("other").open().unwrap();
        // It may be on the disk, so nothing goes that it would need.
        assert_eq!(log.remove_before(2).unwrap().segments_removed, 0);
        let mut consumer = log.consumer("c").open().unwrap();
        assert_eq!(consumer.poll(1).unwrap().len(), 1);
        consumer.commit().unwrap();
        disk.power_cut(nth);
        drop((consumer, log));
        let log = open(&disk);
        assert_eq!(log.consumer("c").open_existing().unwrap().committed(), 1);
        assert_eq!(log.consumers().len(), 2, "{op:?} {nth}");
    }
}

#[test]
fn l10_a_consumer_found_on_the_disk_is_durable_before_it_is_believed() {
    // Made by a process that failed to make the name of its file durable, and ended.
    let (disk, log) = filled(10);
    disk.inject(Fault::new(OpKind::SyncDir, FaultKind::Error(std::io::ErrorKind::Other)));
    assert!(log.consumer("c").open().is_err());
    disk.process_kill();
    drop(log);
    let log = open(&disk);
    let mut consumer = log.consumer("c").open().unwrap();
    consumer.poll(7).unwrap();
    consumer.commit().unwrap();
    disk.for_each_crash_image(100, 1, |image| {
        assert_eq!(open(&image).consumer("c").open_existing().unwrap().committed(), 7);
    });
}

#[test]
fn l10_a_consumer_whose_removal_failed_can_be_made_again() {
    for op in [OpKind::Remove, OpKind::SyncDir] {
        let (disk, log) = filled(10);
        log.consumer("c").open().unwrap().seek(5).unwrap();
        // The list without it is replaced first; then its own file goes.
        let fault = Fault::new(op, FaultKind::Error(std::io::ErrorKind::Other));
        disk.inject(if op == OpKind::Remove {
            fault.on_file("consumer-")
        } else {
            fault.nth(2)
        });
        assert!(log.remove_consumer("c").is_err(), "{op:?}");
        assert_eq!(disk.faults_hit(), 1);
        assert!(matches!(
            log.consumer("c").open_existing(),
            Err(Error::UnknownConsumer { .. })
        ));
        let mut again = log.consumer("c").open().unwrap();
        assert_eq!(again.poll(3).unwrap()[0].0, 0);
        again.commit().unwrap();
        disk.for_each_crash_image(100, 1, |image| {
            assert_eq!(open(&image).consumer("c").open_existing().unwrap().committed(), 3);
        });
    }
}

#[test]
fn l11_a_position_that_only_memory_shows_lets_nothing_go() {
    let disk = SimStorage::new();
    let log = open(&disk);
    for n in 0..3u8 {
        log.append([n; 3000]).unwrap();
    }
    let mut consumer = log.consumer("c").open().unwrap();
    consumer.poll(2).unwrap();
    // The commit fails; the system shows it all the same, to this process and the next.
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty: false }).on_file(".offset"));
    consumer.commit().unwrap_err();
    disk.process_kill();
    drop((consumer, log));
    let log = open(&disk);
    assert_eq!(log.consumers()[0].committed, 2, "what is read");
    log.remove_before(3).unwrap();
    let start = log.start();
    assert!(start > 0, "what the consumer no longer needs goes");
    disk.power_cut(1);
    drop(log);
    let log = open(&disk);
    assert!(log.consumer("c").open_existing().unwrap().poll(1).unwrap()[0].0 >= start);
}

#[test]
fn l10_a_consumer_s_file_that_lost_its_newer_half_is_told_and_brings_no_old_place_back() {
    for commits in 1..4 {
        let (disk, log) = filled(5);
        let mut consumer = log.consumer("c").open().unwrap();
        for _ in 0..commits {
            consumer.poll(1).unwrap();
            consumer.commit().unwrap();
        }
        drop(consumer);
        log.close().unwrap();
        let file = consumer_file(&disk);
        let len = disk.read_file(&file).unwrap().len();
        let mut hurts: Vec<SimStorage> = (0..len).map(|_| disk.fork()).collect();
        for (cut, hurt) in hurts.iter().enumerate() {
            hurt.truncate_file(&file, cut);
        }
        for half in [0..len / 2, len / 2..len] {
            let hurt = disk.fork();
            let mut content = hurt.read_file(&file).unwrap();
            content[half].fill(0);
            hurt.write_file(&file, &content);
            hurts.push(hurt);
        }
        for (n, hurt) in hurts.iter().enumerate() {
            let log = open(hurt);
            match log.consumer("c").open() {
                Ok(consumer) => assert_eq!(consumer.committed(), commits, "{n}"),
                Err(Error::ConsumerDamaged { .. }) => {}
                Err(e) => panic!("{n}: {e}"),
            }
        }
    }
}

#[test]
fn l10_waiting_hands_out_what_is_there_and_nothing_when_nothing_comes() {
    let (_disk, log) = filled(2);
    let mut consumer = log.consumer("c").open().unwrap();
    for n in 0..2 {
        let record = consumer.next_timeout(std::time::Duration::ZERO).unwrap().unwrap();
        assert_eq!(record.offset, n);
    }
    assert!(consumer.next_timeout(std::time::Duration::ZERO).unwrap().is_none());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            consumer
                .next_timeout(std::time::Duration::from_secs(3600))
                .unwrap()
                .map(|r| r.offset)
        });
        // So that it waits; the answer is the same where it does not yet.
        std::thread::sleep(std::time::Duration::from_millis(50));
        log.append(b"at last").unwrap();
        assert_eq!(waiting.join().unwrap(), Some(2));
    });
}

#[test]
fn l10_a_poll_hands_out_what_stands_before_an_error_and_tells_it_next() {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
        let disk = SimStorage::new();
        let log = open(&disk);
        for n in 0..9u8 {
            log.append([n; 40]).unwrap();
        }
        log.close().unwrap();
        drop(log);
        let name = super::segments(&disk)[0].clone();
        let mut file = disk.read_file(&name).unwrap();
        let at = file.windows(40).position(|w| w == [4; 40]).unwrap();
        file[at] ^= 1;
        disk.write_file(&name, &file);
        let log = open(&disk);
        let mut consumer = log.consumer("c").delivery(delivery).open().unwrap();
        assert_eq!(consumer.poll(9).unwrap().len(), 4, "{delivery:?}");
        for _ in 0..2 {
            assert!(matches!(consumer.poll(9), Err(Error::Corrupt(_))), "{delivery:?}");
        }
        assert_eq!(consumer.position(), 4);
    }
}

#[test]
fn l10_a_lazy_commit_is_never_moved_back_and_is_written_at_close() {
    let (disk, log) = filled(10);
    let mut consumer = log.consumer("c").open().unwrap();
    consumer.poll(6).unwrap();
    consumer.commit_lazy().unwrap();
    consumer.seek(2).unwrap();
    drop(consumer);
    log.close().unwrap();
    drop(log);
    assert_eq!(
        open(&disk).consumer("c").open_existing().unwrap().committed(),
        2,
        "a seek is the later word"
    );
    let log = open(&disk);
    let mut consumer = log.consumer("c").open_existing().unwrap();
    consumer.poll(3).unwrap();
    consumer.commit_lazy().unwrap();
    consumer.poll(3).unwrap();
    consumer.commit_lazy().unwrap();
    log.close().unwrap();
    drop((consumer, log));
    assert_eq!(open(&disk).consumer("c").open_existing().unwrap().committed(), 8);
}

#[test]
fn l10_a_poll_at_most_once_is_committed_before_it_is_handed_out() {
    let (disk, log) = filled(10);
    let mut consumer = log.consumer("c").delivery(Delivery::AtMostOnce).open().unwrap();
    assert_eq!(consumer.poll(4).unwrap().len(), 4);
    let info = log.consumers().into_iter().find(|info| info.name == "c").unwrap();
    assert_eq!((info.committed, info.lag), (4, 6));
    disk.for_each_crash_image(100, 1, |image| {
        assert_eq!(open(&image).consumer("c").open_existing().unwrap().committed(), 4);
    });
}

#[test]
fn l10_a_commit_of_part_of_what_was_handed_out_names_the_record_below_it() {
    let (disk, log) = filled(10);
    let mut consumer = log.consumer("c").open().unwrap();
    consumer.poll(6).unwrap();
    consumer.commit_to(3).unwrap();
    drop(consumer);
    log.close().unwrap();
    drop(log);
    let report = super::verify(&disk);
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
    assert_eq!(
        open(&disk).consumer("c").open_existing().unwrap().poll(1).unwrap()[0].0,
        3
    );
}
