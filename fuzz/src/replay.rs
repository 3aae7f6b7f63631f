//! The corpus as a test: `cargo test --manifest-path fuzz/Cargo.toml --lib`.

use std::fs;
use std::path::Path;

use crate::targets::ALL;

#[test]
fn every_input_of_the_corpus_keeps_the_promises() {
    for (name, target) in ALL {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut inputs = 0;
        for entry in fs::read_dir(&dir).expect("each target has a corpus") {
            target(&fs::read(entry.expect("is listed").path()).expect("reads"));
            inputs += 1;
        }
        assert!(inputs > 10, "{name}: a corpus of {inputs} inputs is none");
    }
}
