//! Where other threads reach a host.
//!
//! Owns: the list of those that were woken elsewhere or sent to begin here, until the host takes them.
//! Called by: wakers and spawners on any thread, and `host`. Never does: run a coroutine.

use crate::task::Runnable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Where other threads reach a host.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<InboxState>);

#[derive(Default)]
struct InboxState {
    /// Coroutines that were woken elsewhere, or spawned for this host.
    tasks: Vec<Arc<dyn Runnable>>,
    waker: Option<Waker>,
    closed: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        // Nothing can panic while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Send a coroutine: one to wake, or a new one. A host that is gone gives it back.
    pub fn send(&self, task: Arc<dyn Runnable>) -> Result<(), Arc<dyn Runnable>> {
        let waker = {
            let mut arrivals = self.lock();
            if arrivals.closed {
                return Err(task);
            }
            arrivals.tasks.push(task);
            if arrivals.tasks.len() > 1 {
                return Ok(());
            }
            arrivals.waker.clone()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.lock().tasks.is_empty()
    }

    /// Have the host look for work.
    pub fn call(&self) {
        let waker = self.lock().waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What has arrived, by the host; `waker` is called for the next.
    pub fn take(&self, waker: &Waker) -> Vec<Arc<dyn Runnable>> {
        let mut arrivals = self.lock();
        let known = arrivals.waker.as_ref();
        if !known.is_some_and(|known| known.will_wake(waker)) {
            arrivals.waker = Some(waker.clone());
        }
        std::mem::take(&mut arrivals.tasks)
    }

    /// Take nothing more; what has arrived by now.
    pub fn close(&self) -> Vec<Arc<dyn Runnable>> {
        let closed = InboxState {
            closed: true,
            ..InboxState::default()
        };
        let arrivals = std::mem::replace(&mut *self.lock(), closed);
        // The waker is dropped with the lock free.
        arrivals.tasks
    }
}
