//! Threads that wait for work between ops of a step: a short spin, then sleep.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

/// How often a thread looks for work before it sleeps: some tens of microseconds.
const SPINS: u32 = 20_000;

/// Set in [`Shared::gate`] while a job may be joined. Below it: the number of threads inside, and
/// above it, a job counter, so that no two jobs look alike to a late thread.
const OPEN: u64 = 1 << 32;
const NEXT_JOB: u64 = 1 << 33;
const INSIDE: u64 = OPEN - 1;

/// A persistent pool. The calling thread always works too.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    sleepers: Vec<Thread>,
}

type Job<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    gate: AtomicU64,
    /// Valid from the opening of the gate until nobody is inside.
    job: UnsafeCell<Option<*const Job<'static>>>,
    next: AtomicUsize,
    count: AtomicUsize,
    asleep: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
}

// SAFETY: `job` is written only while the gate is closed and nobody is inside, and read only
// between joining and leaving; the gate's acquire and release order the two.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is used only while the caller of `run` keeps the job alive.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool in which `threads` threads work, the caller among them.
    pub(crate) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let spawn = |i: usize| {
            let shared = Arc::clone(&shared);
            let named = thread::Builder::new().name(format!("lapidary-cpu-{i}"));
            named.spawn(move || shared.work()).ok()
        };
        let workers: Vec<_> = (1..threads.max(1)).map_while(spawn).collect();
        let sleepers = workers.iter().map(|worker| worker.thread().clone()).collect();
        Self { shared, workers, sleepers }
    }

    /// Threads that work on a job.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `job` with every number below `count`, in any order, on any thread, and returns when
    /// all calls have.
    ///
    /// # Panics
    /// If a call panics.
    pub(crate) fn run(&self, count: usize, job: &Job<'_>) {
        if count <= 1 || self.workers.is_empty() {
            (0..count).for_each(job);
            return;
        }
        let shared = &*self.shared;
        // SAFETY: the gate is closed and nobody is inside: the previous `run` waited for that.
        // The lifetime is extended to `'static` only until this call ends, which waits too.
        unsafe {
            let job = std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job);
            *shared.job.get() = Some(job);
        }
        shared.next.store(0, Ordering::Relaxed);
        shared.count.store(count, Ordering::Relaxed);
        shared.gate.fetch_add(NEXT_JOB | OPEN, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            self.sleepers.iter().for_each(Thread::unpark);
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| shared.take_turns(job)));
        shared.gate.fetch_sub(OPEN, Ordering::AcqRel);
        while shared.gate.load(Ordering::Acquire) & INSIDE != 0 {
            std::hint::spin_loop();
        }
        let elsewhere = shared.panicked.swap(false, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        assert!(!elsewhere, "a call of the job panicked on a worker thread");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.sleepers.iter().for_each(Thread::unpark);
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so already.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn take_turns(&self, job: &Job<'_>) {
        let count = self.count.load(Ordering::Relaxed);
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return;
            }
            job(i);
        }
    }

    fn work(&self) {
        while self.wait_and_join() {
            // SAFETY: this thread is inside, so the job is set and alive.
            let job = unsafe { (*self.job.get()).map(|job| &*job) };
            let job = job.expect("an open gate has a job");
            if catch_unwind(AssertUnwindSafe(|| self.take_turns(job))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.gate.fetch_sub(1, Ordering::Release);
            self.wait_for_close();
        }
    }

    /// Enters an open gate. `false` once the pool is being dropped.
    fn wait_and_join(&self) -> bool {
        let mut spins = 0;
        loop {
            let gate = self.gate.load(Ordering::Acquire);
            if gate & OPEN != 0 {
                let joined =
                    self.gate.compare_exchange(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed);
                if joined.is_ok() {
                    return true;
                }
                continue;
            }
            if self.stop.load(Ordering::SeqCst) {
                return false;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                self.sleep();
                spins = 0;
            }
        }
    }

    /// Sleeps unless work has come in the meantime. Waking without work is harmless.
    fn sleep(&self) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let idle = self.gate.load(Ordering::SeqCst) & OPEN == 0;
        if idle && !self.stop.load(Ordering::SeqCst) {
            thread::park();
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    /// All numbers are taken: waits until the caller has seen so, rather than joining again.
    fn wait_for_close(&self) {
        while self.gate.load(Ordering::Acquire) & OPEN != 0
            && self.next.load(Ordering::Relaxed) >= self.count.load(Ordering::Relaxed)
        {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_called_once() {
        let pool = Pool::new(3);
        for round in 0..2_000 {
            let count = round % 37;
            let calls: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            pool.run(count, &|i| {
                calls[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) == 1), "round {round}");
        }
    }

    #[test]
    fn a_sleeping_pool_wakes() {
        let pool = Pool::new(2);
        for _ in 0..5 {
            thread::sleep(std::time::Duration::from_millis(5));
            let sum = AtomicUsize::new(0);
            pool.run(100, &|i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 4950);
        }
    }

    #[test]
    fn a_panicking_job_is_reported_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let run = || pool.run(8, &|i| assert!(i != 5, "five"));
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        pool.run(8, &|_| {});
    }
}
