//! The log: appending by policy, size and threads; replay; random reads; consumers; opening. Each beside the plain loop that does the least
//! that the same promise needs.

mod common;

use std::hint::black_box;
use std::time::Duration;

use common::{Numbers, Plain, criterion, dir, shared};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wal::{Durability, FsyncPolicy, Options};

fn append_durable(c: &mut Criterion) {
    let mut group = c.benchmark_group("append, durable, one thread");
    for size in [128, 4096] {
        let (dir, record) = (dir(), vec![7; size]);
        group.throughput(Throughput::Elements(1));
        let mut plain = Plain::new(&dir);
        group.bench_function(BenchmarkId::new("write + fdatasync", size), |b| {
            b.iter(|| plain.append(&record, true))
        });
        let log = Options::new().open(dir.path().join("always")).unwrap();
        group.bench_function(BenchmarkId::new("Always", size), |b| {
            b.iter(|| log.append(&record).unwrap())
        });
        let group_policy = FsyncPolicy::Group {
            max_delay: Duration::from_micros(50),
        };
        let log = Options::new()
            .policy(group_policy)
            .open(dir.path().join("group"))
            .unwrap();
        group.bench_function(BenchmarkId::new("Group 50 µs", size), |b| {
            b.iter(|| log.append(&record).unwrap())
        });
    }
    group.finish();
}

fn append_threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("append, durable, threads");
    let record = [7; 128];
    for threads in [1, 4, 16, 64] {
        let dir = dir();
        let log = Options::new().open(dir.path().join("log")).unwrap();
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("Always", threads), |b| {
            b.iter_custom(|ops| {
                shared(threads, ops, || {
                    log.append(record).unwrap();
                })
            });
        });
        let plain = std::sync::Mutex::new(Plain::new(&dir));
        group.bench_function(BenchmarkId::new("write + fdatasync under a lock", threads), |b| {
            b.iter_custom(|ops| shared(threads, ops, || plain.lock().unwrap().append(&record, true)));
        });
    }
    group.finish();
}

fn append_unsynced(c: &mut Criterion) {
    let mut group = c.benchmark_group("append, not synced, one thread");
    for size in [128, 4096] {
        let (dir, record) = (dir(), vec![7; size]);
        group.throughput(Throughput::Bytes(size as u64));
        let mut buffer = Vec::with_capacity(1 << 20);
        group.bench_function(BenchmarkId::new("copy + CRC", size), |b| {
            b.iter(|| {
                if buffer.len() + size > buffer.capacity() {
                    buffer.clear();
                }
                buffer.extend_from_slice(&record);
                black_box(crc32fast::hash(&record))
            });
        });
        let mut plain = Plain::new(&dir);
        group.bench_function(BenchmarkId::new("write", size), |b| {
            b.iter(|| plain.append(&record, false))
        });
        let log = Options::new()
            .policy(FsyncPolicy::Os)
            .open(dir.path().join("log"))
            .unwrap();
        group.bench_function(BenchmarkId::new("Buffered", size), |b| {
            b.iter(|| log.append_with(&record, Durability::Buffered).unwrap());
        });
        group.bench_function(BenchmarkId::new("Written", size), |b| {
            b.iter(|| log.append(&record).unwrap())
        });
        let interval = FsyncPolicy::Interval(Duration::from_millis(100));
        let log = Options::new()
            .policy(interval)
            .open(dir.path().join("interval"))
            .unwrap();
        group.bench_function(BenchmarkId::new("Interval 100 ms", size), |b| {
            b.iter(|| log.append(&record).unwrap())
        });
    }
    group.finish();
}

fn read(c: &mut Criterion) {
    const RECORDS: u64 = 1_000_000;
    let dir = dir();
    let path = dir.path().join("log");
    let log = Options::new().policy(FsyncPolicy::Os).open(&path).unwrap();
    for n in 0..RECORDS {
        log.append_with([n as u8; 128], Durability::Buffered).unwrap();
    }
    log.sync().unwrap();
    let mut group = c.benchmark_group("read a million records of 128 bytes");
    group.throughput(Throughput::Elements(RECORDS));
    let bytes = vec![7u8; 128 << 20];
    group.bench_function("read + CRC of as many bytes in memory", |b| {
        b.iter(|| bytes.chunks_exact(128).map(crc32fast::hash).fold(0, |a, crc| a ^ crc));
    });
    group.bench_function("replay", |b| {
        b.iter(|| {
            let mut reader = log.reader(0).unwrap();
            let mut bytes = 0;
            while let Some(record) = reader.next().unwrap() {
                bytes += record.bytes.len();
            }
            assert_eq!(bytes as u64, RECORDS * 128);
        });
    });
    group.finish();
    let mut group = c.benchmark_group("read one record");
    group.throughput(Throughput::Elements(1));
    let mut numbers = Numbers(1);
    group.bench_function("random offset", |b| {
        b.iter(|| log.read(numbers.below(RECORDS)).unwrap())
    });
    group.finish();
    let mut group = c.benchmark_group("consumer, batches of 1000");
    group.throughput(Throughput::Elements(1000));
    let mut consumer = log.consumer("bench").open().unwrap();
    group.bench_function("poll + commit", |b| {
        b.iter(|| {
            if consumer.poll(1000).unwrap().len() < 1000 {
                consumer.seek(0).unwrap();
            }
            consumer.commit().unwrap()
        });
    });
    group.finish();
    drop(consumer);
    log.close().unwrap();
    let mut group = c.benchmark_group("open a log of a million records");
    group.bench_function("closed in order", |b| b.iter(|| Options::new().open(&path).unwrap()));
    group.finish();
}

criterion_group! { name = benches; config = criterion(); targets = append_durable, append_threads, append_unsynced, read }
criterion_main!(benches);
