//! What the benches share: a place on the same file system, a time per operation, and the plain loops that the engine is held against.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use criterion::{Criterion, measurement::WallTime};

/// A directory on the file system that the build is on: a temporary one may be memory.
pub fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Few samples and short times: what is measured is a ratio within one run.
pub fn criterion() -> Criterion<WallTime> {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
}

/// The plain loop: records one behind the other into a file of zeros, so that a sync does not have to change its length.
pub struct Plain {
    file: File,
    pos: u64,
    len: u64,
}

impl Plain {
    pub fn new(dir: &tempfile::TempDir) -> Self {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(dir.path().join("plain"));
        let file = file.unwrap();
        let len = 64 << 20;
        let zeros = vec![0; 1 << 20];
        for n in 0..64 {
            file.write_all_at(&zeros, n << 20).unwrap();
        }
        file.sync_all().unwrap();
        Self { file, pos: 0, len }
    }

    pub fn append(&mut self, record: &[u8], sync: bool) {
        if self.pos + record.len() as u64 > self.len {
            self.pos = 0;
        }
        self.file.write_all_at(record, self.pos).unwrap();
        self.pos += record.len() as u64;
        if sync {
            self.file.sync_data().unwrap();
        }
    }
}

/// The time that `threads` take for `ops` calls together.
pub fn shared(threads: u64, ops: u64, call: impl Fn() + Sync) -> Duration {
    let each = ops.div_ceil(threads);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..each).for_each(|_| call()));
        }
    });
    // More may have been done than was asked for.
    started.elapsed() * u32::try_from(ops).unwrap_or(u32::MAX) / u32::try_from(each * threads).unwrap_or(u32::MAX)
}

/// Numbers that are the same in every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
