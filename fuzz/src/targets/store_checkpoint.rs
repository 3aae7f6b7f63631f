use std::sync::{Arc, OnceLock};

use wal::storage::Storage;
use wal::storage::sim::SimStorage;

use crate::disks::{sound_store, store_options};
use crate::harm::harm;
use crate::input::Input;
use crate::seal::seal;

/// Checkpoint files of any bytes, beside a whole log. The store opens, and is what its log says: damage is never believed.
///
/// Where the sums were put right behind the harm (bit 0 of the first byte) a checkpoint may say what it likes; then the store opens or tells why
/// not, and keeps what is put into it.
pub fn store_checkpoint(data: &[u8]) {
    static WANT: OnceLock<kv::Snapshot> = OnceLock::new();
    let want = WANT.get_or_init(|| {
        store_options()
            .open_storage(Arc::new(sound_store()))
            .expect("opens")
            .snapshot()
    });
    let mut input = Input(data);
    let forged = input.byte() & 1 != 0;
    let disk = sound_store();
    let checkpoints = SimStorage::new();
    for name in disk.file_names().into_iter().filter(|n| n.starts_with("checkpoint-")) {
        checkpoints.write_file(&name, &disk.read_file(&name).expect("is there"));
        disk.remove_file(&name);
    }
    harm(&checkpoints, &mut input);
    if forged {
        seal(&checkpoints);
    }
    for name in checkpoints.file_names() {
        disk.write_file(&name, &checkpoints.read_file(&name).expect("is there"));
    }
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let before = disk.fingerprint();
    let _ = kv::verify(&storage);
    assert_eq!(disk.fingerprint(), before, "looking changed it");
    let opened = store_options().open_storage(Arc::clone(&storage));
    if !forged {
        match opened {
            Ok(store) => assert!(store.snapshot().iter().eq(want.iter()), "not what the log says"),
            // Sound, and of another version or offset than this log has: told, not believed.
            Err(kv::Error::Log(wal::Error::UnsupportedVersion { .. } | wal::Error::Corrupt(_))) => {}
            Err(e) => panic!("{e}"),
        }
    } else if let Ok(store) = opened {
        let keys = store.snapshot().iter().map(|(key, _)| key.to_vec()).collect::<Vec<_>>();
        assert!(keys.is_sorted_by(|a, b| a < b), "keys out of order");
        assert_eq!(keys.len(), store.len());
        store.put("key", "value").expect("puts");
        store.checkpoint().expect("makes a checkpoint");
        store.close().expect("closes");
        let again = store_options().open_storage(storage).expect("opens again");
        assert_eq!(again.get("key").expect("gets").as_deref(), Some(&b"value"[..]));
    }
}
