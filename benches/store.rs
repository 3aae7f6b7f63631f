//! The store: put, get, scan, snapshots and opening. Beside them what a plain loop and the standard library's ordered map take.

mod common;

use std::collections::BTreeMap;

use common::{Numbers, Plain, criterion, dir, shared};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kv::{Batch, FsyncPolicy, History, Options};
use parking_lot::RwLock;

const KEYS: u64 = 1_000_000;

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"user:00000000000";
    let digits = n.to_string();
    key[16 - digits.len()..].copy_from_slice(digits.as_bytes());
    key
}

fn options() -> Options {
    Options::new()
        .policy(FsyncPolicy::Os)
        .checkpoint_bytes(0)
        .history(History::Everything)
}

/// A store of [`KEYS`] keys, put in no order.
fn filled(path: &std::path::Path) -> kv::Store {
    let store = options().open(path).unwrap();
    let mut order: Vec<u64> = (0..KEYS).collect();
    let mut numbers = Numbers(3);
    for n in (1..order.len()).rev() {
        order.swap(n, numbers.below(n as u64 + 1) as usize);
    }
    for keys in order.chunks(1000) {
        let mut batch = Batch::new();
        for n in keys {
            batch.put(key(*n), [7; 100]);
        }
        store.write(&batch).unwrap();
    }
    store
}

fn put(c: &mut Criterion) {
    let mut group = c.benchmark_group("put, durable");
    group.throughput(Throughput::Elements(1));
    let dir = dir();
    let store = Options::new()
        .checkpoint_bytes(0)
        .open(dir.path().join("store"))
        .unwrap();
    let numbers = RwLock::new(Numbers(1));
    let mut plain = Plain::new(&dir);
    group.bench_function("write + fdatasync", |b| b.iter(|| plain.append(&[7; 132], true)));
    for threads in [1, 16] {
        group.bench_function(BenchmarkId::new("Always, threads", threads), |b| {
            b.iter_custom(|ops| {
                shared(threads, ops, || {
                    let n = numbers.write().below(KEYS);
                    store.put(key(n), [7; 100]).unwrap();
                })
            });
        });
    }
    group.finish();
}

fn memory(c: &mut Criterion) {
    let dir = dir();
    let store = filled(&dir.path().join("store"));
    let map: BTreeMap<Vec<u8>, Vec<u8>> = store.snapshot().iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    let map = RwLock::new(map);
    let mut numbers = Numbers(2);
    let mut group = c.benchmark_group("get one of a million");
    group.throughput(Throughput::Elements(1));
    group.bench_function("store", |b| {
        b.iter(|| store.get(key(numbers.below(KEYS))).unwrap().unwrap().len())
    });
    group.bench_function("BTreeMap under a lock", |b| {
        b.iter(|| map.read().get(&key(numbers.below(KEYS))[..]).unwrap().len());
    });
    group.finish();
    let mut group = c.benchmark_group("scan a million");
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("store", |b| {
        b.iter(|| store.range::<&[u8]>(..).map(|(k, v)| k.len() + v.len()).sum::<usize>())
    });
    group.bench_function("BTreeMap", |b| {
        b.iter(|| map.read().iter().map(|(k, v)| k.len() + v.len()).sum::<usize>())
    });
    group.finish();
    let mut group = c.benchmark_group("put, not synced");
    group.throughput(Throughput::Elements(1));
    group.bench_function("store", |b| {
        b.iter(|| store.put(key(numbers.below(KEYS)), [7; 100]).unwrap())
    });
    group.bench_function("store, with a snapshot every 1000", |b| {
        let (mut n, mut held) = (0, store.snapshot());
        b.iter(|| {
            n += 1;
            if n % 1000 == 0 {
                held = store.snapshot();
            }
            store.put(key(numbers.below(KEYS)), [7; 100]).unwrap()
        });
        assert!(!held.is_empty());
    });
    group.finish();
    let mut group = c.benchmark_group("snapshot");
    group.bench_function("store", |b| b.iter(|| store.snapshot()));
    group.finish();
}

fn open(c: &mut Criterion) {
    let dir = dir();
    let path = dir.path().join("store");
    filled(&path).close().unwrap();
    let mut group = c.benchmark_group("open a million keys");
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("replay of the whole log", |b| {
        b.iter_batched(|| (), |()| options().open(&path).unwrap(), BatchSize::PerIteration);
    });
    options().open(&path).unwrap().checkpoint().unwrap();
    group.bench_function("from a checkpoint", |b| {
        b.iter_batched(|| (), |()| options().open(&path).unwrap(), BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group! { name = benches; config = criterion(); targets = put, memory, open }
criterion_main!(benches);
