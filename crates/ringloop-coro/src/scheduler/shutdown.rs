//! The end of a scheduler: its coroutines unwind, and nothing still in use is freed.
//!
//! Owns: `Scheduler::shut_down`. Called by: the drop of `SchedulerTask`. It waits for destructors
//! as long as they make progress, and aborts the process rather than free borrowed memory.

use super::Scheduler;
use super::state::Uninterruptible;
use crate::limits;
use crate::stack::StackPool;
use crate::task::reject;
use crate::unwind;
use ringloop::embed::Local;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

impl Scheduler {
    /// Cancels every coroutine, and waits for what their destructors wait for: as long as something
    /// is in progress, and a coroutine ends within [`limits::SHUTDOWN_STALL_MAX`] of the one
    /// before.
    pub(super) fn shut_down(&self) {
        self.close();
        let mut left = self.cancel_all();
        self.run_ready();
        let mut deadline = Instant::now() + limits::SHUTDOWN_STALL_MAX;
        loop {
            let before = left.len();
            left.retain(|slot| self.state.borrow_mut().get(*slot).is_some());
            if left.len() < before {
                deadline = Instant::now() + limits::SHUTDOWN_STALL_MAX;
            }
            if left.is_empty() || Instant::now() >= deadline || !self.wait_for_progress() {
                break;
            }
            self.run_ready();
        }
        let sent = self.inbox.close();
        for task in sent.iter().filter(|task| !task.header().is_bound()) {
            reject(&**task);
        }
        self.abandon();
        drop(self.live.take());
    }

    /// Rejects the tasks that have not begun. Remote wakes are still received.
    fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.is_closed = true;
        // The executor does not run this scheduler again.
        let waker = state.waker.take();
        let newest = state.lifo_slot.take();
        drop(state);
        drop(waker);
        self.receive(Waker::noop());
        let queued = std::iter::from_fn(|| self.queue.pop());
        for task in newest.into_iter().chain(queued) {
            reject(&*task);
        }
    }

    /// Cancels and wakes every coroutine; returns their slots.
    fn cancel_all(&self) -> Vec<u32> {
        let mut state = self.state.borrow_mut();
        let cancel = state.all().map(|(slot, coroutine)| {
            coroutine.task.header().set_cancelled();
            slot
        });
        let slots: Vec<u32> = cancel.collect();
        for slot in &slots {
            state.wake(*slot);
        }
        slots
    }

    /// Turns the loop: operations, timers and blocking calls wake coroutines, as do other workers.
    /// `false`: nothing is in progress.
    #[cold]
    fn wait_for_progress(&self) -> bool {
        // Before the inbox is read: a worker that has ended has sent its wakes by then.
        let is_last = self.workers.is_last_live();
        let local = Local::try_current();
        // Coroutines may wait for the loop's tasks, which run here until they are dropped. Finished
        // tasks stay among the ready ones until they have run. Before the inbox, as above.
        let is_busy = local.as_ref().is_some_and(|local| {
            local.run_tasks();
            local.quiescent().is_none()
        });
        self.receive(Waker::noop());
        let state = self.state.borrow();
        let pause = if !state.ready.is_empty() {
            Duration::ZERO
        } else if is_busy || !is_last || !state.uninterruptible.is_empty() {
            limits::SHUTDOWN_PAUSE
        } else {
            return false;
        };
        drop(state);
        if local.is_none_or(|local| turn(&local, pause).is_err()) {
            thread::sleep(pause);
        }
        let mut state = self.state.borrow_mut();
        for (slot, _) in state.uninterruptible.clone() {
            state.wake(slot);
        }
        true
    }

    /// Runs each ready coroutine once.
    #[cold]
    fn run_ready(&self) {
        let count = self.state.borrow().ready.len();
        let local = Local::try_current();
        for _ in 0..count {
            // Without an allowance of its own, a coroutine's immediate operations would be refused.
            if let Some(local) = &local {
                local.begin_poll();
            }
            self.run_one(false);
        }
    }

    /// Leaves the stacks of coroutines that wait in a destructor for what will not come, and frees
    /// nothing on them. Aborts the process where the kernel or another worker may still use memory
    /// that ends with this thread.
    fn abandon(&self) {
        let mut left = Vec::new();
        {
            let state = &mut *self.state.borrow_mut();
            let waits = state.uninterruptible.iter();
            let in_kernel = waits.filter(|(_, why)| *why == Uninterruptible::Kernel).count();
            if in_kernel > 0 {
                abort(&format!(
                    "the kernel has not released the memory of {in_kernel} reads and writes within {:?} of their \
                     cancel; the process ends before that memory is reused",
                    limits::SHUTDOWN_STALL_MAX
                ));
            }
            // On a single worker the coroutines of a scope never run again.
            if !state.uninterruptible.is_empty() && !self.workers.is_single() {
                abort(&format!(
                    "coroutines of a scope have not ended within {:?} of their cancel; the process ends before what \
                     they borrow of this thread is gone",
                    limits::SHUTDOWN_STALL_MAX
                ));
            }
            for (_, coroutine) in state.all() {
                std::mem::forget(coroutine.fiber.take());
                left.push(Arc::clone(&coroutine.task));
            }
            if left.is_empty() {
                return;
            }
            unwind::note_abandoned();
            std::mem::forget(std::mem::replace(&mut state.stacks, StackPool::new(0)));
        }
        for task in left {
            eprintln!(
                "ringloop-coro: coroutine {} waits in a destructor for what will not come; its stack is left as it is",
                task.header()
            );
            reject(&*task);
        }
    }
}

fn abort(reason: &str) -> ! {
    eprintln!("ringloop-coro: {reason}");
    std::process::abort();
}

/// One turn of the loop, without its tasks: completions and timers wake their waiters.
fn turn(local: &Local, pause: Duration) -> io::Result<()> {
    let mut engine = local.engine();
    engine.park(Some(pause))?;
    engine.fire_timers();
    while engine.next_event().is_some() {}
    Ok(())
}
