//! The storage seam: names and bytes in one directory, nothing of what they mean.
//!
//! Every file operation of `wal` and `kv` goes through [`Storage`] and [`StorageFile`], so that a crash test
//! can stand in for the disk. Syncing data ([`StorageFile::sync_data`]) and syncing names
//! ([`Storage::sync_dir`]) are calls of their own: a forgotten one must be observable.
//!
//! [`FsStorage`] is the real file system and the only place that touches `std::fs`. `sim::SimStorage`
//! (feature `sim`) is a deterministic disk with power cuts and injected faults.
//!
//! The directory is flat: one storage is one directory, and names have no separators.

mod fs;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use fs::FsStorage;

/// How [`Storage::open`] opens a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// An existing file, for reading only. Needs no write permission.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A new, empty file; fails with [`io::ErrorKind::AlreadyExists`] when the name is taken.
    Create,
}

/// One directory of files.
///
/// Implementations must be usable from many threads at once. All errors are plain [`io::Error`]s: the caller knows
/// which operation on which file it asked for and says so in its own error.
pub trait Storage: Debug + Send + Sync {
    /// Where this is, for messages. A simulator may answer any name.
    fn root(&self) -> &Path;

    /// Creates the directory where it is missing, and makes its own name durable in its parent, also when it is there: whoever made it
    /// may have failed to. The parent must exist.
    fn create_root(&self) -> io::Result<()>;

    /// Names of the files in the directory, in no particular order. Subdirectories are left out, and so are names
    /// that are not UTF-8: no file of ours has one. [`io::ErrorKind::NotFound`] when the directory is missing.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens the file `name`.
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn StorageFile>>;

    /// Gives the file `from` the name `to`, replacing what had it, in one step. Durable after [`Storage::sync_dir`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes the name. Open files stay readable. Durable after [`Storage::sync_dir`].
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes every creation, renaming and removal that has returned survive a power cut.
    fn sync_dir(&self) -> io::Result<()>;

    /// Takes the exclusive lock that belongs to the file `name`, creating the file where it is missing, and leaves
    /// `owner` in it for people to read. Never waits. The lock ends with the returned guard or with the process; the mere
    /// existence of the file locks nothing.
    fn try_lock(&self, name: &str, owner: &str) -> Result<Box<dyn StorageLock>, LockError>;
}

/// An open file. Positions and lengths are in bytes.
pub trait StorageFile: Debug + Send + Sync {
    /// Reads into `buf` from `pos`. Returns how many bytes were read, 0 at or past the end; may read fewer than asked.
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes from `buf` at `pos`, extending the file as needed. Returns how many bytes were written; may write fewer
    /// than asked. [`write_all_at`] goes on until all are.
    fn write_at(&self, pos: u64, buf: &[u8]) -> io::Result<usize>;

    /// The file's length.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes every write and length change that has returned survive a power cut. After an error nothing may be
    /// assumed of what was not yet synced, and a second call proves nothing: it may succeed with the data gone
    /// (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020).
    fn sync_data(&self) -> io::Result<()>;
}

/// A held lock. Dropping it releases.
pub trait StorageLock: Debug + Send + Sync {}

/// Why [`Storage::try_lock`] gave no lock.
#[derive(Debug)]
pub enum LockError {
    /// Somebody holds it. `owner` is what the holder left in the file, empty where it could not be read.
    Held {
        /// The holder's own words.
        owner: String,
    },
    /// The lock could not be tried.
    Io(io::Error),
}

/// Writes all of `buf` at `pos`, going on after short and interrupted writes.
pub fn write_all_at(file: &dyn StorageFile, mut pos: u64, mut buf: &[u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match file.write_at(pos, buf) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                pos += n as u64;
                buf = &buf[n..];
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads from `pos` until `buf` is full or the file ends, going on after short and interrupted reads. Returns how many
/// bytes were read.
pub fn read_full_at(file: &dyn StorageFile, mut pos: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(pos, &mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => {
                pos += n as u64;
                filled += n;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Gives the file `name` the content `bytes` in one durable step: after a crash at any moment the old content or the
/// new is there, whole.
///
/// The order is: write `name.tmp`, sync it, rename it over `name`, sync the directory.
pub fn replace_file(storage: &dyn Storage, name: &str, bytes: &[u8]) -> io::Result<()> {
    let tmp = format!("{name}.tmp");
    let file = create_afresh(storage, &tmp)?;
    write_all_at(&*file, 0, bytes)?;
    file.sync_data()?;
    storage.rename(&tmp, name)?;
    storage.sync_dir()
}

/// Creates the file `name`, after removing a left-over of that name.
pub fn create_afresh(storage: &dyn Storage, name: &str) -> io::Result<Arc<dyn StorageFile>> {
    match storage.remove(name) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    storage.open(name, Access::Create)
}
