//! Linearizability: each call of several threads took effect at one moment between its beginning and its end. Histories are recorded from real
//! threads and searched for an order that explains all answers (Wing and Gong, "Testing and Verifying Concurrent Objects", JPDC 1993; states
//! that were tried are remembered, as Lowe did).

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use kv::{Store, Swap};
use wal::FsyncPolicy;
use wal::storage::sim::SimStorage;

use super::{options, shared};

const KEYS: u8 = 2;
type Map = BTreeMap<u8, u8>;

#[derive(Debug, Clone, Copy)]
enum Call {
    Put(u8, u8),
    Delete(u8),
    Get(u8, Option<u8>),
    /// Key, expected, new, and whether it was done.
    Swap(u8, Option<u8>, u8, bool),
    /// Both keys at one moment.
    Snapshot([Option<u8>; 2]),
}

#[derive(Debug, Clone, Copy)]
struct Event {
    begun: u64,
    ended: u64,
    call: Call,
}

impl Call {
    /// The map after it, if the map before explains the answer.
    fn after(self, map: &Map) -> Option<Map> {
        let mut next = map.clone();
        let explained = match self {
            Self::Put(key, value) => {
                next.insert(key, value);
                true
            }
            Self::Delete(key) => {
                next.remove(&key);
                true
            }
            Self::Get(key, found) => map.get(&key).copied() == found,
            Self::Swap(key, expected, new, done) => {
                if done {
                    next.insert(key, new);
                }
                (map.get(&key).copied() == expected) == done
            }
            Self::Snapshot(found) => [0, 1].map(|key| map.get(&key).copied()) == found,
        };
        explained.then_some(next)
    }
}

/// Whether some order of the calls that respects which ended before which began explains all answers.
fn is_linearizable(history: &[Event]) -> bool {
    fn search(history: &[Event], done: u64, map: &Map, tried: &mut HashSet<(u64, Map)>) -> bool {
        if done.count_ones() as usize == history.len() {
            return true;
        }
        if !tried.insert((done, map.clone())) {
            return false;
        }
        let open = |n: &usize| done & (1 << n) == 0;
        // A call may be next unless another one that is not yet placed ended before it began.
        let first_end = (0..history.len())
            .filter(open)
            .map(|n| history[n].ended)
            .min()
            .unwrap_or(u64::MAX);
        (0..history.len())
            .filter(open)
            .filter(|n| history[*n].begun < first_end)
            .any(|n| {
                history[n]
                    .call
                    .after(map)
                    .is_some_and(|next| search(history, done | 1 << n, &next, tried))
            })
    }
    search(history, 0, &Map::new(), &mut HashSet::new())
}

fn call(store: &Store, random: u64) -> Call {
    let key = (random % u64::from(KEYS)) as u8;
    let value = (random >> 8) as u8 % 4;
    let byte = |value: Option<kv::Value>| value.map(|v| v[0]);
    match (random >> 16) % 8 {
        0..=2 => {
            store.put([key], [value]).unwrap();
            Call::Put(key, value)
        }
        3 => {
            store.delete([key]).unwrap();
            Call::Delete(key)
        }
        4 | 5 => Call::Get(key, byte(store.get([key]).unwrap())),
        6 => {
            let expected = (random >> 20 & 1 == 0).then_some((random >> 24) as u8 % 4);
            let as_bytes = expected.map(|value| [value]);
            let swap = store.compare_and_swap([key], as_bytes.as_ref().map(|v| &v[..]), Some(&[value]));
            Call::Swap(key, expected, value, matches!(swap.unwrap(), Swap::Done(_)))
        }
        _ => {
            let snapshot = store.snapshot();
            Call::Snapshot([0, 1].map(|key| byte(snapshot.get([key]))))
        }
    }
}

#[test]
fn k4_k5_concurrent_calls_take_effect_one_after_another() {
    const THREADS: u64 = 3;
    const CALLS: u64 = 6;
    let policies = [FsyncPolicy::Always, FsyncPolicy::Os];
    for round in 0..400u64 {
        let disk = SimStorage::new();
        // Threads meet at other places in every round.
        disk.on_op(move |op| {
            if (op.index ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0 {
                std::thread::yield_now();
            }
        });
        let policy = policies[(round % 2) as usize];
        let store = kv::Options::new()
            .log(options().policy(policy))
            .checkpoint_bytes(500)
            .open_storage(shared(&disk))
            .unwrap();
        let clock = AtomicU64::new(0);
        let history: Mutex<Vec<Event>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, clock, history) = (&store, &clock, &history);
                scope.spawn(move || {
                    for n in 0..CALLS {
                        let seed = (round << 16 | thread << 8 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        let begun = clock.fetch_add(1, Ordering::SeqCst);
                        let call = call(store, seed ^ seed >> 31);
                        let ended = clock.fetch_add(1, Ordering::SeqCst);
                        history.lock().unwrap().push(Event { begun, ended, call });
                    }
                });
            }
        });
        let mut history = history.into_inner().unwrap();
        history.sort_by_key(|event| event.begun);
        assert!(
            is_linearizable(&history),
            "round {round}: no order explains {history:#?}"
        );
        // What replay makes of it is what was there last.
        let last = Call::Snapshot([0, 1].map(|key| store.get([key]).unwrap().map(|v| v[0])));
        disk.process_kill();
        drop(store);
        let again = kv::Options::new().log(options()).open_storage(shared(&disk)).unwrap();
        let replayed = Call::Snapshot([0, 1].map(|key| again.get([key]).unwrap().map(|v| v[0])));
        assert_eq!(format!("{last:?}"), format!("{replayed:?}"));
    }
}

#[test]
fn the_checker_sees_what_no_order_explains() {
    let event = |begun, ended, call| Event { begun, ended, call };
    // A value that was overwritten before the read began.
    let stale = [
        event(0, 1, Call::Put(0, 1)),
        event(2, 3, Call::Put(0, 2)),
        event(4, 5, Call::Get(0, Some(1))),
    ];
    assert!(!is_linearizable(&stale));
    // The same, but the second write was not over yet.
    let fresh = [
        event(0, 1, Call::Put(0, 1)),
        event(2, 5, Call::Put(0, 2)),
        event(3, 4, Call::Get(0, Some(1))),
    ];
    assert!(is_linearizable(&fresh));
    // Two swaps that both saw the same value.
    let twice = [
        event(0, 3, Call::Swap(0, None, 1, true)),
        event(1, 2, Call::Swap(0, None, 2, true)),
    ];
    assert!(!is_linearizable(&twice));
    // A snapshot of two moments.
    let torn = [
        event(0, 1, Call::Put(0, 1)),
        event(2, 3, Call::Put(1, 1)),
        event(4, 5, Call::Put(0, 2)),
        event(0, 9, Call::Snapshot([Some(2), None])),
    ];
    assert!(!is_linearizable(&torn));
}
