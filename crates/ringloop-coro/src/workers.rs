//! The workers of a runtime as they meet: who has coroutines that have not begun, and who has nothing to do.
//!
//! Owns: the ends of the workers' queues at which others take, and the note of who is idle.
//! Called by: `host`. Never does: move a coroutine that has begun.
//!
//! A worker that finds nothing notes that it is idle, looks once more, and waits. A spawner puts its coroutine in its
//! queue, then looks for somebody idle. Each does its own part before it looks at the other's, in an order that both
//! see (`fence`), so a coroutine is never left lying with an idle worker beside it. Checked by loom below.

use crate::atomics::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::deadlock::DeadlockDetector;
use crate::inbox::Inbox;
use crate::task::Runnable;
use crossbeam_deque::{Steal, Stealer, Worker};
use std::sync::Arc;

/// The queue of a worker: coroutines that have not begun.
pub(crate) type StealQueue = Worker<Arc<dyn Runnable>>;

/// The workers of one runtime.
pub(crate) struct WorkerSet {
    seats: Vec<Remote>,
    idle: IdleSet,
    /// Workers that have not ended.
    present: AtomicUsize,
    /// Where deadlocks are looked for.
    pub census: Option<DeadlockDetector>,
}

struct Remote {
    door: Arc<Inbox>,
    stealer: Stealer<Arc<dyn Runnable>>,
}

/// What a worker is started with.
pub(crate) struct WorkerParts {
    pub team: Arc<WorkerSet>,
    pub number: usize,
    pub door: Arc<Inbox>,
    pub queue: StealQueue,
    pub presence: LiveWorker,
}

/// A worker that has not ended, until this is dropped.
pub(crate) struct LiveWorker(Arc<WorkerSet>);

impl Drop for LiveWorker {
    fn drop(&mut self) {
        // Whoever sees it go sees whom it has woken before.
        self.0.present.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A team of so many, and each one's place in it.
pub(crate) fn places(count: usize, census: Option<DeadlockDetector>) -> Vec<WorkerParts> {
    let parts: Vec<(StealQueue, Arc<Inbox>)> = (0..count.max(1))
        .map(|_| (Worker::new_fifo(), Arc::default()))
        .collect();
    let seats = parts.iter().map(|(queue, door)| Remote {
        door: Arc::clone(door),
        stealer: queue.stealer(),
    });
    let team = Arc::new(WorkerSet {
        seats: seats.collect(),
        idle: IdleSet::new(parts.len()),
        present: AtomicUsize::new(parts.len()),
        census,
    });
    let place = |(number, (queue, door))| WorkerParts {
        team: Arc::clone(&team),
        number,
        door,
        queue,
        presence: LiveWorker(Arc::clone(&team)),
    };
    parts.into_iter().enumerate().map(place).collect()
}

impl WorkerSet {
    /// Whether there is anybody to share with.
    pub fn is_alone(&self) -> bool {
        self.seats.len() < 2
    }

    /// Whether every worker but one has ended.
    pub fn is_last(&self) -> bool {
        self.present.load(Ordering::Acquire) < 2
    }

    /// A coroutine was put in a queue: call somebody who is idle.
    pub fn call_one(&self) {
        if let Some(number) = self.idle.take_one()
            && let Some(seat) = self.seats.get(number)
        {
            seat.door.call();
        }
    }

    /// Have every worker look for work.
    pub fn call_all(&self) {
        self.seats.iter().for_each(|seat| seat.door.call());
    }

    /// Take coroutines from others' queues: the first is returned, the rest is put in `queue`.
    pub fn steal(&self, number: usize, queue: &StealQueue) -> Option<Arc<dyn Runnable>> {
        let count = self.seats.len();
        for offset in 1..count {
            let seat = self.seats.get((number + offset) % count)?;
            loop {
                match seat.stealer.steal_batch_and_pop(queue) {
                    Steal::Success(task) => {
                        if !queue.is_empty() || !seat.stealer.is_empty() {
                            self.call_one();
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

    /// Note that this worker has nothing to do. `false`: there is something after all.
    pub fn rest(&self, number: usize) -> bool {
        self.idle.note(number);
        if self.seats.iter().all(|seat| seat.stealer.is_empty()) {
            return true;
        }
        self.idle.clear(number);
        false
    }

    /// This worker is at work.
    pub fn rise(&self, number: usize) {
        self.idle.clear(number);
    }
}

/// Who is idle.
struct IdleSet {
    flags: Vec<AtomicBool>,
    /// How many of the flags are up, for a look at one word.
    count: AtomicUsize,
}

impl IdleSet {
    fn new(count: usize) -> Self {
        Self {
            flags: (0..count).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// By a worker, before its last look at the queues.
    fn note(&self, number: usize) {
        if !self.flags[number].swap(true, Ordering::AcqRel) {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
    }

    /// Returns whether the flag was up: of several that clear it, one is told.
    fn clear(&self, number: usize) -> bool {
        let was = self.flags[number].load(Ordering::Relaxed)
            && self.flags[number].swap(false, Ordering::AcqRel);
        if was {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        was
    }

    /// By a spawner, after it has put its coroutine in the queue.
    fn take_one(&self) -> Option<usize> {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        (0..self.flags.len()).find(|number| self.clear(*number))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// A coroutine that was put in a queue is seen by the worker's last look, or its spawner finds the worker idle.
    #[test]
    fn coroutine_is_seen_or_the_worker_is_called() {
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
            idle.note(0);
            let seen = queued.load(Ordering::Acquire) == 1;
            let called = spawner.join().expect("spawner");
            assert!(seen || called, "left lying beside an idle worker");
        });
    }

    /// Of a worker that rises and a spawner that calls it, one clears the note.
    #[test]
    fn note_is_cleared_once() {
        loom::model(|| {
            let idle = loom::sync::Arc::new(IdleSet::new(1));
            idle.note(0);
            let spawner = {
                let idle = idle.clone();
                thread::spawn(move || idle.take_one().is_some())
            };
            let cleared = idle.clear(0);
            let called = spawner.join().expect("spawner");
            assert!(!(cleared && called), "cleared twice");
            assert!(!idle.flags[0].load(Ordering::Acquire), "still noted");
            assert_eq!(idle.count.load(Ordering::Acquire), 0);
        });
    }
}
