//! A disk in memory that fails on purpose: a test kit for crashes (feature `sim`).
//!
//! [`SimStorage`] keeps, for each file and for each name, what is *visible* and what is *durable*. A power cut keeps any legal part of what
//! was not synced ([`SimStorage::crash_images`] brings up all of them); a process kill keeps what is visible. Faults strike single operations
//! ([`Fault`]). Nothing depends on time or chance: the same calls and seeds, the same run.
//!
//! ```
//! use std::sync::Arc;
//! use wal::{Options, storage::sim::SimStorage};
//!
//! let disk = SimStorage::new();
//! let log = Options::new().open_storage(Arc::new(disk.clone()))?;
//! log.append(b"acknowledged")?;
//! let images = disk.crash_images(1000);
//! for image in images.disks {
//!     let log = Options::new().open_storage(Arc::new(image))?;
//!     assert_eq!(log.read(0)?, b"acknowledged");
//! }
//! # Ok::<(), wal::Error>(())
//! ```

mod crash;
mod disk;
mod fault;
mod rng;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Access, LockError, Storage, StorageFile, StorageLock};
use crash::Space;
use disk::{Disk, FileOp, InodeId};
pub use fault::{Fault, FaultKind, Op, OpKind};
use rng::Rng;

/// A simulated disk with one directory. Clones share it.
#[derive(Clone)]
pub struct SimStorage {
    machine: Arc<Machine>,
}

struct Machine {
    state: Mutex<State>,
}

type Hook = Arc<dyn Fn(&Op) + Send + Sync>;

#[derive(Default)]
struct State {
    disk: Disk,
    /// Handles of an earlier life are stale.
    life: u64,
    ops: u64,
    mutations: u64,
    trace: Option<Vec<Op>>,
    last_change: Option<Op>,
    crash: Option<Crash>,
    crashed: bool,
    faults: Vec<Fault>,
    faults_hit: u64,
    capacity: Option<u64>,
    read_only: bool,
    /// Who holds which lock.
    locks: BTreeMap<String, String>,
    hook: Option<Hook>,
    sync_delay: Duration,
}

/// When the machine is to die.
#[derive(Clone, Copy)]
struct Crash {
    mutation: u64,
    /// Whether that operation is still done.
    after: bool,
}

/// What is to happen with an operation.
struct Verdict {
    fault: Option<FaultKind>,
    dies: bool,
    sync_delay: Duration,
}

/// What [`SimStorage::crash_images`] found.
#[derive(Debug)]
#[non_exhaustive]
pub struct CrashImages {
    /// Distinct disks, as the power cut may leave this one.
    pub disks: Vec<SimStorage>,
    /// Whether they are all that there are.
    pub exhaustive: bool,
    /// Legal combinations, alike or not.
    pub combinations: u128,
}

impl fmt::Debug for SimStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStorage({:?})", self.file_names())
    }
}

impl Default for SimStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl SimStorage {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Disk::of([]))
    }

    /// No directory yet.
    #[must_use]
    pub fn missing() -> Self {
        Self::with(Disk::default())
    }

    fn with(disk: Disk) -> Self {
        let state = State {
            disk,
            ..State::default()
        };
        Self {
            machine: Arc::new(Machine {
                state: Mutex::new(state),
            }),
        }
    }

    /// A copy of the disk, with what is not synced, and of nothing else: no handles, locks, or faults.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::with(self.machine.state.lock().disk.clone())
    }

    // Crashes.

    /// Cuts the power: keeps one legal image of the disk, chosen by `seed`. Open files and locks are gone, faults too.
    pub fn power_cut(&self, seed: u64) {
        let mut state = self.machine.state.lock();
        let image = Space::of(&state.disk).sample(&mut Rng::new(seed));
        state.disk = image;
        state.restart();
        state.crash = None;
        state.faults.clear();
    }

    /// Kills the process: open files and locks are gone, everything written is still there, synced or not. A crash or fault that is
    /// still to come stays so.
    pub fn process_kill(&self) {
        self.machine.state.lock().restart();
    }

    /// All that a power cut now may leave, if it is at most `limit` combinations; else `limit` of them, the extremes among them. This disk
    /// stays as it is.
    #[must_use]
    pub fn crash_images(&self, limit: usize) -> CrashImages {
        let mut disks = Vec::new();
        let (combinations, exhaustive) = self.for_each_crash_image(limit, 0, |disk| disks.push(disk));
        CrashImages {
            disks,
            exhaustive,
            combinations,
        }
    }

    /// As [`SimStorage::crash_images`], one at a time; `seed` chooses the samples. Returns how many combinations there are, and whether
    /// all of them were brought up.
    pub fn for_each_crash_image(&self, limit: usize, seed: u64, mut each: impl FnMut(Self)) -> (u128, bool) {
        let disk = self.machine.state.lock().disk.clone();
        let space = Space::of(&disk);
        space.visit(limit, seed, |image| each(Self::with(image)));
        (space.count(), space.count() <= limit as u128)
    }

    /// The machine dies when the `mutation`th change is about to be made (see [`SimStorage::mutations`]): it is not made, and every later
    /// operation fails, until [`SimStorage::power_cut`] or [`SimStorage::process_kill`].
    pub fn crash_at(&self, mutation: u64) {
        self.machine.state.lock().crash = Some(Crash { mutation, after: false });
    }

    /// As [`SimStorage::crash_at`], but the change is still made; its caller is not told.
    pub fn crash_after(&self, mutation: u64) {
        self.machine.state.lock().crash = Some(Crash { mutation, after: true });
    }

    /// Whether the machine is dead.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.machine.state.lock().crashed
    }

    // Operations.

    /// How many operations there were.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.machine.state.lock().ops
    }

    /// How many of them changed something, or made it durable: the number of the next one.
    #[must_use]
    pub fn mutations(&self) -> u64 {
        self.machine.state.lock().mutations
    }

    /// Begins to record operations, anew.
    pub fn start_trace(&self) {
        self.machine.state.lock().trace = Some(Vec::new());
    }

    /// The operations recorded.
    #[must_use]
    pub fn trace(&self) -> Vec<Op> {
        self.machine.state.lock().trace.clone().unwrap_or_default()
    }

    /// Calls `hook` before every operation, without any lock held: it may wait, to bring about an order of events.
    pub fn on_op(&self, hook: impl Fn(&Op) + Send + Sync + 'static) {
        self.machine.state.lock().hook = Some(Arc::new(hook));
    }

    /// Makes every data sync take so long.
    pub fn set_sync_delay(&self, delay: Duration) {
        self.machine.state.lock().sync_delay = delay;
    }

    // Faults.

    /// Lets something go wrong.
    pub fn inject(&self, fault: Fault) {
        self.machine.state.lock().faults.push(fault);
    }

    /// Forgets all faults to come.
    pub fn clear_faults(&self) {
        self.machine.state.lock().faults.clear();
    }

    /// How many faults have struck.
    #[must_use]
    pub fn faults_hit(&self) -> u64 {
        self.machine.state.lock().faults_hit
    }

    /// Limits the bytes of all files together; a write beyond stops there, or fails for want of space.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.machine.state.lock().capacity = bytes;
    }

    /// Takes away, or gives back, the permission to write.
    pub fn set_read_only(&self, read_only: bool) {
        self.machine.state.lock().read_only = read_only;
    }

    // By hand. These change what is visible and what is durable, and are no operations.

    /// Names of all files, in order.
    #[must_use]
    pub fn file_names(&self) -> Vec<String> {
        self.machine.state.lock().disk.names.keys().cloned().collect()
    }

    /// A file's visible content.
    #[must_use]
    pub fn read_file(&self, name: &str) -> Option<Vec<u8>> {
        self.machine
            .state
            .lock()
            .disk
            .visible(name)
            .map(|inode| inode.visible.to_vec())
    }

    /// A file's durable content, if its name is durable.
    #[must_use]
    pub fn durable_file(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.machine.state.lock();
        let id = *state.disk.durable_names.get(name)?;
        state.disk.inode(id).map(|inode| inode.durable.to_vec())
    }

    /// Puts a file in place of what has its name. Files open under that name stay what they were.
    pub fn write_file(&self, name: &str, content: &[u8]) {
        self.machine.state.lock().disk.place(name, Some(content.to_vec()));
    }

    /// Removes a file. False where there is none.
    pub fn remove_file(&self, name: &str) -> bool {
        let mut state = self.machine.state.lock();
        let there = state.disk.names.contains_key(name);
        state.disk.place(name, None);
        there
    }

    /// Flips one bit of a file. False where there is no such byte.
    pub fn flip_bit(&self, name: &str, pos: usize, bit: u32) -> bool {
        self.edit(name, |content| match content.get_mut(pos) {
            Some(byte) => {
                *byte ^= 1 << (bit % 8);
                true
            }
            None => false,
        })
    }

    /// Cuts a file, or extends it with zeros. False where there is none.
    pub fn truncate_file(&self, name: &str, len: usize) -> bool {
        self.edit(name, |content| {
            content.resize(len, 0);
            true
        })
    }

    fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let Some(mut content) = self.read_file(name) else {
            return false;
        };
        let done = edit(&mut content);
        self.write_file(name, &content);
        done
    }

    /// Names and visible contents of all files, as one number.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.machine.state.lock().disk.fingerprint()
    }
}

impl State {
    fn restart(&mut self) {
        self.life += 1;
        self.locks.clear();
        if self.crashed {
            self.crash = None;
            self.crashed = false;
        }
    }

    fn check_alive(&self, life: u64) -> io::Result<()> {
        if self.crashed || life != self.life {
            return Err(io::Error::other("simulated crash"));
        }
        Ok(())
    }
}

impl Machine {
    /// Registers an operation and decides what is to happen with it.
    fn begin(&self, life: Option<u64>, kind: OpKind, file: &str, pos: u64, len: u64) -> io::Result<Verdict> {
        let mut op = Op {
            index: 0,
            mutation: 0,
            kind,
            file: file.to_owned(),
            pos,
            len,
        };
        let hook = {
            let state = self.state.lock();
            (op.index, op.mutation) = (state.ops, state.mutations);
            state.hook.clone()
        };
        if let Some(hook) = hook {
            hook(&op);
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.check_alive(life.unwrap_or(state.life))?;
        (op.index, op.mutation) = (state.ops, state.mutations);
        state.ops += 1;
        let mut dies = false;
        if kind.is_mutation() {
            if let Some(crash) = state.crash
                && crash.mutation == state.mutations
            {
                state.crashed = true;
                if !crash.after {
                    return Err(io::Error::other("simulated crash"));
                }
                dies = true;
            }
            state.mutations += 1;
        }
        let before = state.last_change.as_ref();
        let fault = state
            .faults
            .iter_mut()
            .find_map(|f| f.strikes(&op, before).then_some(f.kind));
        if let Some(trace) = &mut state.trace {
            trace.push(op.clone());
        }
        if kind.is_mutation() {
            state.last_change = Some(op);
        }
        let verdict = Verdict {
            fault,
            dies,
            sync_delay: state.sync_delay,
        };
        if fault.is_some() {
            state.faults_hit += 1;
        }
        if state.read_only && kind.is_mutation() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        drop(guard);
        match fault {
            Some(FaultKind::Error(kind)) => Err(kind.into()),
            Some(FaultKind::NoSpace) => Err(io::ErrorKind::StorageFull.into()),
            Some(FaultKind::Interrupted) => Err(io::ErrorKind::Interrupted.into()),
            Some(FaultKind::Panic) => panic!("simulated panic in {kind:?} of {file:?}"),
            _ => Ok(verdict),
        }
    }
}

impl Verdict {
    /// Ends an operation: a machine that died with it tells nobody.
    fn end<T>(&self, value: T) -> io::Result<T> {
        if self.dies {
            Err(io::Error::other("simulated crash"))
        } else {
            Ok(value)
        }
    }

    fn shorten(&self, len: usize) -> usize {
        match self.fault {
            Some(FaultKind::Short(most)) => len.min(most.max(1)),
            _ => len,
        }
    }
}

impl Storage for SimStorage {
    fn root(&self) -> &Path {
        Path::new("sim")
    }

    fn create_root(&self) -> io::Result<()> {
        let verdict = self.machine.begin(None, OpKind::CreateRoot, "", 0, 0)?;
        let disk = &mut self.machine.state.lock().disk;
        disk.exists = true;
        match verdict.fault {
            Some(FaultKind::SyncFails { .. }) => return Err(io::Error::other("simulated failure of a sync")),
            Some(FaultKind::IgnoreSync) => {}
            _ => disk.exists_durably = true,
        }
        verdict.end(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let verdict = self.machine.begin(None, OpKind::List, "", 0, 0)?;
        let state = self.machine.state.lock();
        if !state.disk.exists {
            return Err(io::ErrorKind::NotFound.into());
        }
        verdict.end(state.disk.names.keys().cloned().collect())
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        let kind = if access == Access::Create {
            OpKind::Create
        } else {
            OpKind::Open
        };
        let verdict = self.machine.begin(None, kind, name, 0, 0)?;
        let mut state = self.machine.state.lock();
        if !state.disk.exists {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.read_only && access != Access::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let inode = match (state.disk.names.get(name).copied(), access) {
            (Some(_), Access::Create) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, Access::Create) => state.disk.create(name),
            (Some(inode), _) => inode,
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let life = state.life;
        verdict.end(Arc::new(SimFile {
            machine: Arc::clone(&self.machine),
            life,
            inode,
            name: name.to_owned(),
            writable: access != Access::Read,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let verdict = self.machine.begin(None, OpKind::Rename, from, 0, 0)?;
        if !self.machine.state.lock().disk.rename(from, to) {
            return Err(io::ErrorKind::NotFound.into());
        }
        verdict.end(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let verdict = self.machine.begin(None, OpKind::Remove, name, 0, 0)?;
        if !self.machine.state.lock().disk.remove(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        verdict.end(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let verdict = self.machine.begin(None, OpKind::SyncDir, "", 0, 0)?;
        if verdict.fault != Some(FaultKind::IgnoreSync) {
            self.machine.state.lock().disk.sync_names();
        }
        verdict.end(())
    }

    fn try_lock(&self, name: &str, owner: &str) -> Result<Box<dyn StorageLock>, LockError> {
        let verdict = self
            .machine
            .begin(None, OpKind::Lock, name, 0, 0)
            .map_err(LockError::Io)?;
        let mut state = self.machine.state.lock();
        if let Some(owner) = state.locks.get(name) {
            return Err(LockError::Held { owner: owner.clone() });
        }
        if state.read_only {
            return Err(LockError::Io(io::ErrorKind::PermissionDenied.into()));
        }
        if !state.disk.names.contains_key(name) {
            // Nobody relies on the file itself, so it is not worth a choice in every crash.
            state.disk.place(name, Some(Vec::new()));
        }
        state.locks.insert(name.to_owned(), owner.to_owned());
        let lock = SimLock {
            machine: Arc::clone(&self.machine),
            life: state.life,
            name: name.to_owned(),
        };
        drop(state);
        verdict
            .end(Box::new(lock) as Box<dyn StorageLock>)
            .map_err(LockError::Io)
    }
}

struct SimLock {
    machine: Arc<Machine>,
    life: u64,
    name: String,
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimLock({})", self.name)
    }
}

impl StorageLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.machine.state.lock();
        // After a crash the lock may be another process's.
        if state.life == self.life {
            state.locks.remove(&self.name);
        }
    }
}

struct SimFile {
    machine: Arc<Machine>,
    life: u64,
    inode: InodeId,
    name: String,
    writable: bool,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.name)
    }
}

impl SimFile {
    fn begin(&self, kind: OpKind, pos: u64, len: u64) -> io::Result<Verdict> {
        if kind.is_mutation() && kind != OpKind::SyncData && !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let now = self.machine.state.lock().disk.name_of(self.inode).map(str::to_owned);
        let name = now.as_ref().unwrap_or(&self.name);
        self.machine.begin(Some(self.life), kind, name, pos, len)
    }
}

fn place(pos: u64) -> io::Result<usize> {
    usize::try_from(pos).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl StorageFile for SimFile {
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        let verdict = self.begin(OpKind::Read, pos, buf.len() as u64)?;
        let state = self.machine.state.lock();
        let inode = state.disk.inode(self.inode).ok_or(io::ErrorKind::NotFound)?;
        let rest = inode.visible.get(place(pos)?..).unwrap_or_default();
        let len = verdict.shorten(rest.len().min(buf.len()));
        buf[..len].copy_from_slice(&rest[..len]);
        verdict.end(len)
    }

    fn write_at(&self, pos: u64, buf: &[u8]) -> io::Result<usize> {
        let verdict = self.begin(OpKind::Write, pos, buf.len() as u64)?;
        let mut state = self.machine.state.lock();
        let (used, capacity) = (state.disk.used(), state.capacity);
        let inode = state.disk.inode_mut(self.inode).ok_or(io::ErrorKind::NotFound)?;
        let mut len = verdict.shorten(buf.len());
        if let Some(capacity) = capacity {
            // Bytes that exist take no more space.
            let end = inode.visible.len() as u64 + capacity.saturating_sub(used);
            len = len.min(place(end.saturating_sub(pos))?);
            if len == 0 && !buf.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        inode.change(FileOp::Write {
            pos: place(pos)?,
            bytes: buf[..len].into(),
        });
        verdict.end(len)
    }

    fn len(&self) -> io::Result<u64> {
        let verdict = self.begin(OpKind::Len, 0, 0)?;
        let state = self.machine.state.lock();
        let inode = state.disk.inode(self.inode).ok_or(io::ErrorKind::NotFound)?;
        verdict.end(inode.visible.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let verdict = self.begin(OpKind::SetLen, len, 0)?;
        let mut state = self.machine.state.lock();
        let (used, capacity) = (state.disk.used(), state.capacity);
        let inode = state.disk.inode_mut(self.inode).ok_or(io::ErrorKind::NotFound)?;
        let grows = len.saturating_sub(inode.visible.len() as u64);
        if capacity.is_some_and(|capacity| used + grows > capacity) && grows > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inode.change(FileOp::SetLen(place(len)?));
        verdict.end(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let verdict = self.begin(OpKind::SyncData, 0, 0)?;
        if !verdict.sync_delay.is_zero() {
            std::thread::sleep(verdict.sync_delay);
        }
        let mut state = self.machine.state.lock();
        state
            .check_alive(self.life)
            .or_else(|e| if verdict.dies { Ok(()) } else { Err(e) })?;
        let inode = state.disk.inode_mut(self.inode).ok_or(io::ErrorKind::NotFound)?;
        match verdict.fault {
            Some(FaultKind::SyncFails { drop_dirty }) => {
                inode.fail_sync(drop_dirty);
                return Err(io::Error::other("simulated failure of a sync"));
            }
            Some(FaultKind::SyncFindsNoSpace) => {
                inode.fail_sync(true);
                return Err(io::ErrorKind::StorageFull.into());
            }
            Some(FaultKind::IgnoreSync) => {}
            _ => inode.sync(),
        }
        verdict.end(())
    }
}

#[cfg(test)]
mod tests;
