use std::collections::BTreeMap;
use std::ops::Bound;

use super::*;

/// A small generator, so that every run is the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Keys of several kinds: empty, prefixes of each other, with zeros, with long shared beginnings.
    fn key(&mut self) -> Vec<u8> {
        match self.below(5) {
            0 => vec![0; self.below(12) as usize],
            1 => format!("user:{:08}", self.below(400)).into_bytes(),
            2 => format!("a/very/long/shared/beginning/{:03}", self.below(300)).into_bytes(),
            3 => (0..self.below(4)).map(|_| self.below(3) as u8).collect(),
            _ => self.next().to_be_bytes()[..self.below(3) as usize + 1].to_vec(),
        }
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn check(map: &Map, model: &Model) {
    assert_eq!(map.len(), model.len());
    assert_eq!(
        map.bytes(),
        model.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum::<u64>()
    );
    assert!(map.iter().eq(model.iter().map(|(k, v)| (&k[..], &v[..]))));
    depth(&map.root, None, None);
}

/// Every leaf is equally deep, and every key lies between the separators above it.
fn depth(node: &Node, low: Option<&[u8]>, high: Option<&[u8]>) -> usize {
    let inside = |key: &[u8]| low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high);
    match node {
        Node::Leaf(leaf) => {
            assert!(leaf.entries.iter().all(|e| inside(e.key())));
            assert!(leaf.entries.windows(2).all(|pair| pair[0].key() < pair[1].key()));
            0
        }
        Node::Inner(inner) => {
            let separators = inner.separators();
            assert_eq!(separators.len() + 1, inner.children.len());
            let depths: Vec<_> = (0..inner.children.len())
                .map(|n| {
                    let low = n.checked_sub(1).map(|n| separators[n].key()).or(low);
                    let high = separators.get(n).map(Entry::key).or(high);
                    depth(&inner.children[n], low, high)
                })
                .collect();
            assert!(depths.windows(2).all(|pair| pair[0] == pair[1]));
            depths[0] + 1
        }
    }
}

#[test]
fn k6_it_is_a_btreemap_of_any_bytes() {
    let mut random = Random(1);
    let (mut map, mut model) = (Map::default(), Model::new());
    for step in 0..40_000 {
        // Grows, then shrinks, then grows.
        let removes = if (10_000..25_000).contains(&step) { 7 } else { 3 };
        let key = random.key();
        if random.below(10) < removes {
            let want = model.remove(&key);
            assert_eq!(map.remove(&key).map(|v| v.to_vec()), want);
        } else {
            let value = random.next().to_le_bytes()[..random.below(8) as usize].to_vec();
            assert_eq!(
                map.insert(&key, &value).map(|v| v.to_vec()),
                model.insert(key.clone(), value)
            );
        }
        let probe = random.key();
        assert_eq!(map.get(&probe).map(|v| v.to_vec()), model.get(&probe).cloned());
        if step % 2000 == 0 {
            check(&map, &model);
        }
    }
    check(&map, &model);
    for key in model.keys().cloned().collect::<Vec<_>>() {
        assert!(map.remove(&key).is_some());
    }
    check(&map, &Model::new());
}

#[test]
fn k5_a_snapshot_is_one_instant() {
    let mut random = Random(2);
    let (mut map, mut model) = (Map::default(), Model::new());
    let mut snapshots = Vec::new();
    for step in 0..5_000 {
        let key = random.key();
        if random.below(3) == 0 {
            map.remove(&key);
            model.remove(&key);
        } else {
            map.insert(&key, &key);
            model.insert(key.clone(), key);
        }
        if step % 500 == 0 {
            snapshots.push((map.clone(), model.clone()));
        }
    }
    for (map, model) in &snapshots {
        check(map, model);
    }
}

#[test]
fn ranges_are_those_of_a_btreemap_from_both_ends() {
    let mut random = Random(3);
    let (mut map, mut model) = (Map::default(), Model::new());
    for _ in 0..3_000 {
        let key = random.key();
        map.insert(&key, b"v");
        model.insert(key, b"v".to_vec());
    }
    let bound = |random: &mut Random| match random.below(3) {
        0 => Bound::Included(random.key()),
        1 => Bound::Excluded(random.key()),
        _ => Bound::Unbounded,
    };
    for _ in 0..2_000 {
        let (from, to) = (bound(&mut random), bound(&mut random));
        let inside = |key: &Vec<u8>| {
            let above = match &from {
                Bound::Included(from) => key >= from,
                Bound::Excluded(from) => key > from,
                Bound::Unbounded => true,
            };
            above
                && match &to {
                    Bound::Included(to) => key <= to,
                    Bound::Excluded(to) => key < to,
                    Bound::Unbounded => true,
                }
        };
        let mut want: std::collections::VecDeque<_> = model.keys().filter(|k| inside(k)).cloned().collect();
        let mut entries = map.entries(&from, &to);
        // Take from either end at random, so that the two must meet in every way.
        loop {
            let (got, want) = if random.below(2) == 0 {
                (entries.next(), want.pop_front())
            } else {
                (entries.next_back(), want.pop_back())
            };
            assert_eq!(got.map(|(k, _)| k.to_vec()), want);
            if want.is_none() {
                break;
            }
        }
        assert!(entries.next().is_none() && entries.next_back().is_none());
    }
}

#[test]
fn a_bulk_load_is_the_same_map_and_refuses_disorder() {
    for count in [0, 1, 29, 30, 31, 899, 900, 901, 1800, 1801, 60_000] {
        let mut builder = Builder::new();
        let mut model = Model::new();
        for n in 0..count {
            let key = format!("key {n:06}").into_bytes();
            assert!(builder.push(&key, b"value"));
            assert!(!builder.push(&key, b"again"));
            model.insert(key, b"value".to_vec());
        }
        let mut map = builder.finish();
        check(&map, &model);
        map.insert(b"key 000000x", b"");
        model.insert(b"key 000000x".to_vec(), Vec::new());
        check(&map, &model);
    }
}
