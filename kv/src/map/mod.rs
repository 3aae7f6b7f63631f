//! The ordered map in memory: a copy-on-write B+-tree.
//!
//! Nodes are shared by reference count. A snapshot is one more reference to the root; from then on a change copies the nodes on its path, and
//! only those that the snapshot still shares (`Arc::make_mut`). So a checkpoint, a scan and a snapshot are one mechanism, and none of them holds
//! anybody up. What was weighed, with figures, is in `docs/map.md`.
//!
//! Two things make it fast. An entry is one allocation, key and value together. And each node keeps, beside its entries, eight bytes of each
//! key *behind the prefix that all keys of the node share*, as one integer: a search compares integers in one small array and looks at a key
//! only where they are equal.

mod entry;
mod iter;
mod node;

pub(crate) use entry::Entry;
pub use entry::{Key, Value};
pub use iter::Entries;
pub(crate) use iter::Iter;

use std::ops::Bound;
use std::sync::Arc;

use node::{Inner, Leaf, Node, Split};

/// An ordered map from bytes to bytes. Cloning takes a snapshot and costs one reference.
#[derive(Debug, Clone)]
pub(crate) struct Map {
    root: Arc<Node>,
    len: usize,
    bytes: u64,
}

impl Default for Map {
    fn default() -> Self {
        Self {
            root: Arc::new(Node::Leaf(Leaf::default())),
            len: 0,
            bytes: 0,
        }
    }
}

impl Map {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Value> {
        self.find(key).map(Entry::to_value)
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    fn find(&self, key: &[u8]) -> Option<&Entry> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(inner) => node = &inner.children[inner.child_of(key)],
                Node::Leaf(leaf) => return leaf.search(key).ok().map(|at| &leaf.entries[at]),
            }
        }
    }

    /// Sets `key` to `value`. Returns what it was.
    pub(crate) fn insert(&mut self, key: &[u8], value: &[u8]) -> Option<Value> {
        let (before, split) = insert(Arc::make_mut(&mut self.root), key, value);
        if let Some(Split { separator, right }) = split {
            let left = std::mem::replace(&mut self.root, Arc::new(Node::Leaf(Leaf::default())));
            self.root = Arc::new(Node::Inner(Inner::of_two(left, separator, right)));
        }
        self.bytes += (key.len() + value.len()) as u64;
        match &before {
            Some(old) => self.bytes -= old.size(),
            None => self.len += 1,
        }
        before.map(|e| e.to_value())
    }

    /// Removes `key`. Returns what it was.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Value> {
        // Looked for first, so that removing what is not there copies nothing.
        self.find(key)?;
        let old = remove(Arc::make_mut(&mut self.root), key)?;
        // A root with one child is no root.
        while let Node::Inner(inner) = &*self.root
            && let [only] = &inner.children[..]
        {
            self.root = Arc::clone(only);
        }
        self.len -= 1;
        self.bytes -= old.size();
        Some(old.to_value())
    }

    /// All entries by key.
    pub(crate) fn iter(&self) -> Iter<'_> {
        Iter::new(&self.root)
    }

    /// The entries between two bounds, by key, holding on to this instant. Empty where the bounds cross.
    pub(crate) fn entries(&self, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> Entries {
        Entries::new(&self.root, from, to)
    }
}

fn insert(node: &mut Node, key: &[u8], value: &[u8]) -> (Option<Entry>, Option<Split>) {
    match node {
        Node::Leaf(leaf) => match leaf.search(key) {
            Ok(at) => {
                let entry = Entry::new(key, value);
                (Some(std::mem::replace(&mut leaf.entries[at], entry)), None)
            }
            Err(at) => {
                leaf.insert(at, Entry::new(key, value));
                (None, leaf.split_if_full(at))
            }
        },
        Node::Inner(inner) => {
            let at = inner.child_of(key);
            let (before, split) = insert(Arc::make_mut(&mut inner.children[at]), key, value);
            if let Some(split) = split {
                inner.insert(at, split);
            }
            (before, inner.split_if_full(at))
        }
    }
}

fn remove(node: &mut Node, key: &[u8]) -> Option<Entry> {
    match node {
        Node::Leaf(leaf) => leaf.search(key).ok().map(|at| leaf.remove(at)),
        Node::Inner(inner) => {
            let at = inner.child_of(key);
            let old = remove(Arc::make_mut(&mut inner.children[at]), key)?;
            inner.mend(at);
            Some(old)
        }
    }
}

/// Builds a map from entries in order, with full nodes.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    leaf: Vec<Entry>,
    /// Finished leaves, with their first keys.
    leaves: Vec<Arc<Node>>,
    len: usize,
    bytes: u64,
    last: Option<Entry>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds an entry. False, and nothing is added, where its key is not behind the last one's.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        if self
            .leaf
            .last()
            .or(self.last.as_ref())
            .is_some_and(|last| last.key() >= key)
        {
            return false;
        }
        if self.leaf.len() == node::LEAF_FILL {
            self.finish_leaf();
        }
        self.leaf.push(Entry::new(key, value));
        self.len += 1;
        self.bytes += (key.len() + value.len()) as u64;
        true
    }

    fn finish_leaf(&mut self) {
        self.last = self.leaf.last().cloned();
        let entries = std::mem::replace(&mut self.leaf, Vec::with_capacity(node::LEAF_FILL));
        self.leaves.push(Arc::new(Node::Leaf(Leaf::of(entries))));
    }

    pub(crate) fn finish(mut self) -> Map {
        if self.len == 0 {
            return Map::default();
        }
        if !self.leaf.is_empty() {
            self.finish_leaf();
        }
        let mut level = self.leaves;
        while level.len() > 1 {
            level = Inner::level_above(level);
        }
        Map {
            root: level.pop().unwrap_or_default(),
            len: self.len,
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests;
