use std::collections::BTreeSet;

use super::*;
use crate::storage::{replace_file, write_all_at};

fn create(disk: &SimStorage, name: &str) -> Arc<dyn StorageFile> {
    disk.open(name, Access::Create).unwrap()
}

#[test]
fn unsynced_sectors_survive_in_any_combination_and_synced_ones_always() {
    let disk = SimStorage::new();
    let file = create(&disk, "f");
    file.write_at(0, &[1; 1024]).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir().unwrap();
    file.write_at(0, &[2; 1024]).unwrap();
    let images = disk.crash_images(1000);
    assert!(images.exhaustive);
    let seen: BTreeSet<_> = images.disks.iter().map(|d| d.read_file("f").unwrap()).collect();
    for (a, b) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        assert!(seen.contains(&[[a; 512], [b; 512]].concat()), "{a} {b}");
    }
    // Torn: the beginning is new, the rest old, in one sector only.
    assert!(seen.contains(&[&[2; 8][..], &[1; 1016]].concat()));
    assert!(!seen.contains(&[&[2; 8][..], &[1; 504], &[2; 8], &[1; 504]].concat()));
    assert_eq!(seen.len(), 4 + 2 * 4 * 2);
    file.sync_data().unwrap();
    assert_eq!(disk.crash_images(10).disks.len(), 1);
}

#[test]
fn lengths_and_contents_are_independent_until_synced() {
    let disk = SimStorage::new();
    let file = create(&disk, "f");
    disk.sync_dir().unwrap();
    file.write_at(0, &[7; 512]).unwrap();
    let seen: BTreeSet<_> = disk
        .crash_images(100)
        .disks
        .iter()
        .map(|d| d.read_file("f").unwrap())
        .collect();
    assert!(seen.contains(&Vec::new()) && seen.contains(&vec![0; 512]) && seen.contains(&vec![7; 512]));
}

#[test]
fn names_survive_in_any_subset_and_a_rename_is_one_step() {
    let disk = SimStorage::new();
    disk.write_file("a", b"old");
    replace_file(&disk, "a", b"new").unwrap();
    assert_eq!(disk.durable_file("a").unwrap(), b"new");
    let file = create(&disk, "a.tmp");
    write_all_at(&*file, 0, b"newer").unwrap();
    file.sync_data().unwrap();
    disk.rename("a.tmp", "a").unwrap();
    let seen: BTreeSet<_> = disk
        .crash_images(100)
        .disks
        .iter()
        .map(|d| (d.file_names(), d.read_file("a")))
        .collect();
    let names = |n: &[&str]| n.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let want = [
        (names(&["a"]), Some(b"new".to_vec())),
        (names(&["a"]), Some(b"newer".to_vec())),
        (names(&["a", "a.tmp"]), Some(b"new".to_vec())),
    ];
    assert_eq!(seen, want.into_iter().collect());
}

#[test]
fn a_failed_sync_loses_what_it_was_to_write_for_good() {
    for drop_dirty in [false, true] {
        let disk = SimStorage::new();
        let file = create(&disk, "f");
        disk.sync_dir().unwrap();
        file.write_at(0, b"lost").unwrap();
        disk.inject(Fault::new(OpKind::SyncData, FaultKind::SyncFails { drop_dirty }));
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(
            disk.read_file("f").unwrap(),
            if drop_dirty { &b""[..] } else { b"lost" }
        );
        disk.power_cut(0);
        assert_eq!(disk.read_file("f").unwrap(), b"");
        // Written again it is dirty again.
        let file = disk.open("f", Access::ReadWrite).unwrap();
        file.write_at(0, b"kept").unwrap();
        file.sync_data().unwrap();
        disk.power_cut(0);
        assert_eq!(disk.read_file("f").unwrap(), b"kept");
    }
}

#[test]
fn a_crash_takes_handles_and_locks_and_a_kill_keeps_what_was_written() {
    let disk = SimStorage::new();
    let lock = disk.try_lock("LOCK", "me").unwrap();
    assert!(matches!(disk.try_lock("LOCK", "you"), Err(LockError::Held { owner }) if owner == "me"));
    let file = create(&disk, "f");
    file.write_at(0, b"x").unwrap();
    disk.process_kill();
    assert!(file.write_at(0, b"y").is_err());
    let again = disk.try_lock("LOCK", "you").unwrap();
    drop(lock);
    assert!(disk.try_lock("LOCK", "third").is_err());
    drop(again);
    assert_eq!(disk.read_file("f").unwrap(), b"x");
}

#[test]
fn the_machine_dies_at_the_operation_asked_for() {
    for after in [false, true] {
        let disk = SimStorage::new();
        let file = create(&disk, "f");
        let at = disk.mutations();
        if after {
            disk.crash_after(at)
        } else {
            disk.crash_at(at)
        }
        assert!(file.write_at(0, b"x").is_err() && disk.crashed());
        assert!(disk.list().is_err());
        assert_eq!(disk.read_file("f").unwrap().len(), usize::from(after));
        disk.process_kill();
        assert_eq!(disk.list().unwrap(), ["f"]);
    }
}

#[test]
fn faults_strike_when_and_where_they_are_told() {
    let disk = SimStorage::new();
    let (a, b) = (create(&disk, "a"), create(&disk, "b"));
    disk.inject(
        Fault::new(OpKind::Write, FaultKind::NoSpace)
            .on_file("b")
            .nth(2)
            .times(2),
    );
    assert!(a.write_at(0, b"1").is_ok() && b.write_at(0, b"1").is_ok());
    assert!(a.write_at(0, b"1").is_ok());
    for _ in 0..2 {
        assert_eq!(b.write_at(0, b"1").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
    assert!(b.write_at(0, b"1").is_ok());
    assert_eq!(disk.faults_hit(), 2);
    disk.inject(Fault::new(OpKind::Write, FaultKind::Short(3)));
    disk.inject(Fault::new(OpKind::Write, FaultKind::Interrupted).nth(2));
    write_all_at(&*a, 0, b"whole all the same").unwrap();
    assert_eq!(disk.read_file("a").unwrap(), b"whole all the same");
}

#[test]
fn a_full_disk_takes_what_fits_and_overwrites_go_on() {
    let disk = SimStorage::new();
    let file = create(&disk, "f");
    disk.set_capacity(Some(10));
    assert_eq!(file.write_at(0, &[1; 16]).unwrap(), 10);
    assert_eq!(
        file.write_at(10, &[1; 1]).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    assert_eq!(file.write_at(0, &[2; 10]).unwrap(), 10);
    assert!(file.set_len(11).is_err());
}

#[test]
fn an_ignored_sync_keeps_nothing() {
    let disk = SimStorage::new();
    disk.inject(Fault::new(OpKind::SyncData, FaultKind::IgnoreSync));
    disk.inject(Fault::new(OpKind::SyncDir, FaultKind::IgnoreSync));
    let file = create(&disk, "f");
    file.write_at(0, b"x").unwrap();
    file.sync_data().unwrap();
    disk.sync_dir().unwrap();
    assert!(disk.durable_file("f").is_none());
}
