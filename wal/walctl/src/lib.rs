//! What the command-line tools share: exit codes, errors in words, and findings as text and as JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};
use wal::inspect::{Finding, SegmentInfo, Verification};
use wal::{ConsumerInfo, Cut, Note};

/// All is well; a torn tail from a crash is.
pub const CLEAN: u8 = 0;
/// Wrong usage, or the operating system refused.
pub const FAILED: u8 = 1;
/// Damage was found.
pub const DAMAGED: u8 = 2;

/// Why a tool stopped.
#[derive(Debug)]
pub enum Failure {
    /// The log's own error.
    Log(wal::Error),
    /// Any other error, in words.
    Other(String),
    /// Whoever read the output has gone away: no error.
    PipeClosed,
}

impl From<wal::Error> for Failure {
    fn from(e: wal::Error) -> Self {
        Self::Log(e)
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            Self::PipeClosed
        } else {
            Self::Other(e.to_string())
        }
    }
}

impl Failure {
    fn exit(&self) -> u8 {
        match self {
            Self::Log(e) if e.is_corruption() => DAMAGED,
            Self::PipeClosed => CLEAN,
            Self::Log(_) | Self::Other(_) => FAILED,
        }
    }
}

/// An error and everything behind it, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(e) = source {
        text = format!("{text}: {e}");
        source = e.source();
    }
    text
}

/// Parses the command line. Help goes to standard output with code 0; wrong usage to standard error with code 1, because 2 is damage.
///
/// # Errors
/// The code to exit with.
pub fn parse<A: clap::Parser>() -> Result<A, ExitCode> {
    A::try_parse().map_err(|e| {
        let _ = e.print();
        ExitCode::from(if e.use_stderr() { FAILED } else { CLEAN })
    })
}

/// Ends a tool: says what failed, and turns it into an exit code.
#[must_use]
pub fn finish(tool: &str, result: Result<u8, Failure>) -> ExitCode {
    let code = match &result {
        Ok(code) => *code,
        Err(failure) => {
            let text = match failure {
                Failure::Log(e) => Some(chain(e)),
                Failure::Other(text) => Some(text.clone()),
                Failure::PipeClosed => None,
            };
            if let Some(text) = text {
                eprintln!("{tool}: {text}");
            }
            failure.exit()
        }
    };
    ExitCode::from(code)
}

/// A segment as JSON.
#[must_use]
pub fn segment_json(s: &SegmentInfo) -> Value {
    json!({
        "file": s.file, "generation": s.generation, "base_offset": s.base_offset, "end_offset": s.end_offset,
        "file_bytes": s.file_bytes, "end_pos": s.end_pos, "created_ms": s.created_ms,
    })
}

/// A torn tail as JSON; null for none.
#[must_use]
pub fn cut_json(cut: Option<&Cut>) -> Value {
    cut.map_or(Value::Null, |c| {
        json!({ "file": c.file, "pos": c.pos, "bytes": c.bytes, "offset": c.offset, "evidence": c.evidence.to_string() })
    })
}

/// A note as JSON.
#[must_use]
pub fn note_json(n: &Note) -> Value {
    json!({ "file": n.file, "pos": n.pos, "what": n.what })
}

/// A piece of damage as JSON.
#[must_use]
pub fn finding_json(f: &Finding) -> Value {
    json!({
        "file": f.corruption.file, "pos": f.corruption.pos, "offset": f.corruption.offset,
        "damage": f.corruption.damage.to_string(),
        "witness": f.corruption.witness.as_ref().map(ToString::to_string),
        "lost": { "from": f.lost.start, "to": f.lost.end },
    })
}

/// A consumer as JSON.
#[must_use]
pub fn consumer_json(c: &ConsumerInfo) -> Value {
    let since_1970 = c.committed_at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    json!({
        "name": c.name, "committed": c.committed, "lag": c.lag,
        "delivery": format!("{:?}", c.delivery), "reset": format!("{:?}", c.reset),
        "committed_ms": u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX), "damaged": c.damaged,
    })
}

/// A verification as JSON.
#[must_use]
pub fn verification_json(v: &Verification) -> Value {
    json!({
        "clean": v.is_clean(), "start": v.start, "end": v.end, "durable_end": v.proven_end, "was_closed": v.was_closed,
        "records": v.records, "record_bytes": v.record_bytes,
        "segments": v.segments.iter().map(segment_json).collect::<Vec<_>>(),
        "torn": cut_json(v.cut.as_ref()),
        "damage": v.damage.iter().map(finding_json).collect::<Vec<_>>(),
        "notes": v.notes.iter().map(note_json).collect::<Vec<_>>(),
    })
}

/// A torn tail in words.
///
/// # Errors
/// Those of `out`.
pub fn print_cut(out: &mut dyn Write, cut: &Cut) -> io::Result<()> {
    writeln!(
        out,
        "torn    {} bytes at {} of {}, where offset {} would be: {}; cut off at the next open for writing, nothing was promised",
        cut.bytes, cut.pos, cut.file, cut.offset, cut.evidence
    )
}

/// A verification in words.
///
/// # Errors
/// Those of `out`.
pub fn print_verification(out: &mut dyn Write, v: &Verification) -> io::Result<()> {
    writeln!(
        out,
        "records {} ({} bytes), offsets {}..{}, durable to {}",
        v.records, v.record_bytes, v.start, v.end, v.proven_end
    )?;
    for s in &v.segments {
        writeln!(
            out,
            "segment {} offsets {}..{}, {} bytes",
            s.file, s.base_offset, s.end_offset, s.file_bytes
        )?;
    }
    if let Some(cut) = &v.cut {
        print_cut(out, cut)?;
    }
    for n in &v.notes {
        writeln!(out, "note    {} at {}: {}", n.file, n.pos, n.what)?;
    }
    for f in &v.damage {
        writeln!(
            out,
            "DAMAGE  {} at {}: {}",
            f.corruption.file, f.corruption.pos, f.corruption.damage
        )?;
        if let Some(witness) = &f.corruption.witness {
            writeln!(out, "        it was durable: {witness}")?;
        }
        if f.lost.is_empty() {
            writeln!(out, "        costs no record that is known")?;
        } else {
            writeln!(out, "        costs offsets {}..{}", f.lost.start, f.lost.end)?;
        }
    }
    Ok(())
}
