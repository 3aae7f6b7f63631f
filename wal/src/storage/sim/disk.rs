//! The state of a simulated disk: what is visible, and what would survive.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;

/// Sectors are written whole or not at all, but for one that the power fails in.
pub(super) const SECTOR: usize = 512;

pub(super) type InodeId = u64;

#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) exists: bool,
    /// Whether the directory itself would survive.
    pub(super) exists_durably: bool,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    /// Names that would survive.
    pub(super) durable_names: BTreeMap<String, InodeId>,
    /// Names as seen.
    pub(super) names: BTreeMap<String, InodeId>,
    /// What leads from the one to the other, in order.
    pub(super) name_ops: Vec<NameOp>,
}

/// A change of names that no directory sync has covered.
#[derive(Debug, Clone)]
pub(super) enum NameOp {
    Create { name: String, inode: InodeId },
    Rename { from: String, to: String, inode: InodeId },
    Remove { name: String, inode: InodeId },
}

impl NameOp {
    /// Each works by itself: a rename that survives without the creation before it still names the file.
    pub(super) fn apply(&self, names: &mut BTreeMap<String, InodeId>) {
        match self {
            Self::Create { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename { from, to, inode } => {
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
            Self::Remove { name, inode } => {
                if names.get(name) == Some(inode) {
                    names.remove(name);
                }
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// What would survive for certain.
    pub(super) durable: Arc<Vec<u8>>,
    /// What reads see.
    pub(super) visible: Arc<Vec<u8>>,
    /// Changes since the last data sync.
    pub(super) ops: Vec<FileOp>,
    /// A failed sync has marked changes as clean that never reached the disk: no later sync writes them.
    lost: bool,
}

#[derive(Debug, Clone)]
pub(super) enum FileOp {
    Write { pos: usize, bytes: Arc<[u8]> },
    SetLen(usize),
}

impl FileOp {
    pub(super) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { pos, bytes } => {
                let end = pos + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*pos..end].copy_from_slice(bytes);
            }
            Self::SetLen(len) => content.resize(*len, 0),
        }
    }

    /// The sectors that it changes in a file of `len` bytes.
    pub(super) fn sectors(&self, len: usize) -> std::ops::Range<usize> {
        let (from, to) = match self {
            Self::Write { pos, bytes } => (*pos, pos + bytes.len()),
            Self::SetLen(new) => (len.min(*new), len.max(*new)),
        };
        if from == to {
            0..0
        } else {
            from / SECTOR..to.div_ceil(SECTOR)
        }
    }
}

impl Inode {
    pub(super) fn change(&mut self, op: FileOp) {
        op.apply(Arc::make_mut(&mut self.visible));
        self.ops.push(op);
    }

    pub(super) fn sync(&mut self) {
        if self.lost {
            let durable = Arc::make_mut(&mut self.durable);
            for op in self.ops.drain(..) {
                op.apply(durable);
            }
        } else {
            self.durable = Arc::clone(&self.visible);
            self.ops.clear();
        }
    }

    /// What a failed sync leaves: the changes are gone from the disk's queue; memory shows them still, or not.
    pub(super) fn fail_sync(&mut self, drop_dirty: bool) {
        self.ops.clear();
        if drop_dirty {
            self.visible = Arc::clone(&self.durable);
        } else {
            self.lost = true;
        }
    }

    /// A file of which everything is durable.
    pub(super) fn of(content: Vec<u8>) -> Self {
        let content = Arc::new(content);
        Self {
            durable: Arc::clone(&content),
            visible: content,
            ops: Vec::new(),
            lost: false,
        }
    }
}

impl Disk {
    pub(super) fn inode(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(&id)
    }

    pub(super) fn inode_mut(&mut self, id: InodeId) -> Option<&mut Inode> {
        self.inodes.get_mut(&id)
    }

    fn add(&mut self, inode: Inode) -> InodeId {
        self.next_inode += 1;
        self.inodes.insert(self.next_inode, inode);
        self.next_inode
    }

    fn name_op(&mut self, op: NameOp) {
        op.apply(&mut self.names);
        self.name_ops.push(op);
    }

    pub(super) fn create(&mut self, name: &str) -> InodeId {
        let inode = self.add(Inode::default());
        let name = name.to_owned();
        self.name_op(NameOp::Create { name, inode });
        inode
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(&inode) = self.names.get(from) else {
            return false;
        };
        let (from, to) = (from.to_owned(), to.to_owned());
        self.name_op(NameOp::Rename { from, to, inode });
        true
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        let Some(&inode) = self.names.get(name) else {
            return false;
        };
        let name = name.to_owned();
        self.name_op(NameOp::Remove { name, inode });
        true
    }

    pub(super) fn sync_names(&mut self) {
        self.durable_names.clone_from(&self.names);
        self.name_ops.clear();
    }

    pub(super) fn visible(&self, name: &str) -> Option<&Inode> {
        self.inodes.get(self.names.get(name)?)
    }

    /// The name of a file, as seen, if it has one.
    pub(super) fn name_of(&self, id: InodeId) -> Option<&str> {
        self.names
            .iter()
            .find(|(_, named)| **named == id)
            .map(|(name, _)| &name[..])
    }

    /// Bytes of all files, as seen.
    pub(super) fn used(&self) -> u64 {
        let linked = self.names.values().filter_map(|id| self.inodes.get(id));
        linked.map(|inode| inode.visible.len() as u64).sum()
    }

    /// Puts a whole file in place, durable at once; `None` removes it.
    pub(super) fn place(&mut self, name: &str, content: Option<Vec<u8>>) {
        match content {
            Some(content) => {
                let inode = self.add(Inode::of(content));
                self.names.insert(name.to_owned(), inode);
                self.durable_names.insert(name.to_owned(), inode);
            }
            None => {
                self.names.remove(name);
                self.durable_names.remove(name);
            }
        }
    }

    /// A disk that holds these files, all durable.
    pub(super) fn of(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let mut disk = Self {
            exists: true,
            exists_durably: true,
            ..Self::default()
        };
        for (name, content) in files {
            disk.place(&name, Some(content));
        }
        disk
    }

    /// Names and contents as seen, as one number.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = twox_hash::XxHash3_64::new();
        for (name, id) in &self.names {
            let content = self.inodes.get(id).map(|i| &i.visible[..]).unwrap_or_default();
            for part in [name.as_bytes(), content] {
                hasher.write(&(part.len() as u64).to_le_bytes());
                hasher.write(part);
            }
        }
        hasher.finish()
    }
}
