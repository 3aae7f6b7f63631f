use std::sync::Arc;

use wal::storage::sim::SimStorage;

use crate::disks::{log_options, store_options};

/// The bytes of a write. Any bytes: an answer or an error, never more memory than the input; the same answer each time.
pub fn store_payload(data: &[u8]) {
    let Ok(committed) = kv::Committed::decode(7, data) else {
        return;
    };
    assert_eq!(committed.offset, 7);
    let bytes: usize = committed
        .changes
        .iter()
        .map(|c| c.key.len() + c.value.as_ref().map_or(0, Vec::len))
        .sum();
    assert!(
        bytes + committed.changes.len() <= data.len(),
        "more than the input holds"
    );
    // The same changes, written through a store, are the same state as the record itself.
    let state = |write: &dyn Fn(&SimStorage)| {
        let disk = SimStorage::new();
        write(&disk);
        store_options()
            .open_storage(Arc::new(disk))
            .map(|store| store.snapshot())
    };
    let raw = state(&|disk| {
        let log = log_options().open_storage(Arc::new(disk.clone())).expect("opens");
        log.append(data).expect("appends");
    });
    let through = state(&|disk| {
        let mut batch = kv::Batch::new();
        for change in &committed.changes {
            match &change.value {
                Some(value) => batch.put(&change.key, value),
                None => batch.delete(&change.key),
            };
        }
        let store = store_options().open_storage(Arc::new(disk.clone())).expect("opens");
        store.write(&batch).expect("writes");
    });
    let (raw, through) = (raw.expect("what decodes opens"), through.expect("opens"));
    assert!(raw.iter().eq(through.iter()));
}
