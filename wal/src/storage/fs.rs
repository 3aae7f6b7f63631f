//! The real file system, through `std` alone.
//!
//! `File::sync_data` is `fdatasync` on Linux and `F_FULLFSYNC` on macOS, so the drive's cache is included there.
//! `std` opens every file close-on-exec: a child process inherits neither descriptors nor the lock. A child made by a bare fork does, and is
//! refused every change: two processes that append to one file would write over each other.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Access, LockError, Storage, StorageFile, StorageLock};

/// A directory of the file system.
#[derive(Debug, Clone)]
pub struct FsStorage {
    root: PathBuf,
    process: Process,
}

impl FsStorage {
    /// The directory at `root`. Touches nothing: see [`Storage::create_root`].
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            process: Process::this(),
        }
    }
}

impl Storage for FsStorage {
    fn root(&self) -> &Path {
        &self.root
    }

    fn create_root(&self) -> io::Result<()> {
        match fs::create_dir(&self.root) {
            Ok(()) => {}
            // Whoever made it may not have made its name durable.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.root.is_dir() => {}
            Err(e) => return Err(e),
        }
        let parent = match self.root.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        sync_directory(parent)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                continue;
            }
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match access {
            Access::Read => {}
            Access::ReadWrite => {
                options.write(true);
            }
            Access::Create => {
                self.process.check()?;
                options.write(true).create_new(true);
            }
        }
        let file = options.open(self.root.join(name))?;
        let process = self.process;
        Ok(Arc::new(FsFile { file, process }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.process.check()?;
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.process.check()?;
        fs::remove_file(self.root.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        sync_directory(&self.root)
    }

    fn try_lock(&self, name: &str, owner: &str) -> Result<Box<dyn StorageLock>, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.root.join(name))
            .map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                // The words are a courtesy; the lock is what counts.
                let _ = (&mut file).take(256).read_to_string(&mut owner);
                return Err(LockError::Held {
                    owner: owner.trim().to_owned(),
                });
            }
            Err(TryLockError::Error(e)) => return Err(LockError::Io(e)),
        }
        // On a full disk the words are left out; the lock holds all the same.
        let _ = file.set_len(0).and_then(|()| file.write_all(owner.as_bytes()));
        Ok(Box::new(FsLock {
            file,
            process: self.process,
        }))
    }
}

/// Directories cannot be synced on Windows; its file systems journal names themselves.
fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(path)?.sync_all()
    } else {
        Ok(())
    }
}

/// The lock lives as long as its open file, and so ends with the process whatever happens to that.
#[derive(Debug)]
struct FsLock {
    file: File,
    process: Process,
}

impl Drop for FsLock {
    fn drop(&mut self) {
        // A child that another thread is just starting shares the open file until its exec, and with it the lock. Let go by name it is free at
        // once. A forked child has only a copy of the guard, and lets nothing go.
        if self.process.check().is_ok() {
            let _ = self.file.unlock();
        }
    }
}

impl StorageLock for FsLock {}

#[derive(Debug)]
struct FsFile {
    file: File,
    process: Process,
}

/// Who may change something.
#[derive(Debug, Clone, Copy)]
struct Process(u32);

impl Process {
    fn this() -> Self {
        Self(std::process::id())
    }

    fn check(self) -> io::Result<()> {
        if std::process::id() == self.0 {
            return Ok(());
        }
        Err(io::Error::other("it was opened before a fork, by the parent process"))
    }
}

impl StorageFile for FsFile {
    #[cfg(unix)]
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.file, buf, pos)
    }

    #[cfg(windows)]
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.file, buf, pos)
    }

    #[cfg(unix)]
    fn write_at(&self, pos: u64, buf: &[u8]) -> io::Result<usize> {
        self.process.check()?;
        std::os::unix::fs::FileExt::write_at(&self.file, buf, pos)
    }

    #[cfg(windows)]
    fn write_at(&self, pos: u64, buf: &[u8]) -> io::Result<usize> {
        self.process.check()?;
        std::os::windows::fs::FileExt::seek_write(&self.file, buf, pos)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.process.check()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.process.check()?;
        self.file.sync_data()
    }
}
