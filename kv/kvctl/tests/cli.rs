//! The tool as people run it.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::process::{Command, Output};

fn kvctl(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvctl")).args(args).output().unwrap()
}

#[test]
fn k3_verify_proves_a_store_and_finds_what_is_wrong_with_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = kv::Options::new().open(&path).unwrap();
    for n in 0..100u32 {
        store.put((n % 30).to_le_bytes(), n.to_le_bytes()).unwrap();
        if n == 50 {
            store.checkpoint().unwrap();
        }
    }
    let dir = path.to_str().unwrap();
    // Beside the writer, and after it.
    assert_eq!(kvctl(&["verify", dir]).status.code(), Some(0));
    store.close().unwrap();
    let output = kvctl(&["verify", dir, "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["checkpoints"][0]["equals_fold"], true);
    assert_eq!(
        (&found["fold"]["to"], &found["fold"]["keys"]),
        (&100.into(), &30.into())
    );
    let file = found["checkpoints"][0]["file"].as_str().unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    bytes[120] ^= 1;
    std::fs::write(file, bytes).unwrap();
    let output = kvctl(&["verify", dir]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stdout).unwrap().contains("DAMAGE"));
    assert_eq!(kvctl(&["verify", "/nowhere/at/all"]).status.code(), Some(1));
}
