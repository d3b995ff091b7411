//! Deadlock detection in debug builds: every coroutine is parked, and nothing can wake one.
//!
//! Owns: what the workers of a runtime have reported. Called by: `scheduler` at the end of each
//! turn, `runtime`, which waits for the verdict. Release builds compile it and do not call it.
//!
//! A worker is idle when its coroutines are parked and its loop has no operation, timer, blocking
//! call or message pending. All workers idle is not enough: one may have sent another a message
//! before. So once all have reported idle with no progress in between, all are notified and have
//! to report it again; a message that was in flight has arrived by then.
//!
//! Threads outside of the runtime could wake a coroutine too, so a process with such threads gets
//! no verdict. A thread that has ended when they are counted may have sent something before: all
//! workers have to report a third time, after the count.

use crate::atomics::locked;
use crate::sys::thread_count;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// Whether deadlocks are detected.
pub(crate) const ENABLED: bool = cfg!(debug_assertions);

/// The reports of a runtime's workers.
pub(crate) struct DeadlockDetector(Mutex<DetectorState>);

struct DetectorState {
    /// Number of turns that ran a coroutine.
    progress: u64,
    workers: Vec<WorkerReport>,
    /// `progress` when the process was found to have no other threads.
    alone_at: Option<u64>,
    verdict: Option<String>,
    waiter: Option<Waker>,
}

#[derive(Default, Clone)]
struct WorkerReport {
    /// `progress` when it was idle.
    at: Option<u64>,
    /// Rounds of reports, with no progress in between.
    rounds: u32,
    parked: Vec<String>,
    pool_thread_count: usize,
}

impl DeadlockDetector {
    pub fn new(worker_count: usize) -> Self {
        Self(Mutex::new(DetectorState {
            progress: 0,
            workers: vec![WorkerReport::default(); worker_count],
            alone_at: None,
            verdict: None,
            waiter: None,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, DetectorState> {
        locked(&self.0)
    }

    /// A worker has run a coroutine.
    pub fn note_progress(&self, worker: usize) {
        let mut state = self.lock();
        state.progress += 1;
        if let Some(report) = state.workers.get_mut(worker) {
            report.at = None;
        }
    }

    /// A worker is idle; `parked` names its coroutines, its loop has `pool_thread_count` idle
    /// threads. Returns whether to notify all workers, which report again.
    pub fn report_idle(
        &self,
        worker: usize,
        parked: Vec<String>,
        pool_thread_count: usize,
    ) -> bool {
        let mut state = self.lock();
        let progress = state.progress;
        let complete = state.complete_rounds();
        let Some(report) = state.workers.get_mut(worker) else {
            return false;
        };
        // The second round counts once all workers have reported a first time, and so on.
        report.rounds = match report.at {
            Some(at) if at == progress => report.rounds.max(1 + complete),
            _ => 1,
        };
        report.at = Some(progress);
        report.parked = parked;
        report.pool_thread_count = pool_thread_count;
        let is_stale = |report: &WorkerReport| report.at.is_some_and(|at| at != progress);
        match (complete, state.complete_rounds()) {
            (0, 1) => true,
            (0, 0) if state.workers.iter().any(is_stale) => true,
            (1, 2) if state.is_alone() => {
                state.alone_at = Some(progress);
                true
            }
            (2, 3) if state.alone_at == Some(progress) => {
                state.decide();
                false
            }
            _ => false,
        }
    }

    /// Ready with the message once a deadlock is found.
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
    /// Rounds in which all workers have reported, with no progress in between.
    fn complete_rounds(&self) -> u32 {
        let rounds = |report: &WorkerReport| match report.at {
            Some(at) if at == self.progress => report.rounds,
            _ => 0,
        };
        self.workers.iter().map(rounds).min().unwrap_or(0)
    }

    /// Whether all threads of the process are workers or threads of their loops.
    fn is_alone(&self) -> bool {
        let threads = |report: &WorkerReport| 1 + report.pool_thread_count;
        let known = self.workers.iter().map(threads).sum();
        thread_count().is_some_and(|count| count <= known)
    }

    fn decide(&mut self) {
        let parked = self.workers.iter().flat_map(|report| &report.parked);
        let mut verdict = format!(
            "deadlock: all {} coroutines are parked, and no operation, timer, call or thread is left that could \
             wake one:",
            parked.clone().count()
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
