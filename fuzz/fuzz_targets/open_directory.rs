//! A directory of damaged, exchanged and arbitrary files. Looking changes nothing; what is read was appended; what opens is a prefix, and takes
//! appends that are there after the next opening.

#![no_main]

use std::sync::Arc;

use fuzz::{Input, harm, log_options, sound_log, sound_records};
use libfuzzer_sys::fuzz_target;
use wal::inspect::{Survivor, Survivors, verify};
use wal::storage::Storage;

fuzz_target!(|data: &[u8]| {
    let records = sound_records();
    let disk = sound_log();
    harm(&disk, &mut Input(data));
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let before = disk.fingerprint();
    let verified = verify(&storage);
    if let Ok(mut survivors) = Survivors::open(&storage) {
        while let Ok(Some(survivor)) = survivors.next() {
            if let Survivor::Record(record) = survivor {
                assert_eq!(record.bytes, records[record.offset as usize], "a record that was never appended");
            }
        }
    }
    if let Ok(view) = log_options().open_read_only_storage(Arc::clone(&storage)) {
        let mut reader = view.reader(view.start()).expect("the start is in the log");
        while let Ok(Some(record)) = reader.next() {
            assert_eq!(record.bytes, records[record.offset as usize]);
        }
    }
    assert_eq!(disk.fingerprint(), before, "looking changed it");
    let Ok(log) = log_options().open_storage(Arc::clone(&storage)) else { return };
    let (start, end) = (log.start(), log.end());
    assert!(end <= records.len() as u64, "longer than what was appended");
    let mut reader = log.reader(start).expect("the start is in the log");
    let mut whole = true;
    for offset in start..end {
        match reader.next() {
            Ok(Some(record)) => assert_eq!((record.offset, record.bytes), (offset, &records[offset as usize][..])),
            Ok(None) => panic!("a hole at {offset}"),
            Err(_) => {
                whole = false;
                break;
            }
        }
    }
    if whole && let Ok(verified) = verified {
        assert!(verified.end <= records.len() as u64);
    }
    if log.append(b"on").is_ok() {
        log.close().expect("closes");
        let again = log_options().open_storage(storage).expect("opens again");
        assert_eq!(again.end(), end + 1);
        assert_eq!(again.read(end).expect("reads"), b"on");
    }
});
