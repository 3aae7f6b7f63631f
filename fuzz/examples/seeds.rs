//! Where the corpus begins, to be grown by fuzzing and made small again after a change of the format:
//! `cargo run --manifest-path fuzz/Cargo.toml --example seeds DIR`.

use std::fs;
use std::path::PathBuf;

use fuzz::disks::sound_store;
use fuzz::harm::KINDS;

fn main() -> std::io::Result<()> {
    let corpus = PathBuf::from(std::env::args_os().nth(1).expect("the directory to write to"));
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let dir = corpus.join(target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(name), bytes)
    };
    // A frame as it stands at the position that the prefix names, alone and as a batch, with its sums and without.
    let log = [7; 16];
    for (name, records) in [("one", vec![&b"record"[..]]), ("batch", vec![&b"a"[..], b"", b"ccc"])] {
        let mut frame = wal::inspect::encode_frame(&records, 3, 1, &log, 1, 4096).expect("small");
        put("record_decoder", name, &[&[0, 7, 0, 0][..], &frame].concat())?;
        frame[..4].fill(0);
        frame[24..32].fill(0);
        put(
            "record_decoder",
            &format!("{name}-forged"),
            &[&[2, 7, 0, 0][..], &frame].concat(),
        )?;
    }
    put(
        "record_decoder",
        "encode",
        &[1, 7, 0, 0, 9, 0, 2, 40, 0, 1, 3, b'a', b'b', b'c', 0, 1, b'd'],
    )?;
    // One piece of harm of each kind to each file, with and without the sums put right.
    for mode in 0..4u8 {
        for kind in 0..KINDS {
            for file in 0..10u8 {
                let harm = [mode, file, file + 1, kind, 0x10, 0x10, 8, 1, 2, 3, 4, 5, 6, 7, 8];
                put("open_directory", &format!("{mode}-{kind}-{file}"), &harm)?;
                put("store_checkpoint", &format!("{mode}-{kind}-{file}"), &harm)?;
            }
        }
        put("open_directory", &format!("{mode}-none"), &[mode])?;
    }
    for (n, put_or_delete) in [
        &[1, 0, 1, 0, 1, b'k', 5, b'v', b'a', b'l', b'u', b'e'][..],
        &[1, 0, 2, 1, 1, b'k', 0, 0, 0],
    ]
    .iter()
    .enumerate()
    {
        put("store_payload", &n.to_string(), put_or_delete)?;
    }
    let store = sound_store();
    for name in store.file_names().iter().filter(|n| n.starts_with("checkpoint-")) {
        let bytes = store.read_file(name).expect("is there");
        let len = u16::try_from(bytes.len()).expect("small").to_le_bytes();
        for mode in 0..2u8 {
            put(
                "store_checkpoint",
                &format!("{mode}-{name}"),
                &[&[mode, 0, 0, 6][..], &len, &bytes].concat(),
            )?;
        }
    }
    Ok(())
}
