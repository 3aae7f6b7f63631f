//! Makes the seed corpus: `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let dir = corpus.join(target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(name), bytes)
    };
    // A frame as it stands at the position that the prefix names, alone and as a batch.
    let log = [7; 16];
    for (name, records) in [("one", vec![&b"record"[..]]), ("batch", vec![&b"a"[..], b"", b"ccc"])] {
        let frame = wal::inspect::encode_frame(&records, 3, 1, &log, 1, 4096).expect("small");
        put("record_decoder", name, &[&[0, 7, 0, 0][..], &frame].concat())?;
    }
    put("record_decoder", "encode", &[1, 7, 0, 0, 9, 0, 2, 40, 0, 1, 3, b'a', b'b', b'c', 0, 1, b'd'])?;
    // One piece of harm of each kind.
    for kind in 0..7u8 {
        for file in 0..6u8 {
            let harm = [file, file + 1, kind, 0x10, 0x10, 8, 1, 2, 3, 4, 5, 6, 7, 8];
            put("open_directory", &format!("{kind}-{file}"), &harm)?;
            put("store_checkpoint", &format!("{kind}-{file}"), &harm)?;
        }
    }
    put("open_directory", "none", &[])?;
    put("store_payload", "put", &[1, 0, 1, 0, 1, b'k', 5, b'v', b'a', b'l', b'u', b'e'])?;
    put("store_payload", "delete", &[1, 0, 2, 1, 1, b'k', 0, 0, 0])?;
    let store = fuzz::sound_store();
    for name in store.file_names().iter().filter(|n| n.starts_with("checkpoint-")) {
        let bytes = store.read_file(name).expect("is there");
        let len = u16::try_from(bytes.len()).expect("small").to_le_bytes();
        put("store_checkpoint", name, &[&[0, 0, 6][..], &len, &bytes].concat())?;
    }
    Ok(())
}
