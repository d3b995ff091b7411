//! The end of a host: everything unwinds, and nothing that is still used is freed.
//!
//! Owns: who may not leave before (see [`outlast`], [`reclaim`]). Called by: `host`, and by waits that end late. Never does:
//! wait for ever, or free a stack that somebody may still come back to.

use super::{CURRENT, Scheduler, Slot, refuse};
use crate::limits;
use crate::stack::StackPool;
use crate::switch::with_current;
use crate::task::Runnable;
use ringloop::executor::Local;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

thread_local! {
    /// A stack was left in the midst of unwinding, which std counts for as long as the thread is.
    static UNWINDS_FOR_EVER: Cell<bool> = const { Cell::new(false) };
}

/// Whether coroutines may run on the calling thread; else why not. Where one was left in the midst of unwinding, none
/// could tell whether it unwinds itself, and a cancelled one would wait for ever for the end of that.
pub(crate) fn usable() -> Result<(), &'static str> {
    if UNWINDS_FOR_EVER.get() {
        return Err(
            "no more coroutines can run on this thread: when a runtime ended on it, a destructor waited for what did not \
             come and its stack was left, so to std the thread is panicking for ever; use another thread, and see \
             which coroutine it was on standard error",
        );
    }
    Ok(())
}

/// The coroutine that runs waits for others to the end, whatever happens to it, until this is dropped.
pub(crate) fn outlast() -> Option<OutlastGuard> {
    let slot = with_current(|frame| frame.map(|frame| frame.head().slot()))?;
    let host = CURRENT.with_borrow(Option::clone)?;
    host.inner.borrow_mut().outlasting.push(slot);
    Some(OutlastGuard { host, slot })
}

/// See [`outlast`].
pub(crate) struct OutlastGuard {
    host: Rc<Scheduler>,
    slot: u32,
}

impl Drop for OutlastGuard {
    fn drop(&mut self) {
        let outlasting = &mut self.host.inner.borrow_mut().outlasting;
        if let Some(place) = outlasting.iter().position(|slot| *slot == self.slot) {
            outlasting.swap_remove(place);
        }
    }
}

/// The coroutine that runs has lent memory to the kernel, and stays until that has let go of it and this is dropped.
pub(crate) fn reclaim() -> Option<ReclaimGuard> {
    let host = CURRENT.with_borrow(Option::clone)?;
    host.inner.borrow_mut().reclaiming += 1;
    Some(ReclaimGuard { host })
}

/// See [`reclaim`].
pub(crate) struct ReclaimGuard {
    host: Rc<Scheduler>,
}

impl Drop for ReclaimGuard {
    fn drop(&mut self) {
        self.host.inner.borrow_mut().reclaiming -= 1;
    }
}

impl Scheduler {
    /// Every coroutine unwinds, and none begins any more. What destructors wait for is waited for, as long as something is
    /// on its way and one coroutine ends within [`limits::OUTLAST_MAX`] of the one before.
    pub(super) fn shut_down(&self) {
        self.refuse_those_to_come();
        let mut left = self.cancel_all();
        self.run_ready();
        let mut deadline = Instant::now() + limits::OUTLAST_MAX;
        loop {
            let before = left.len();
            left.retain(|slot| self.inner.borrow_mut().live(*slot).is_some());
            if left.len() < before {
                deadline = Instant::now() + limits::OUTLAST_MAX;
            }
            if left.is_empty() || Instant::now() >= deadline {
                break;
            }
            if !self.wait_at_end() {
                break;
            }
            self.run_ready();
        }
        let never_begun = |task: &Arc<dyn Runnable>| task.head().home().is_none();
        let arrivals = self.door.close();
        for task in arrivals.into_iter().filter(never_begun) {
            refuse(&*task);
        }
        self.abandon();
        drop(self.presence.take());
    }

    /// No coroutine begins here any more. Wakes from other threads still come by the door.
    fn refuse_those_to_come(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.closed = true;
        // The executor does not run this host again.
        let waker = inner.waker.take();
        let next = inner.next.take();
        drop(inner);
        drop(waker);
        self.arrivals(Waker::noop());
        for task in next
            .into_iter()
            .chain(std::iter::from_fn(|| self.queue.pop()))
        {
            refuse(&*task);
        }
    }

    /// Cancel and wake every coroutine; returns which there are.
    fn cancel_all(&self) -> Vec<u32> {
        let inner = &mut *self.inner.borrow_mut();
        let mut found = Vec::new();
        for slot in 0..inner.slots.len() as u32 {
            if let Some(live) = inner.live(slot) {
                live.task.head().mark_cancelled();
                inner.wake(slot);
                found.push(slot);
            }
        }
        found
    }

    /// Let those go on that are waited for at the end: the kernel, timers and pool threads, which tell by the loop or the
    /// door, and coroutines on a worker that has not ended. `false`: nothing is on its way.
    #[cold]
    fn wait_at_end(&self) -> bool {
        // Before the door: a worker that has ended has knocked by then.
        let is_last = self.team.is_last();
        let local = Local::try_current();
        // The loop's tasks go on, as far as they were not dropped: coroutines may wait for them, and those that are over
        // are among the ready ones until then. All of it before the door: who is done has knocked by then.
        let is_busy = local.as_ref().is_some_and(|local| {
            local.run_tasks();
            local.waits_for_nothing().is_none()
        });
        self.arrivals(Waker::noop());
        let inner = self.inner.borrow();
        let pause = if !inner.ready.is_empty() {
            Duration::ZERO
        } else if is_busy || !is_last || !inner.outlasting.is_empty() {
            limits::OUTLAST_PAUSE
        } else {
            return false;
        };
        drop(inner);
        if local.is_none_or(|local| turn(&local, pause).is_err()) {
            thread::sleep(pause);
        }
        let outlasting = self.inner.borrow().outlasting.clone();
        for slot in outlasting {
            self.inner.borrow_mut().wake(slot);
        }
        true
    }

    /// Give each coroutine that is ready one turn, at the end.
    #[cold]
    fn run_ready(&self) {
        let count = self.inner.borrow().ready.len();
        let local = Local::try_current();
        for _ in 0..count {
            // Each has its own allowance, as in a turn of the executor: what is over at once is refused without.
            if let Some(local) = &local {
                local.begin_poll();
            }
            self.run_one(false);
        }
    }

    /// Leave the stacks of those that wait in a destructor for what will not come: nothing on them may be freed. What they
    /// have lent may also be the thread's, which ends: where somebody could still use that, the process ends first.
    fn abandon(&self) {
        let mut left = Vec::new();
        {
            let inner = &mut *self.inner.borrow_mut();
            if inner.reclaiming > 0 {
                eprintln!(
                    "ringloop-coro: the kernel has not let go of the memory of {} reads and writes within {:?} of \
                     their cancel; the process ends before that memory is somebody else's",
                    inner.reclaiming,
                    limits::OUTLAST_MAX
                );
                std::process::abort();
            }
            // With one worker, nobody runs any more who could use what is left.
            if !inner.outlasting.is_empty() && !self.team.is_alone() {
                eprintln!(
                    "ringloop-coro: coroutines of a scope have not ended within {:?} of their cancel; the process ends \
                     before what they borrow of this thread is gone",
                    limits::OUTLAST_MAX
                );
                std::process::abort();
            }
            for slot in &mut inner.slots {
                if let Slot::Live(live) = slot {
                    std::mem::forget(live.fiber.take());
                    left.push(Arc::clone(&live.task));
                }
            }
            if left.is_empty() {
                return;
            }
            if thread::panicking() {
                UNWINDS_FOR_EVER.set(true);
            }
            std::mem::forget(std::mem::replace(&mut inner.stacks, StackPool::new(0)));
        }
        for task in left {
            eprintln!(
                "ringloop-coro: coroutine {} waits in a destructor for what will not come; its stack is left as it is",
                task.head()
            );
            refuse(&*task);
        }
    }
}

/// The rest of a loop's turn: what has come in the meantime wakes who waits for it.
fn turn(local: &Local, pause: Duration) -> io::Result<()> {
    let mut engine = local.engine();
    engine.park(Some(pause))?;
    engine.fire_timers();
    while engine.next_event().is_some() {}
    Ok(())
}
