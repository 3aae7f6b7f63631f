//! Operations, and what may go wrong with them.

use std::io;

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpKind {
    /// [`super::super::Storage::create_root`].
    CreateRoot,
    /// [`super::super::Storage::list`].
    List,
    /// [`super::super::Storage::open`] of an existing file.
    Open,
    /// [`super::super::Storage::open`] of a new file.
    Create,
    /// [`super::super::Storage::rename`].
    Rename,
    /// [`super::super::Storage::remove`].
    Remove,
    /// [`super::super::Storage::sync_dir`].
    SyncDir,
    /// [`super::super::Storage::try_lock`].
    Lock,
    /// [`super::super::StorageFile::read_at`].
    Read,
    /// [`super::super::StorageFile::write_at`].
    Write,
    /// [`super::super::StorageFile::len`].
    Len,
    /// [`super::super::StorageFile::set_len`].
    SetLen,
    /// [`super::super::StorageFile::sync_data`].
    SyncData,
}

impl OpKind {
    /// Whether it changes the disk, or what survives on it. These are numbered for crashes.
    #[must_use]
    pub fn is_mutation(self) -> bool {
        !matches!(self, Self::List | Self::Open | Self::Lock | Self::Read | Self::Len)
    }
}

/// An operation on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Op {
    /// Its number among all.
    pub index: u64,
    /// Its number among those that change something, or that the next such one will have.
    pub mutation: u64,
    /// What it is.
    pub kind: OpKind,
    /// The file, by its name when it was opened; empty for the directory.
    pub file: String,
    /// Byte position; a new length, for `SetLen`.
    pub pos: u64,
    /// Bytes.
    pub len: u64,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The operation does nothing and fails.
    Error(io::ErrorKind),
    /// The operation does nothing and fails for want of space.
    NoSpace,
    /// A read or write stops after at most so many bytes, at least one.
    Short(usize),
    /// The operation does nothing and is to be tried again.
    Interrupted,
    /// A data sync fails. What it was to write never reaches the disk, and a later sync that succeeds does not change that.
    SyncFails {
        /// Whether reads show the old content from then on (as on file systems that drop such pages), or still the new (as on those that
        /// keep them).
        drop_dirty: bool,
    },
    /// A sync says that it succeeded and does nothing. For tests of tests: one of them must notice.
    IgnoreSync,
    /// The operation panics.
    Panic,
}

/// A fault to come. Matches the first operation of its kind, once, unless told otherwise.
#[derive(Debug, Clone)]
#[must_use = "hand it to `SimStorage::inject`"]
pub struct Fault {
    pub(super) op: OpKind,
    pub(super) kind: FaultKind,
    file: String,
    wait: u64,
    times: u64,
}

impl Fault {
    /// A fault of operations of kind `op`.
    pub fn new(op: OpKind, kind: FaultKind) -> Self {
        Self {
            op,
            kind,
            file: String::new(),
            wait: 0,
            times: 1,
        }
    }

    /// Only on files whose name contains `part`.
    pub fn on_file(mut self, part: &str) -> Self {
        part.clone_into(&mut self.file);
        self
    }

    /// First at the `n`th that matches, from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.wait = n.saturating_sub(1);
        self
    }

    /// That many times in a row.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// From then on always.
    pub fn forever(self) -> Self {
        self.times(u64::MAX)
    }

    /// Whether it strikes now.
    pub(super) fn strikes(&mut self, op: &Op) -> bool {
        if op.kind != self.op || !op.file.contains(&self.file) || self.times == 0 {
            return false;
        }
        if self.wait > 0 {
            self.wait -= 1;
            return false;
        }
        self.times -= 1;
        true
    }
}
