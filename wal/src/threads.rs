//! Locks, condition variables and threads, as this crate uses them: those of `parking_lot` and `std`.
//!
//! Built with `--cfg shuttle` they are those of a scheduler that runs one thread at a time and chooses who is next, so that tests can try
//! many orders of events: see `tests/schedules`.

#[cfg(not(shuttle))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(shuttle)]
pub(crate) use scheduled::Condvar;
#[cfg(not(shuttle))]
pub(crate) use std::thread::{Builder, JoinHandle};
#[cfg(shuttle)]
pub(crate) use {
    shuttle::thread::{Builder, JoinHandle},
    shuttle_parking_lot::{Mutex, MutexGuard, RwLock},
};

#[cfg(shuttle)]
mod scheduled {
    use std::time::{Duration, Instant};

    use super::MutexGuard;

    /// The condition variable that goes with the scheduler's locks.
    #[derive(Debug)]
    pub(crate) struct Condvar {
        /// Held from before the caller's lock is let go until it waits, and to notify: nothing is missed in between.
        gate: shuttle::sync::Mutex<()>,
        waiting: shuttle::sync::Condvar,
    }

    pub(crate) struct Waited {
        timed_out: bool,
    }

    impl Waited {
        pub(crate) fn timed_out(&self) -> bool {
            self.timed_out
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self {
                gate: shuttle::sync::Mutex::new(()),
                waiting: shuttle::sync::Condvar::new(),
            }
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let gate = self.gate.lock().expect("nobody panics with it");
            MutexGuard::unlocked(guard, || drop(self.waiting.wait(gate)));
        }

        /// There is no time here: what is far away never comes, what is near is past.
        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> Waited {
            let timed_out = until.saturating_duration_since(Instant::now()) < Duration::from_secs(60);
            if timed_out {
                MutexGuard::unlocked(guard, shuttle::thread::yield_now);
            } else {
                self.wait(guard);
            }
            Waited { timed_out }
        }

        pub(crate) fn notify_one(&self) {
            let _gate = self.gate.lock().expect("nobody panics with it");
            self.waiting.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            let _gate = self.gate.lock().expect("nobody panics with it");
            self.waiting.notify_all();
        }
    }
}
