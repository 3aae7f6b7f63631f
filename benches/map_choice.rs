//! Which map the store keeps: the copy-on-write B+-tree beside the standard library's map and two from well-kept crates. What came of it is in
//! `kv/docs/map.md`. `KEYS` in the environment sets how many keys there are.

#[allow(dead_code, reason = "each bench uses some of it")]
mod common;

/// The store's own, which is private to it.
#[path = "../kv/src/map/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "a private module of another crate, of which only some is measured"
)]
mod map;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use common::{Numbers, criterion};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_skiplist::SkipMap;
use imbl::OrdMap;

fn keys() -> u64 {
    std::env::var("KEYS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(200_000)
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"user:00000000000";
    let digits = n.to_string();
    key[16 - digits.len()..].copy_from_slice(digits.as_bytes());
    key
}

const VALUE: [u8; 100] = [7; 100];

/// The keys in no order.
fn shuffled() -> Vec<[u8; 16]> {
    let mut order: Vec<_> = (0..keys()).map(key).collect();
    let mut numbers = Numbers(3);
    for n in (1..order.len()).rev() {
        order.swap(n, numbers.below(n as u64 + 1) as usize);
    }
    order
}

type Persistent = OrdMap<Box<[u8]>, Arc<[u8]>>;

fn own(order: &[[u8; 16]]) -> map::Map {
    let mut map = map::Map::default();
    for key in order {
        map.insert(key, &VALUE);
    }
    map
}

fn standard(order: &[[u8; 16]]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    order
        .iter()
        .map(|k| (k.to_vec(), VALUE.to_vec()))
        .fold(BTreeMap::new(), |mut map, (k, v)| {
            map.insert(k, v);
            map
        })
}

fn persistent(order: &[[u8; 16]]) -> Persistent {
    let mut map = Persistent::new();
    for key in order {
        map.insert(key[..].into(), VALUE[..].into());
    }
    map
}

fn skiplist(order: &[[u8; 16]]) -> SkipMap<Vec<u8>, Vec<u8>> {
    let map = SkipMap::new();
    for key in order {
        map.insert(key.to_vec(), VALUE.to_vec());
    }
    map
}

fn insert(c: &mut Criterion) {
    let order = shuffled();
    let mut group = c.benchmark_group("map: insert all, in no order");
    group.throughput(Throughput::Elements(keys()));
    group.bench_function("copy-on-write B+-tree", |b| b.iter_with_large_drop(|| own(&order)));
    group.bench_function("BTreeMap", |b| b.iter_with_large_drop(|| standard(&order)));
    group.bench_function("imbl OrdMap", |b| b.iter_with_large_drop(|| persistent(&order)));
    group.bench_function("crossbeam SkipMap", |b| b.iter_with_large_drop(|| skiplist(&order)));
    group.finish();
    let mut group = c.benchmark_group("map: bulk load, in order");
    group.throughput(Throughput::Elements(keys()));
    let sorted: Vec<_> = (0..keys()).map(key).collect();
    group.bench_function("copy-on-write B+-tree", |b| {
        b.iter_with_large_drop(|| {
            let mut builder = map::Builder::new();
            sorted.iter().for_each(|k| assert!(builder.push(k, &VALUE)));
            builder.finish()
        });
    });
    group.bench_function("BTreeMap", |b| {
        b.iter_with_large_drop(|| {
            sorted
                .iter()
                .map(|k| (k.to_vec(), VALUE.to_vec()))
                .collect::<BTreeMap<_, _>>()
        });
    });
    group.finish();
}

fn get(c: &mut Criterion) {
    let order = shuffled();
    let mut group = c.benchmark_group("map: get, random");
    group.throughput(Throughput::Elements(1));
    let mut numbers = Numbers(1);
    let mut next = || key(numbers.below(keys()));
    let map = own(&order);
    group.bench_function("copy-on-write B+-tree", |b| b.iter(|| map.get(&next()).unwrap().len()));
    let map = standard(&order);
    group.bench_function("BTreeMap", |b| b.iter(|| map.get(&next()[..]).unwrap().len()));
    let map = persistent(&order);
    group.bench_function("imbl OrdMap", |b| b.iter(|| map.get(&next()[..]).unwrap().len()));
    let map = skiplist(&order);
    group.bench_function("crossbeam SkipMap", |b| {
        b.iter(|| map.get(&next()[..]).unwrap().value().len())
    });
    group.finish();
}

fn scan(c: &mut Criterion) {
    let order = shuffled();
    let mut group = c.benchmark_group("map: scan all");
    group.throughput(Throughput::Elements(keys()));
    let map = own(&order);
    group.bench_function("copy-on-write B+-tree", |b| {
        b.iter(|| map.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>())
    });
    let map = standard(&order);
    group.bench_function("BTreeMap", |b| {
        b.iter(|| map.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>())
    });
    let map = persistent(&order);
    group.bench_function("imbl OrdMap", |b| {
        b.iter(|| map.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>())
    });
    let map = skiplist(&order);
    group.bench_function("crossbeam SkipMap", |b| {
        b.iter(|| map.iter().map(|e| e.key().len() + e.value().len()).sum::<usize>());
    });
    group.finish();
}

/// 10,000 overwrites after a snapshot was taken and is held: what a checkpoint costs the writers.
fn under_a_snapshot(c: &mut Criterion) {
    const WRITES: u64 = 10_000;
    let order = shuffled();
    let mut group = c.benchmark_group("map: 10,000 overwrites under a snapshot");
    group.throughput(Throughput::Elements(WRITES));
    let mut numbers = Numbers(5);
    let mut some = || (0..WRITES).map(|_| key(numbers.below(keys()))).collect::<Vec<_>>();
    let mut map = own(&order);
    group.bench_function("copy-on-write B+-tree", |b| {
        b.iter_batched(
            &mut some,
            |some| {
                let held = map.clone();
                some.iter().for_each(|k| drop(map.insert(k, &VALUE)));
                black_box(held)
            },
            BatchSize::PerIteration,
        );
    });
    let mut map = persistent(&order);
    group.bench_function("imbl OrdMap", |b| {
        b.iter_batched(
            &mut some,
            |some| {
                let held = map.clone();
                some.iter()
                    .for_each(|k| drop(map.insert(k[..].into(), VALUE[..].into())));
                black_box(held)
            },
            BatchSize::PerIteration,
        );
    });
    let mut map = standard(&order);
    group.bench_function("BTreeMap, copied whole", |b| {
        b.iter_batched(
            &mut some,
            |some| {
                let held = map.clone();
                some.iter().for_each(|k| drop(map.insert(k.to_vec(), VALUE.to_vec())));
                black_box(held)
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group! { name = benches; config = criterion(); targets = insert, get, scan, under_a_snapshot }
criterion_main!(benches);
