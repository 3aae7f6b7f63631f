//! Checkpoint files of any bytes, beside a whole log. The store opens, and is what its log says: damage is never believed.

#![no_main]

use std::sync::{Arc, OnceLock};

use fuzz::{Input, harm, sound_store, store_options};
use libfuzzer_sys::fuzz_target;
use wal::storage::Storage;
use wal::storage::sim::SimStorage;

fuzz_target!(|data: &[u8]| {
    static WANT: OnceLock<kv::Snapshot> = OnceLock::new();
    let want = WANT.get_or_init(|| store_options().open_storage(Arc::new(sound_store())).expect("opens").snapshot());
    let disk = sound_store();
    let checkpoints = SimStorage::new();
    let names: Vec<String> = disk.file_names().into_iter().filter(|n| n.starts_with("checkpoint-")).collect();
    for name in &names {
        checkpoints.write_file(name, &disk.read_file(name).expect("is there"));
        disk.remove_file(name);
    }
    harm(&checkpoints, &mut Input(data));
    for name in checkpoints.file_names() {
        disk.write_file(&name, &checkpoints.read_file(&name).expect("is there"));
    }
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let before = disk.fingerprint();
    let _ = kv::verify(&storage);
    assert_eq!(disk.fingerprint(), before, "looking changed it");
    match store_options().open_storage(storage) {
        Ok(store) => assert!(store.snapshot().iter().eq(want.iter()), "not what the log says"),
        // Sound, and of another version or offset than this log has: told, not believed.
        Err(kv::Error::Log(wal::Error::UnsupportedVersion { .. } | wal::Error::Corrupt(_))) => {}
        Err(e) => panic!("{e}"),
    }
});
