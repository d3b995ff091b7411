//! Tasks that other threads send to a scheduler: remote wakes and spawns.
//!
//! Owns: the list of sent tasks until the scheduler takes it. Called by: wakers and spawners on
//! any thread (`send`), `scheduler` (`take`, `close`), `workers` (`notify`).

use crate::atomics::locked;
use crate::task::Runnable;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

/// Tasks sent to one scheduler.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<InboxState>);

#[derive(Default)]
struct InboxState {
    /// Tasks to wake, and new ones to adopt.
    tasks: Vec<Arc<dyn Runnable>>,
    waker: Option<Waker>,
    is_closed: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        locked(&self.0)
    }

    /// Sends a task: one to wake, or a new one. A scheduler that has ended gives it back.
    pub fn send(&self, task: Arc<dyn Runnable>) -> Result<(), Arc<dyn Runnable>> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(task);
        }
        state.tasks.push(task);
        if state.tasks.len() == 1 {
            wake(state);
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.lock().tasks.is_empty()
    }

    /// Has the scheduler look for work.
    pub fn notify(&self) {
        wake(self.lock());
    }

    /// Takes what was sent; the next `send` calls `waker`.
    pub fn take(&self, waker: &Waker) -> Vec<Arc<dyn Runnable>> {
        let mut state = self.lock();
        match &mut state.waker {
            Some(known) => known.clone_from(waker),
            unknown => *unknown = Some(waker.clone()),
        }
        std::mem::take(&mut state.tasks)
    }

    /// Takes what was sent, and nothing more from now on.
    pub fn close(&self) -> Vec<Arc<dyn Runnable>> {
        let closed = InboxState { is_closed: true, ..InboxState::default() };
        let state = std::mem::replace(&mut *self.lock(), closed);
        // The waker is dropped with the lock free.
        state.tasks
    }
}

/// Wakes the scheduler with the lock free.
fn wake(state: MutexGuard<'_, InboxState>) {
    let waker = state.waker.clone();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}
