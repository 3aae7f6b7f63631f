//! Nodes, and the arithmetic of splitting and mending them.

use std::sync::Arc;

use super::entry::Entry;

/// Most entries of a leaf. Small, because a leaf is what a write copies under a live snapshot; large, because each costs an allocation and a
/// step of every search. Measured: `docs/map.md`.
const LEAF_MAX: usize = 32;
/// How full a bulk load makes leaves: with room for some inserts before they split.
pub(super) const LEAF_FILL: usize = 30;
/// Most children of an inner node.
const INNER_MAX: usize = 64;
const INNER_FILL: usize = 60;
/// Below this a leaf, or an inner node, is merged with a neighbour where both fit.
const LEAF_MIN: usize = LEAF_MAX / 4;
const INNER_MIN: usize = INNER_MAX / 4;

#[derive(Debug, Clone)]
pub(super) enum Node {
    Leaf(Leaf),
    Inner(Inner),
}

impl Default for Node {
    fn default() -> Self {
        Self::Leaf(Leaf::default())
    }
}

/// The right half of a node that was split, and the key from which it reaches.
pub(super) struct Split {
    pub(super) separator: Entry,
    pub(super) right: Arc<Node>,
}

/// Eight bytes of each key, behind the prefix that all of them share, as integers that compare as the bytes do.
#[derive(Debug, Clone, Default)]
struct Heads {
    /// Length of the shared prefix.
    skip: usize,
    heads: Vec<u64>,
}

fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => {
            // Zeros behind a short key: it may then equal a longer one that has zeros there, which comparing the keys decides.
            let mut eight = [0; 8];
            eight[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(eight)
        }
    }
}

fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Heads {
    /// For keys in order: what the first and the last share, all share.
    fn of(keys: &[Entry]) -> Self {
        let skip = match keys {
            [] | [_] => 0,
            [first, .., last] => shared(first.key(), last.key()),
        };
        Self {
            skip,
            heads: keys.iter().map(|k| head(k.key(), skip)).collect(),
        }
    }

    /// The place of `key` among `keys`, as `binary_search` tells it.
    fn search(&self, keys: &[Entry], key: &[u8]) -> Result<usize, usize> {
        if self.skip > 0 {
            let prefix = &keys[0].key()[..self.skip];
            // A key that does not share the prefix is before all, or behind all.
            match key.get(..self.skip).unwrap_or(key).cmp(prefix) {
                std::cmp::Ordering::Less => return Err(0),
                std::cmp::Ordering::Greater => return Err(keys.len()),
                std::cmp::Ordering::Equal => {}
            }
        }
        let wanted = head(key, self.skip);
        let mut at = self.heads.partition_point(|h| *h < wanted);
        // Equal heads decide nothing yet.
        while at < keys.len() && self.heads[at] == wanted {
            match keys[at].key().cmp(key) {
                std::cmp::Ordering::Less => at += 1,
                std::cmp::Ordering::Equal => return Ok(at),
                std::cmp::Ordering::Greater => return Err(at),
            }
        }
        Err(at)
    }

    /// Follows an insertion at `at`, which has happened in `keys`.
    fn inserted(&mut self, keys: &[Entry], at: usize) {
        let key = keys[at].key();
        let still_shared = keys.len() > 1 && {
            let other = &keys[usize::from(at == 0)];
            key.get(..self.skip).is_some_and(|k| k == &other.key()[..self.skip])
        };
        if still_shared {
            self.heads.insert(at, head(key, self.skip));
        } else {
            *self = Self::of(keys);
        }
    }

    /// Follows a removal. The shared prefix can only have become longer, which is left unused.
    fn removed(&mut self, at: usize) {
        self.heads.remove(at);
        if self.heads.is_empty() {
            self.skip = 0;
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Leaf {
    heads: Heads,
    pub(super) entries: Vec<Entry>,
}

impl Leaf {
    pub(super) fn of(entries: Vec<Entry>) -> Self {
        Self {
            heads: Heads::of(&entries),
            entries,
        }
    }

    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.heads.search(&self.entries, key)
    }

    pub(super) fn insert(&mut self, at: usize, entry: Entry) {
        self.entries.insert(at, entry);
        self.heads.inserted(&self.entries, at);
    }

    pub(super) fn remove(&mut self, at: usize) -> Entry {
        self.heads.removed(at);
        self.entries.remove(at)
    }

    /// `at` is where the last insert went: rising keys leave full leaves behind instead of half-empty ones.
    pub(super) fn split_if_full(&mut self, at: usize) -> Option<Split> {
        if self.entries.len() <= LEAF_MAX {
            return None;
        }
        let middle = if at + 1 == self.entries.len() {
            at
        } else {
            self.entries.len() / 2
        };
        let right = Self::of(self.entries.split_off(middle));
        *self = Self::of(std::mem::take(&mut self.entries));
        let first = right.entries[0].clone();
        Some(Split {
            separator: separator(&self.entries[self.entries.len() - 1], &first),
            right: Arc::new(Node::Leaf(right)),
        })
    }
}

/// The shortest key that is behind `left` and not behind `right`: short separators make short comparisons, and keep no value alive.
fn separator(left: &Entry, right: &Entry) -> Entry {
    let len = shared(left.key(), right.key()) + 1;
    Entry::new(&right.key()[..len.min(right.key().len())], b"")
}

/// Child `i` holds keys from separator `i - 1` on, up to before separator `i`.
#[derive(Debug, Clone)]
pub(super) struct Inner {
    heads: Heads,
    separators: Vec<Entry>,
    pub(super) children: Vec<Arc<Node>>,
}

impl Inner {
    fn of(separators: Vec<Entry>, children: Vec<Arc<Node>>) -> Self {
        debug_assert_eq!(separators.len() + 1, children.len());
        Self {
            heads: Heads::of(&separators),
            separators,
            children,
        }
    }

    pub(super) fn of_two(left: Arc<Node>, separator: Entry, right: Arc<Node>) -> Self {
        Self::of(vec![separator], vec![left, right])
    }

    /// The number of the child that `key` belongs to.
    pub(super) fn child_of(&self, key: &[u8]) -> usize {
        match self.heads.search(&self.separators, key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    /// Takes in the right half of child `at`.
    pub(super) fn insert(&mut self, at: usize, split: Split) {
        self.separators.insert(at, split.separator);
        self.heads.inserted(&self.separators, at);
        self.children.insert(at + 1, split.right);
    }

    /// `at` is the child that was split last.
    pub(super) fn split_if_full(&mut self, at: usize) -> Option<Split> {
        if self.children.len() <= INNER_MAX {
            return None;
        }
        let middle = if at + 2 == self.children.len() {
            at
        } else {
            self.separators.len() / 2
        };
        let right_children = self.children.split_off(middle + 1);
        let right_separators = self.separators.split_off(middle + 1);
        let separator = self.separators.pop()?;
        *self = Self::of(std::mem::take(&mut self.separators), std::mem::take(&mut self.children));
        Some(Split {
            separator,
            right: Arc::new(Node::Inner(Self::of(right_separators, right_children))),
        })
    }

    /// Merges child `at` with a neighbour where it has become small and both fit into one.
    pub(super) fn mend(&mut self, at: usize) {
        if !self.children[at].is_small() || self.children.len() < 2 {
            return;
        }
        let left = at.saturating_sub(1).min(self.children.len() - 2);
        for left in [left, at.min(self.children.len() - 2)] {
            let merged = match (&*self.children[left], &*self.children[left + 1]) {
                (Node::Leaf(a), Node::Leaf(b)) if a.entries.len() + b.entries.len() <= LEAF_FILL => {
                    Node::Leaf(Leaf::of([&a.entries[..], &b.entries[..]].concat()))
                }
                (Node::Inner(a), Node::Inner(b)) if a.children.len() + b.children.len() <= INNER_FILL => {
                    let between = std::slice::from_ref(&self.separators[left]);
                    let separators = [&a.separators[..], between, &b.separators[..]].concat();
                    Node::Inner(Self::of(separators, [&a.children[..], &b.children[..]].concat()))
                }
                _ => continue,
            };
            self.children[left] = Arc::new(merged);
            self.children.remove(left + 1);
            self.separators.remove(left);
            self.heads.removed(left);
            return;
        }
    }

    /// Groups nodes under parents, evenly, so that none is left with one child.
    pub(super) fn level_above(nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
        let parents = nodes.len().div_ceil(INNER_FILL);
        let mut out = Vec::with_capacity(parents);
        let total = nodes.len();
        let mut nodes = nodes.into_iter();
        for n in 0..parents {
            let count = total * (n + 1) / parents - total * n / parents;
            let children: Vec<_> = nodes.by_ref().take(count).collect();
            let separators = children
                .windows(2)
                .map(|pair| separator_between(&pair[0], &pair[1]))
                .collect();
            out.push(Arc::new(Node::Inner(Self::of(separators, children))));
        }
        out
    }

    #[cfg(test)]
    pub(super) fn separators(&self) -> &[Entry] {
        &self.separators
    }
}

fn separator_between(left: &Node, right: &Node) -> Entry {
    separator(left.last(), right.first())
}

impl Node {
    fn is_small(&self) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.entries.len() < LEAF_MIN,
            Self::Inner(inner) => inner.children.len() < INNER_MIN,
        }
    }

    /// The first entry; of a node that has one.
    fn first(&self) -> &Entry {
        match self {
            Self::Leaf(leaf) => &leaf.entries[0],
            Self::Inner(inner) => inner.children[0].first(),
        }
    }

    fn last(&self) -> &Entry {
        match self {
            Self::Leaf(leaf) => &leaf.entries[leaf.entries.len() - 1],
            Self::Inner(inner) => inner.children[inner.children.len() - 1].last(),
        }
    }
}
