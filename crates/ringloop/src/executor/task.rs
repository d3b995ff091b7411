//! One task: its future, its state, and the waker that puts it in its loop's queue.
//!
//! Owns: the state machine that other threads' wakers share with the loop.
//! Called by: `local` (which runs tasks) and wakers on any thread.
//! Never does: touch the future from any thread but the loop's; only the state is shared.
//!
//! ```text
//!   Idle ──wake──▶ Queued ──run──▶ Running ──pending──▶ Idle
//!                    ▲                │ │
//!                    │              wake └──ready──▶ Done (wakes do nothing)
//!                    └──pending── Woken
//! ```
//! A task stands in at most one queue at a time: only the transitions to `Queued` enqueue it.

use super::inbox::Inbox;
use super::local::Local;
use super::sync::{AtomicU8, Ordering};
use std::sync::Arc;
use std::task::Wake;

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const WOKEN: u8 = 3;
const DONE: u8 = 4;

/// The part of a task that wakers share.
#[derive(Debug)]
pub(super) struct State(AtomicU8);

impl State {
    /// A task is made queued: somebody is about to put it in the queue.
    pub fn queued() -> Self {
        Self(AtomicU8::new(QUEUED))
    }

    /// Returns whether the caller has to enqueue the task.
    pub fn wake(&self) -> bool {
        let mut current = self.0.load(Ordering::Relaxed);
        loop {
            let (next, enqueue) = match current {
                IDLE => (QUEUED, true),
                RUNNING => (WOKEN, false),
                // Storing the same state again publishes the waker's writes to the next run.
                other => (other, false),
            };
            match self
                .0
                .compare_exchange_weak(current, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return enqueue,
                Err(changed) => current = changed,
            }
        }
    }

    /// The loop took the task off its queue; `false` when it is over.
    pub fn begin_run(&self) -> bool {
        let begun = self
            .0
            .compare_exchange(QUEUED, RUNNING, Ordering::AcqRel, Ordering::Acquire);
        begun.is_ok()
    }

    /// The future is pending; returns whether the loop has to enqueue the task again.
    pub fn end_run(&self) -> bool {
        if self
            .0
            .compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return false;
        }
        // A swap, not a store: it takes over what the wakers published.
        self.0.swap(QUEUED, Ordering::AcqRel);
        true
    }

    /// The future is gone.
    pub fn finish(&self) {
        self.0.swap(DONE, Ordering::AcqRel);
    }
}

/// Names a task of one loop; its sequence number is never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TaskId(pub u64);

/// What a waker holds.
#[derive(Debug)]
pub(super) struct Header {
    pub id: TaskId,
    pub state: State,
    pub inbox: Arc<Inbox<Arc<Header>>>,
}

impl Header {
    /// Enqueue a task whose state says so: directly on its own loop's thread, else by its inbox.
    pub fn enqueue(self: Arc<Self>) {
        if let Err(header) = Local::enqueue_here(self) {
            let inbox = Arc::clone(&header.inbox);
            // Refused only when the loop is closed; then the future is gone, or will never run.
            drop(inbox.send(header));
        }
    }
}

impl Wake for Header {
    fn wake(self: Arc<Self>) {
        if self.state.wake() {
            self.enqueue();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.wake() {
            Arc::clone(self).enqueue();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    /// A wake is never lost and never enqueues twice, whatever it races with.
    #[test]
    fn wake_runs_the_task_again_and_enqueues_once() {
        loom::model(|| {
            let state = Arc::new(State::queued());
            let queue = Arc::new(AtomicU32::new(1));
            let data = Arc::new(AtomicU32::new(0));
            let waker = {
                let (state, queue, data) = (state.clone(), queue.clone(), data.clone());
                thread::spawn(move || {
                    data.store(1, Ordering::Relaxed);
                    if state.wake() {
                        queue.fetch_add(1, Ordering::AcqRel);
                    }
                })
            };
            let mut seen = 0;
            let mut run = || {
                while queue.load(Ordering::Acquire) > 0 {
                    assert_eq!(queue.fetch_sub(1, Ordering::AcqRel), 1, "queued twice");
                    assert!(state.begin_run());
                    seen = data.load(Ordering::Relaxed);
                    if state.end_run() {
                        queue.fetch_add(1, Ordering::AcqRel);
                    }
                }
            };
            run();
            waker.join().expect("waker");
            run();
            assert_eq!(seen, 1, "the wake was lost");
        });
    }

    /// After the end a wake does nothing.
    #[test]
    fn wake_after_the_end_does_not_enqueue() {
        loom::model(|| {
            let state = Arc::new(State::queued());
            assert!(state.begin_run());
            let waker = {
                let state = state.clone();
                thread::spawn(move || state.wake())
            };
            state.finish();
            assert!(!waker.join().expect("waker"));
            assert!(!state.begin_run());
        });
    }
}
