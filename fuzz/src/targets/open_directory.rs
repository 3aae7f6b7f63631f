use std::sync::Arc;

use wal::inspect::{Survivor, Survivors, verify};
use wal::storage::Storage;

use crate::disks::{log_options, sound_log, sound_records};
use crate::harm::harm;
use crate::input::Input;
use crate::seal::seal;

/// A directory of damaged, exchanged and arbitrary files. Looking changes nothing; what is read was appended; what opens has no hole, and takes
/// appends that are there after the next opening.
///
/// Where the sums were put right behind the harm (bit 1 of the first byte) a record may be one that nobody appended, and everything else must
/// hold as well. Bit 0 chooses a log that was closed over one that was killed.
pub fn open_directory(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let forged = mode & 2 != 0;
    let disk = sound_log(mode & 1 != 0);
    harm(&disk, &mut input);
    if forged {
        seal(&disk);
    }
    let genuine = |offset: u64, bytes: &[u8]| {
        let appended = usize::try_from(offset).ok().and_then(|n| sound_records().get(n));
        assert!(
            forged || appended.is_some_and(|record| record == bytes),
            "record {offset} was never appended"
        );
    };
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let before = disk.fingerprint();
    let _ = verify(&storage);
    if let Ok(mut survivors) = Survivors::open(&storage) {
        while let Ok(Some(survivor)) = survivors.next() {
            if let Survivor::Record(record) = survivor {
                genuine(record.offset, record.bytes);
            }
        }
    }
    let mut viewed = None;
    if let Ok(view) = log_options().open_read_only_storage(Arc::clone(&storage)) {
        let (start, end) = (view.start(), view.written_end());
        let mut records = Vec::new();
        let mut reader = view.reader(start).expect("the start is in the log");
        while let Ok(Some(record)) = reader.next() {
            genuine(record.offset, record.bytes);
            records.push((record.offset, record.bytes.to_vec()));
        }
        viewed = Some((start, end, records));
    }
    assert_eq!(disk.fingerprint(), before, "looking changed it");

    let Ok(log) = log_options().open_storage(Arc::clone(&storage)) else {
        return;
    };
    let (start, end) = (log.start(), log.end());
    assert!(
        forged || end <= sound_records().len() as u64,
        "longer than what was appended"
    );
    let mut records = Vec::new();
    let mut reader = log.reader(start).expect("the start is in the log");
    let whole = loop {
        match reader.next() {
            Ok(Some(record)) => {
                genuine(record.offset, record.bytes);
                assert_eq!(record.offset, start + records.len() as u64, "a record at another place");
                records.push((record.offset, record.bytes.to_vec()));
            }
            Ok(None) => {
                assert_eq!(start + records.len() as u64, end, "a hole");
                break true;
            }
            Err(_) => break false,
        }
    };
    if let Some((viewed_start, viewed_end, viewed)) = viewed {
        assert_eq!((viewed_start, viewed_end), (start, end), "two openers differ");
        assert!(
            viewed.iter().zip(&records).all(|(a, b)| a == b),
            "two openers read differently"
        );
    }
    if let Ok(mut consumer) = log.consumer("c").open_existing() {
        let from = consumer.position();
        if let Ok(polled) = consumer.poll(5) {
            for (n, (offset, bytes)) in polled.iter().enumerate() {
                assert_eq!(*offset, from + n as u64, "a consumer skipped a record");
                genuine(*offset, bytes);
            }
            let _ = consumer.commit();
        }
    }
    if log.append(b"on").is_ok() {
        let _ = log.retain();
        log.close().expect("closes");
        let again = log_options().open_storage(storage).expect("opens again");
        assert_eq!(again.end(), end + 1);
        match again.read(end) {
            Ok(record) => assert_eq!(record, b"on"),
            // Damage that opening does not look for, before it in its segment.
            Err(e) => assert!(!whole, "{e}"),
        }
    }
}
