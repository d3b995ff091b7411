//! The workers of a runtime, as they share tasks that have not begun.
//!
//! Owns: the stealing ends of the workers' queues, and the set of idle workers. Called by:
//! `scheduler`, and `runtime`, which sets it up. A coroutine that has begun never moves.
//!
//! A worker without work marks itself idle, checks the queues once more, and waits. A spawner
//! queues its task, then looks for an idle worker. A `SeqCst` fence lies between the two steps on
//! either side, so no task stays queued beside an idle worker. Loom checks it below.

use crate::atomics::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::deadlock::DeadlockDetector;
use crate::inbox::Inbox;
use crate::task::Runnable;
use crossbeam_deque::{Steal, Stealer, Worker};
use std::sync::Arc;

/// A worker's queue of tasks that have not begun.
pub(crate) type StealQueue = Worker<Arc<dyn Runnable>>;

/// The workers of one runtime.
pub(crate) struct WorkerSet {
    remotes: Vec<Remote>,
    idle: IdleSet,
    /// Workers that have not ended.
    live: AtomicUsize,
    /// `None` where deadlocks are not detected.
    pub detector: Option<DeadlockDetector>,
}

/// A worker, as the others reach it.
struct Remote {
    inbox: Arc<Inbox>,
    stealer: Stealer<Arc<dyn Runnable>>,
}

/// What a worker is started with.
pub(crate) struct WorkerParts {
    pub set: Arc<WorkerSet>,
    pub index: usize,
    pub inbox: Arc<Inbox>,
    pub queue: StealQueue,
    pub live: LiveWorker,
}

/// Counts its worker as live until it is dropped.
pub(crate) struct LiveWorker(Arc<WorkerSet>);

impl Drop for LiveWorker {
    fn drop(&mut self) {
        // `Release`: a thread that sees this worker gone also sees the tasks it has woken.
        self.0.live.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sets up `count` workers.
pub(crate) fn worker_parts(count: usize, detector: Option<DeadlockDetector>) -> Vec<WorkerParts> {
    let parts: Vec<(StealQueue, Arc<Inbox>)> =
        (0..count.max(1)).map(|_| (Worker::new_fifo(), Arc::default())).collect();
    let remotes = parts
        .iter()
        .map(|(queue, inbox)| Remote { inbox: Arc::clone(inbox), stealer: queue.stealer() });
    let set = Arc::new(WorkerSet {
        remotes: remotes.collect(),
        idle: IdleSet::new(parts.len()),
        live: AtomicUsize::new(parts.len()),
        detector,
    });
    let worker = |(index, (queue, inbox))| WorkerParts {
        set: Arc::clone(&set),
        index,
        inbox,
        queue,
        live: LiveWorker(Arc::clone(&set)),
    };
    parts.into_iter().enumerate().map(worker).collect()
}

impl WorkerSet {
    pub fn is_single(&self) -> bool {
        self.remotes.len() < 2
    }

    /// Whether at most one worker has not ended.
    pub fn is_last_live(&self) -> bool {
        self.live.load(Ordering::Acquire) < 2
    }

    /// Notifies an idle worker of a queued task.
    pub fn notify_one(&self) {
        if let Some(index) = self.idle.take_one()
            && let Some(remote) = self.remotes.get(index)
        {
            remote.inbox.notify();
        }
    }

    /// Has every worker look for work.
    pub fn notify_all(&self) {
        self.remotes.iter().for_each(|remote| remote.inbox.notify());
    }

    /// Takes tasks from the other workers: returns the first, puts the rest in `queue`.
    pub fn steal(&self, index: usize, queue: &StealQueue) -> Option<Arc<dyn Runnable>> {
        let count = self.remotes.len();
        for offset in 1..count {
            let remote = self.remotes.get((index + offset) % count)?;
            loop {
                match remote.stealer.steal_batch_and_pop(queue) {
                    Steal::Success(task) => {
                        if !queue.is_empty() || !remote.stealer.is_empty() {
                            self.notify_one();
                        }
                        return Some(task);
                    }
                    Steal::Empty => break,
                    Steal::Retry => {}
                }
            }
        }
        None
    }

    /// Marks a worker as idle. `false`: a queue has a task after all.
    pub fn set_idle(&self, index: usize) -> bool {
        self.idle.insert(index);
        if self.remotes.iter().all(|remote| remote.stealer.is_empty()) {
            return true;
        }
        self.idle.remove(index);
        false
    }

    pub fn set_busy(&self, index: usize) {
        self.idle.remove(index);
    }
}

/// The idle workers.
struct IdleSet {
    flags: Vec<AtomicBool>,
    /// Number of flags that are set: a spawner mostly reads this word only.
    count: AtomicUsize,
}

impl IdleSet {
    fn new(count: usize) -> Self {
        Self {
            flags: (0..count).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// By a worker, before its last check of the queues.
    fn insert(&self, index: usize) {
        if !self.flags[index].swap(true, Ordering::AcqRel) {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
    }

    /// Returns whether the worker was idle; of several callers, one gets `true`.
    fn remove(&self, index: usize) -> bool {
        let was_idle = self.flags[index].load(Ordering::Relaxed)
            && self.flags[index].swap(false, Ordering::AcqRel);
        if was_idle {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        was_idle
    }

    /// By a spawner, after it has queued its task.
    fn take_one(&self) -> Option<usize> {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        (0..self.flags.len()).find(|index| self.remove(*index))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// A queued task is seen by the worker's last check, or its spawner sees the worker idle.
    #[test]
    fn queued_task_is_seen_or_the_worker_is_notified() {
        loom::model(|| {
            let idle = loom::sync::Arc::new(IdleSet::new(1));
            let queued = loom::sync::Arc::new(AtomicUsize::new(0));
            let spawner = {
                let (idle, queued) = (idle.clone(), queued.clone());
                thread::spawn(move || {
                    queued.store(1, Ordering::Release);
                    idle.take_one().is_some()
                })
            };
            idle.insert(0);
            let seen = queued.load(Ordering::Acquire) == 1;
            let notified = spawner.join().expect("spawner");
            assert!(seen || notified, "a task is queued beside an idle worker");
        });
    }

    /// Of a worker that becomes busy and a spawner that notifies it, one clears the flag.
    #[test]
    fn idle_flag_is_cleared_once() {
        loom::model(|| {
            let idle = loom::sync::Arc::new(IdleSet::new(1));
            idle.insert(0);
            let spawner = {
                let idle = idle.clone();
                thread::spawn(move || idle.take_one().is_some())
            };
            let cleared = idle.remove(0);
            let notified = spawner.join().expect("spawner");
            assert!(!(cleared && notified), "cleared twice");
            assert!(!idle.flags[0].load(Ordering::Acquire), "still idle");
            assert_eq!(idle.count.load(Ordering::Acquire), 0);
        });
    }
}
