//! The tool as people run it: output, exit codes, and what it leaves alone.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn walctl(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_walctl"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()))
        .collect()
}

#[test]
fn lines_and_files_go_in_and_come_out_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = path.to_str().unwrap();
    let output = walctl(&["append", log], b"one\n\nthree");
    assert_eq!((code(&output), text(&output.stdout)), (0, "0\n1\n2\n"), "{output:?}");
    let binary = dir.path().join("binary");
    std::fs::write(&binary, b"\xff\x00\n").unwrap();
    let output = walctl(
        &["append", log, "--policy", "os", "--from-file", binary.to_str().unwrap()],
        b"",
    );
    assert_eq!((code(&output), text(&output.stdout)), (0, "3\n"));
    let output = walctl(&["cat", log, "--json"], b"");
    let lines: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(
        lines[0],
        serde_json::json!({ "offset": 0, "base64": "b25l", "text": "one" })
    );
    assert_eq!(lines[1]["text"], "");
    assert_eq!(lines[3], serde_json::json!({ "offset": 3, "base64": "/wAK" }));
    let output = walctl(&["cat", log, "--from", "1", "--to", "3"], b"");
    assert_eq!(text(&output.stdout), "1\t\n2\tthree\n");
    let output = walctl(&["info", log, "--json"], b"");
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&info["start"], &info["end"], &info["was_closed"]),
        (&0.into(), &4.into(), &true.into())
    );
    assert_eq!(code(&walctl(&["verify", log], b"")), 0);
}

#[test]
fn wrong_usage_and_wrong_places_are_1_and_create_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    for args in [
        &["info", missing][..],
        &["cat", missing],
        &["verify", missing],
        &["consumers", missing],
        &["nonsense"],
        &[],
    ] {
        let output = walctl(args, b"");
        assert_eq!(code(&output), 1, "{args:?}: {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let other = dir.path().join("photos");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("a.jpg"), "x").unwrap();
    let output = walctl(&["append", other.to_str().unwrap()], b"x\n");
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("a.jpg"), "{output:?}");
    assert_eq!(files(&other).len(), 1);
    assert_eq!(code(&walctl(&["--help"], b"")), 0);
    assert_eq!(code(&walctl(&["append", missing, "--segment-bytes", "1"], b"")), 1);
}

#[test]
fn damage_is_2_and_the_others_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = path.to_str().unwrap();
    let lines: String = (0..300).map(|n| format!("line {n}\n")).collect();
    assert_eq!(
        code(&walctl(&["append", log, "--segment-bytes", "2048"], lines.as_bytes())),
        0
    );
    let segment = files(&path).into_keys().filter(|n| n.ends_with(".wal")).nth(1).unwrap();
    let segment = path.join(segment);
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(5).position(|w| w == b"line ").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let before = files(&path);
    let output = walctl(&["verify", log, "--json"], b"");
    assert_eq!(code(&output), 2);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found["clean"], found["records"].as_u64().unwrap()),
        (&false.into(), 299)
    );
    assert_eq!(found["damage"].as_array().unwrap().len(), 1);
    let lost = found["damage"][0]["lost"]["from"].as_u64().unwrap();
    let output = walctl(&["cat", log], b"");
    assert_eq!((code(&output), text(&output.stdout).lines().count() as u64), (2, lost));
    assert!(text(&output.stderr).contains(&format!("offset {lost}")));
    let output = walctl(&["cat", log, "--past-damage"], b"");
    assert_eq!((code(&output), text(&output.stdout).lines().count()), (2, 299));
    walctl(&["info", log], b"");
    walctl(&["consumers", log], b"");
    assert!(before == files(&path), "looking changed it");
}

#[test]
fn a_torn_tail_is_clean_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = path.to_str().unwrap();
    assert_eq!(code(&walctl(&["append", log], b"whole\n")), 0);
    // A frame that was being written when the power failed.
    let segment = path.join(files(&path).into_keys().find(|n| n.ends_with(".wal")).unwrap());
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes.extend_from_slice(&[7; 21]);
    std::fs::write(&segment, bytes).unwrap();
    let output = walctl(&["verify", log], b"");
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(text(&output.stdout).contains("torn"), "{output:?}");
    let output = walctl(&["append", log], b"after\n");
    assert_eq!((code(&output), text(&output.stdout)), (0, "1\n"));
    assert_eq!(text(&walctl(&["cat", log], b"").stdout), "0\twhole\n1\tafter\n");
}

#[test]
fn it_looks_beside_a_writer_and_a_second_writer_is_told_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let writer = wal::Options::new().open(&path).unwrap();
    writer.append(b"a").unwrap();
    writer.append(b"b").unwrap();
    drop(writer.consumer("c").open().unwrap());
    let log = path.to_str().unwrap();
    for command in ["info", "verify", "consumers", "cat"] {
        assert_eq!(code(&walctl(&[command, log], b"")), 0, "{command}");
    }
    let output = walctl(&["append", log], b"x\n");
    assert_eq!(code(&output), 1);
    assert!(
        text(&output.stderr).contains(&std::process::id().to_string()),
        "{output:?}"
    );
}
