//! Deadlocks, found in debug builds: every coroutine is parked, and nothing is left that could wake one.
//!
//! Owns: what the workers of a runtime have said of themselves. Called by: `host` at the end of each turn, `runtime`
//! (which waits for the verdict). Never does: anything in a release build, or where it cannot be sure.
//!
//! A worker is quiet when its coroutines are parked and its loop waits for nothing (no operation, timer, call or
//! message). All of them quiet is not enough: one may have sent another a message before it went quiet. So when all
//! have been found quiet with nothing done in between, all are called, and each has to be found so once more; a
//! message that was on its way has arrived by then.
//!
//! Threads that are not the runtime's could wake a coroutine too, so with such in the process nothing is said. One that
//! has ended by the time they are counted may have done so after a worker had looked: all have to be found quiet a third
//! time, behind the count.

use crate::join::JoinError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Whether deadlocks are looked for.
pub(crate) const SOUGHT: bool = cfg!(debug_assertions);

/// What the workers have said of themselves.
pub(crate) struct DeadlockDetector(Mutex<DetectorState>);

struct DetectorState {
    /// Counts the turns in which anything was done.
    deeds: u64,
    workers: Vec<WorkerReport>,
    /// What the count of deeds was when no other thread was left in the process.
    alone_at: Option<u64>,
    verdict: Option<String>,
    /// Who waits for the verdict.
    waiter: Option<Waker>,
}

#[derive(Clone)]
struct WorkerReport {
    /// What the count of deeds was when it was found quiet.
    at: Option<u64>,
    /// How often it was, with nothing done in between.
    times: u32,
    parked: Vec<String>,
    pool_threads: usize,
}

/// What a quiet worker has to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Sleep,
    /// All were found quiet, or some before the last deed: have each look again.
    CallAll,
}

impl DeadlockDetector {
    pub fn new(workers: usize) -> Self {
        let said = WorkerReport {
            at: None,
            times: 0,
            parked: Vec::new(),
            pool_threads: 0,
        };
        Self(Mutex::new(DetectorState {
            deeds: 0,
            workers: vec![said; workers],
            alone_at: None,
            verdict: None,
            waiter: None,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, DetectorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker has run a coroutine.
    pub fn active(&self, number: usize) {
        let mut state = self.lock();
        state.deeds += 1;
        if let Some(said) = state.workers.get_mut(number) {
            said.at = None;
        }
    }

    /// A worker is quiet; `parked` are its coroutines, `pool_threads` the idle threads of its loop.
    pub fn quiet(&self, number: usize, parked: Vec<String>, pool_threads: usize) -> Next {
        let mut state = self.lock();
        let deeds = state.deeds;
        let least = state.least_times();
        let Some(said) = state.workers.get_mut(number) else {
            return Next::Sleep;
        };
        // The second time counts once all have been quiet a first time, and so on.
        said.times = match said.at {
            Some(at) if at == deeds => said.times.max(1 + least),
            _ => 1,
        };
        said.at = Some(deeds);
        said.parked = parked;
        said.pool_threads = pool_threads;
        let is_stale = |said: &WorkerReport| said.at.is_some_and(|at| at != deeds);
        match (least, state.least_times()) {
            (0, 1) => Next::CallAll,
            (0, 0) if state.workers.iter().any(is_stale) => Next::CallAll,
            (1, 2) if state.is_alone() => {
                state.alone_at = Some(deeds);
                Next::CallAll
            }
            (2, 3) if state.alone_at == Some(deeds) => {
                state.judge();
                Next::Sleep
            }
            _ => Next::Sleep,
        }
    }

    /// The deadlock, once one is found.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<String> {
        let mut state = self.lock();
        if let Some(verdict) = state.verdict.take() {
            return Poll::Ready(verdict);
        }
        state.waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl DetectorState {
    /// How often all have been found quiet with nothing done in between.
    fn least_times(&self) -> u32 {
        let times = |said: &WorkerReport| {
            if said.at == Some(self.deeds) {
                said.times
            } else {
                0
            }
        };
        self.workers.iter().map(times).min().unwrap_or(0)
    }

    /// Whether the process has no threads but the workers' and those of their loops.
    fn is_alone(&self) -> bool {
        let known = self.workers.iter().map(|said| 1 + said.pool_threads).sum();
        threads().is_some_and(|count| count <= known)
    }

    fn judge(&mut self) {
        let parked: Vec<_> = self.workers.iter().flat_map(|said| &said.parked).collect();
        let mut verdict = format!(
            "deadlock: all {} coroutines are parked, and no operation, timer, call or thread is left that could \
             wake one:",
            parked.len()
        );
        for coroutine in parked {
            verdict.push_str("\n  ");
            verdict.push_str(coroutine);
        }
        self.verdict = Some(verdict);
        if let Some(waiter) = self.waiter.take() {
            waiter.wake();
        }
    }
}

/// The threads of the process; the kernel's own, which a ring starts, do not count.
fn threads() -> Option<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/task").ok()? {
        let name = std::fs::read_to_string(entry.ok()?.path().join("comm")).ok()?;
        count += usize::from(!name.starts_with("iou-"));
    }
    Some(count)
}

/// How a runtime's first coroutine ended.
pub(crate) enum Ended<T> {
    Joined(Result<T, JoinError>),
    Deadlock(String),
}
