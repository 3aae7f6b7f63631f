//! Short lives that together use everything there is, and others made at random.

use wal::Delivery::{AtLeastOnce, AtMostOnce};
use wal::Durability::{Buffered, Durable, Written};

use super::life::Life;
use super::log_life::{Policy, Step as L};
use super::store_life::Step as S;
use super::threads_life::Plan;

/// Lives that somebody thought of.
pub fn named() -> Vec<Life> {
    let (always, os) = (L::Open(Policy::Always), L::Open(Policy::Os));
    let logs = [
        vec![always],
        vec![
            always,
            L::Append(10, Durable),
            L::Append(0, Durable),
            L::Append(600, Durable),
        ],
        vec![
            os,
            L::Append(10, Written),
            L::Append(700, Written),
            L::Append(20, Durable),
            L::Append(30, Written),
        ],
        vec![
            os,
            L::Batch(3, 40),
            L::Batch(2, 700),
            L::Append(5, Written),
            L::Batch(5, 0),
        ],
        // Rotation, with and without something un-synced before it.
        vec![
            os,
            L::Append(900, Written),
            L::Append(900, Written),
            L::Append(900, Durable),
            L::Rotate,
            L::Append(1, Durable),
        ],
        // A record larger than a segment.
        vec![
            always,
            L::Append(5, Durable),
            L::Append(5000, Durable),
            L::Append(5, Durable),
        ],
        // Closing and going on in the same file; killed and going on in the next.
        vec![
            os,
            L::Append(100, Written),
            os,
            L::Append(100, Written),
            always,
            L::Append(100, Durable),
        ],
        vec![
            os,
            L::Append(100, Written),
            L::Append(300, Written),
            L::Kill,
            always,
            L::Append(100, Durable),
            L::Kill,
            os,
        ],
        vec![
            os,
            L::Append(100, Buffered),
            L::Append(50, Durable),
            L::Append(60, Buffered),
            L::Sync,
        ],
        // Consumers of both kinds.
        vec![
            os,
            L::Batch(6, 20),
            L::Consume(2, AtLeastOnce),
            L::Consume(3, AtMostOnce),
            L::Append(9, Durable),
            L::Consume(9, AtLeastOnce),
        ],
        vec![
            os,
            L::Batch(3, 20),
            L::Consume(2, AtMostOnce),
            L::Kill,
            os,
            L::Consume(1, AtMostOnce),
            L::RemoveConsumer,
            L::Append(1, Durable),
        ],
        // Retention behind a consumer, and to the last record.
        vec![
            os,
            L::Batch(2, 600),
            L::Batch(2, 600),
            L::Batch(2, 600),
            L::Consume(4, AtLeastOnce),
            L::Remove,
            L::Append(10, Durable),
        ],
        vec![
            os,
            L::Batch(2, 600),
            L::Batch(2, 600),
            L::Consume(9, AtLeastOnce),
            L::Remove,
            os,
            L::Append(10, Durable),
        ],
        // What a consumer has committed, another process relies on.
        vec![
            os,
            L::Batch(2, 600),
            L::Batch(2, 600),
            L::Batch(2, 600),
            L::Consume(3, AtLeastOnce),
            os,
            L::Remove,
            L::Kill,
            os,
            L::Consume(9, AtMostOnce),
            L::Remove,
        ],
        vec![os, L::Append(50, Written), L::Backup, L::Append(50, Durable), L::Backup],
        // Syncs by the clock.
        vec![
            L::Open(Policy::Group),
            L::Append(90, Durable),
            L::Batch(3, 400),
            L::Append(700, Written),
            L::Append(10, Durable),
        ],
        vec![
            L::Open(Policy::Interval),
            L::Append(90, Written),
            L::Append(900, Written),
            L::Append(800, Buffered),
            L::Append(10, Written),
            L::Sync,
            L::Append(10, Written),
        ],
    ];
    let stores = [
        vec![
            S::Open,
            S::Write(1, Durable),
            S::Write(2, Written),
            S::Swap(3),
            S::Write(4, Written),
        ],
        vec![
            S::Open,
            S::Write(1, Written),
            S::Checkpoint,
            S::Write(2, Durable),
            S::Checkpoint,
            S::Write(3, Durable),
            S::Checkpoint,
        ],
        vec![
            S::Open,
            S::Write(3, Written),
            S::Write(7, Written),
            S::Checkpoint,
            S::Kill,
            S::Open,
            S::Write(3, Durable),
            S::Checkpoint,
            S::Open,
        ],
        vec![
            S::Open,
            S::Checkpoint,
            S::Write(3, Written),
            S::Sync,
            S::Write(1, Written),
            S::Open,
            S::Checkpoint,
            S::Backup,
        ],
        // Segments go on the word of a checkpoint that nothing else has made durable.
        vec![
            S::Open,
            S::Write(3, Durable),
            S::Write(7, Durable),
            S::Write(11, Durable),
            S::Checkpoint,
            S::Swap(1),
            S::Checkpoint,
        ],
        // Enough for segments to go.
        vec![
            S::Open,
            S::Write(3, Durable),
            S::Write(7, Durable),
            S::Write(11, Durable),
            S::Checkpoint,
            S::Write(15, Durable),
            S::Write(19, Durable),
            S::Write(3, Durable),
            S::Checkpoint,
            S::Write(7, Durable),
            S::Write(11, Durable),
            S::Write(15, Durable),
            S::Checkpoint,
            S::Write(2, Durable),
        ],
    ];
    let threads = [Policy::Always, Policy::Group, Policy::Interval, Policy::Os].map(|policy| {
        Life::Threads(Plan {
            policy,
            threads: 3,
            appends: 4,
            seed: 7,
        })
    });
    let logs = logs.into_iter().map(Life::Log);
    let stores = stores.into_iter().map(Life::Store);
    logs.chain(stores).chain(threads).collect()
}

/// Numbers that are the same for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5555);
        for _ in 0..3 {
            random.below(2);
        }
        random
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A life that nobody thought of.
pub fn random(seed: u64) -> Life {
    let mut random = Random::new(seed);
    let policy = |random: &mut Random| match random.below(8) {
        0 => Policy::Group,
        1 => Policy::Interval,
        2..5 => Policy::Os,
        _ => Policy::Always,
    };
    if random.below(8) == 0 {
        return Life::Threads(Plan {
            policy: policy(&mut random),
            threads: 2 + random.below(3) as u8,
            appends: 2 + random.below(4) as u8,
            seed,
        });
    }
    let steps = 5 + random.below(6);
    let durability = |random: &mut Random| if random.below(2) == 0 { Durable } else { Written };
    if random.below(3) == 0 {
        let mut life = vec![S::Open];
        for _ in 0..steps {
            let n = random.below(20) as u8;
            life.push(match random.below(10) {
                0 => S::Open,
                1 => S::Sync,
                2 | 3 => S::Checkpoint,
                4 => S::Swap(n),
                5 => S::Backup,
                _ => S::Write(n, durability(&mut random)),
            });
            if random.below(12) == 0 {
                life.extend([S::Kill, S::Open]);
            }
        }
        return Life::Store(life);
    }
    let mut life = vec![L::Open(policy(&mut random))];
    for _ in 0..steps {
        let len = random.below(40) * random.below(30);
        life.push(match random.below(14) {
            0 => L::Open(policy(&mut random)),
            1 => L::Sync,
            2 => L::Rotate,
            3 | 4 => L::Consume(
                random.below(4) as usize + 1,
                if random.below(2) == 0 { AtLeastOnce } else { AtMostOnce },
            ),
            5 => L::Remove,
            6 => L::RemoveConsumer,
            7 => L::Backup,
            8 | 9 => L::Batch(random.below(4) as usize + 1, len as usize / 2),
            _ => L::Append(len as usize, durability(&mut random)),
        });
        if random.below(12) == 0 {
            life.extend([L::Kill, L::Open(policy(&mut random))]);
        }
    }
    Life::Log(life)
}
