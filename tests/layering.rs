//! Goal: the architecture holds. Only `storage/fs.rs` touches the file system, and no layer uses one above it.
//! Method: read the sources.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let mut found = Vec::new();
    let mut todo = vec![root];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no sources under {dir}");
    found
}

#[test]
fn only_the_real_storage_touches_the_file_system() {
    for (path, text) in sources("wal/src").into_iter().chain(sources("kv/src")) {
        if path.ends_with("storage/fs.rs") {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (n, line) in code.lines().enumerate() {
            let line = line.trim();
            assert!(
                line.starts_with("//") || !line.contains("std::fs"),
                "{}:{}: {line}",
                path.display(),
                n + 1
            );
        }
    }
}
