//! Operations, and what may go wrong with them.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The file, by the name that it has now, or had when it was opened if it has none; empty for the directory.
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
    /// A data sync fails. What it was to write never reaches the disk, and a later sync that succeeds does not change that. At the
    /// creation of the directory: it is there, but its name is not durable.
    SyncFails {
        /// Whether reads show the old content from then on (as on file systems that drop such pages), or still the new (as on those that
        /// keep them).
        drop_dirty: bool,
    },
    /// As `SyncFails` with `drop_dirty`, but the error says that space is wanting: where space is only found at the sync, what found none is
    /// lost.
    SyncFindsNoSpace,
    /// A sync, also that of a new directory's name, says that it succeeded and does nothing. For tests of tests: one of them must notice.
    IgnoreSync,
    /// The operation panics.
    Panic,
}

/// A fault to come. Matches the first operation of its kind, once, unless told otherwise.
#[derive(Clone)]
#[must_use = "hand it to `SimStorage::inject`"]
pub struct Fault {
    pub(super) op: OpKind,
    pub(super) kind: FaultKind,
    file: String,
    only_if: Option<Condition>,
    wait: u64,
    times: u64,
}

type Condition = Arc<dyn Fn(&Op, Option<&Op>) -> bool + Send + Sync>;

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            op,
            kind,
            file,
            wait,
            times,
            ..
        } = self;
        write!(f, "{kind:?} at {op:?} on {file:?}, after {wait}, {times} times")
    }
}

impl Fault {
    /// A fault of operations of kind `op`.
    pub fn new(op: OpKind, kind: FaultKind) -> Self {
        Self {
            op,
            kind,
            file: String::new(),
            only_if: None,
            wait: 0,
            times: 1,
        }
    }

    /// Only on files whose name contains `part`.
    pub fn on_file(mut self, part: &str) -> Self {
        part.clone_into(&mut self.file);
        self
    }

    /// Only where `condition` holds of the operation and of the change before it, if there was one.
    pub fn only_if(mut self, condition: impl Fn(&Op, Option<&Op>) -> bool + Send + Sync + 'static) -> Self {
        self.only_if = Some(Arc::new(condition));
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
    pub(super) fn strikes(&mut self, op: &Op, before: Option<&Op>) -> bool {
        if op.kind != self.op || !op.file.contains(&self.file) || self.times == 0 {
            return false;
        }
        if self.only_if.as_ref().is_some_and(|holds| !holds(op, before)) {
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
