//! Going through a map in order, from either end.

use std::ops::Bound;
use std::sync::Arc;

use super::entry::{Entry, Key, Value};
use super::node::Node;

/// All entries of a map, borrowed, by key.
#[derive(Debug)]
pub(crate) struct Iter<'a> {
    /// Inner nodes on the way to the leaf, with the next child of each.
    path: Vec<std::slice::Iter<'a, Arc<Node>>>,
    leaf: std::slice::Iter<'a, Entry>,
}

impl<'a> Iter<'a> {
    pub(super) fn new(root: &'a Node) -> Self {
        let mut iter = Self {
            path: Vec::new(),
            leaf: [].iter(),
        };
        iter.descend(root);
        iter
    }

    fn descend(&mut self, mut node: &'a Node) {
        loop {
            match node {
                Node::Leaf(leaf) => {
                    self.leaf = leaf.entries.iter();
                    return;
                }
                Node::Inner(inner) => {
                    let mut children = inner.children.iter();
                    let Some(first) = children.next() else { return };
                    self.path.push(children);
                    node = first;
                }
            }
        }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.leaf.next() {
                return Some((entry.key(), entry.value()));
            }
            let child = self.path.last_mut()?.next();
            match child {
                Some(child) => self.descend(child),
                None => drop(self.path.pop()),
            }
        }
    }
}

/// Entries of one instant of the store, by key, from either end.
///
/// It holds on to the instant that it shows, and blocks nobody.
#[derive(Debug, Clone)]
pub struct Entries {
    /// Before the next entry, and behind the last that is left; `None` when none is.
    ends: Option<(Place, Place)>,
}

/// A place between two entries: a leaf, the way to it, and the number of the entry behind the place.
#[derive(Debug, Clone)]
struct Place {
    /// Inner nodes from the root down, each with the number of the child that was taken.
    path: Vec<(Arc<Node>, usize)>,
    leaf: Arc<Node>,
    at: usize,
}

impl Entries {
    pub(super) fn new(root: &Arc<Node>, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> Self {
        if cross(from, to) {
            return Self { ends: None };
        }
        let front = match from {
            Bound::Included(key) => Place::seek(root, key, false),
            Bound::Excluded(key) => Place::seek(root, key, true),
            Bound::Unbounded => Place::edge(Vec::new(), root, Side::First),
        };
        let back = match to {
            Bound::Included(key) => Place::seek(root, key, true),
            Bound::Excluded(key) => Place::seek(root, key, false),
            Bound::Unbounded => Place::edge(Vec::new(), root, Side::Last),
        };
        Self {
            ends: Some((front, back)),
        }
    }
}

/// Whether no key can lie between the bounds.
fn cross(from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    First,
    Last,
}

impl Place {
    /// Before the first entry at `root`, or behind the last.
    fn edge(mut path: Vec<(Arc<Node>, usize)>, root: &Arc<Node>, side: Side) -> Self {
        let mut node = Arc::clone(root);
        loop {
            let (at, child) = match &*node {
                Node::Leaf(leaf) => {
                    let at = if side == Side::First { 0 } else { leaf.entries.len() };
                    return Self { path, leaf: node, at };
                }
                Node::Inner(inner) => {
                    let at = if side == Side::First {
                        0
                    } else {
                        inner.children.len() - 1
                    };
                    (at, Arc::clone(&inner.children[at]))
                }
            };
            path.push((node, at));
            node = child;
        }
    }

    /// Before `key`, or with `behind` behind it.
    fn seek(root: &Arc<Node>, key: &[u8], behind: bool) -> Self {
        let mut path = Vec::new();
        let mut node = Arc::clone(root);
        loop {
            let (at, child) = match &*node {
                Node::Leaf(leaf) => {
                    let at = match leaf.search(key) {
                        Ok(at) => at + usize::from(behind),
                        Err(at) => at,
                    };
                    return Self { path, leaf: node, at };
                }
                Node::Inner(inner) => {
                    let at = inner.child_of(key);
                    (at, Arc::clone(&inner.children[at]))
                }
            };
            path.push((node, at));
            node = child;
        }
    }

    fn entries(&self) -> &[Entry] {
        match &*self.leaf {
            Node::Leaf(leaf) => &leaf.entries,
            Node::Inner(_) => &[],
        }
    }

    /// Goes to the first place of the next leaf, or the last of the one before. False where there is none.
    fn turn(&mut self, side: Side) -> bool {
        while let Some((node, at)) = self.path.pop() {
            let Node::Inner(inner) = &*node else { continue };
            let next = if side == Side::First {
                Some(at + 1)
            } else {
                at.checked_sub(1)
            };
            if let Some(child) = next.and_then(|at| inner.children.get(at)) {
                let child = Arc::clone(child);
                let mut path = std::mem::take(&mut self.path);
                path.push((node, next.unwrap_or_default()));
                *self = Self::edge(path, &child, side);
                return true;
            }
        }
        false
    }
}

/// Whether nothing lies between the two. A leaf occurs once in a tree, so they meet in one.
fn met(front: &Place, back: &Place) -> bool {
    Arc::ptr_eq(&front.leaf, &back.leaf) && front.at >= back.at
}

fn shown(entry: &Entry) -> (Key, Value) {
    (entry.to_key(), entry.to_value())
}

impl Iterator for Entries {
    type Item = (Key, Value);

    fn next(&mut self) -> Option<(Key, Value)> {
        loop {
            let (front, back) = self.ends.as_mut()?;
            if met(front, back) {
                break;
            }
            if let Some(entry) = front.entries().get(front.at) {
                let shown = shown(entry);
                front.at += 1;
                return Some(shown);
            }
            if !front.turn(Side::First) {
                break;
            }
        }
        self.ends = None;
        None
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<(Key, Value)> {
        loop {
            let (front, back) = self.ends.as_mut()?;
            if met(front, back) {
                break;
            }
            if let Some(at) = back.at.checked_sub(1) {
                back.at = at;
                return Some(shown(&back.entries()[at]));
            }
            if !back.turn(Side::Last) {
                break;
            }
        }
        self.ends = None;
        None
    }
}

impl std::iter::FusedIterator for Entries {}
