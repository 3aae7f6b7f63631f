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

#[test]
fn no_layer_of_the_log_uses_one_above_it() {
    const DATA: &[&str] = &["offset", "error", "options", "report", "clock", "stats", "threads"];
    let layers: &[(&str, &[&str])] = &[
        ("codec", &[]),
        ("storage", &[]),
        ("segment", &["codec", "storage"]),
        ("log", &["codec", "storage", "segment"]),
        ("consumer", &["codec", "storage", "log"]),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("wal/src");
    let mut checked = 0;
    for (path, text) in sources("wal/src") {
        let inside = path.strip_prefix(&root).unwrap();
        let layer = inside
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap()
            .trim_end_matches(".rs");
        let allowed: Vec<&str> = match layers.iter().find(|(name, _)| *name == layer) {
            Some((name, below)) => below.iter().chain(DATA).chain([name]).copied().collect(),
            // Plain data knows plain data, and the formats' own limits.
            None if DATA.contains(&layer) => DATA.iter().chain(&["codec"]).copied().collect(),
            None => continue,
        };
        let code = text.split("#[cfg(test)]").next().unwrap();
        for used in code
            .lines()
            .filter(|l| !l.trim().starts_with("//"))
            .flat_map(|l| l.split("crate::").skip(1))
        {
            let name: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            // Types are re-exported at the top; modules are what layers are.
            if name.starts_with(char::is_lowercase) {
                assert!(
                    allowed.contains(&name.as_str()),
                    "{}: {layer} uses {name}",
                    inside.display()
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 50, "{checked}");
}
