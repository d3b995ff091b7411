//! Who waits for something of a connection.
//!
//! A waiter is made only where there is nothing to be had at the moment. One that was cancelled stays until what it
//! waited for comes, or another one waits for the same: at most one for a stream's direction, and one for each
//! task that accepts, opens or waits for datagrams.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use ringloop_quic::core::Handle;
use ringloop_quic::session::{self, Wait, Wake};

use super::waiter::{Waiter, Way};

/// The waiters, by connection.
#[derive(Default)]
pub struct Waiters {
    by_handle: HashMap<Handle, session::Waiters<Wait, Waiting>>,
}

/// One who waits.
struct Waiting(Py<Waiter>);

impl session::Waiter for Waiting {
    fn is_done(&self) -> bool {
        self.0.get().is_done()
    }
}

impl Waiters {
    /// Have one wait; false: another one does already, for what only one may wait for. Those that are done, and what it
    /// replaces, are dropped once the lock is free.
    pub fn add(waiters: &Mutex<Self>, handle: Handle, wait: Wait, waiter: Py<Waiter>) -> bool {
        let mut guard = waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = guard.by_handle.entry(handle).or_default();
        let added = if matches!(wait, Wait::Read(_)) {
            of_one.add_only(wait, Waiting(waiter)).map(Vec::from_iter)
        } else {
            Ok(of_one.add(wait, Waiting(waiter)))
        };
        drop(guard);
        added.is_ok()
    }

    /// Wake those who wait for what has come; tells whether the loop's queue has anything of them now. All of them
    /// are woken, whatever one of them raises.
    pub fn wake(waiters: &Mutex<Self>, py: Python<'_>, woken: &[Wake], way: Way) -> PyResult<bool> {
        let mut found = Vec::new();
        {
            let mut guard = waiters.lock().unwrap_or_else(PoisonError::into_inner);
            for wake in woken {
                guard.take(*wake, &mut found);
            }
        }
        let (mut queued, mut failed) = (false, Ok(()));
        for Waiting(waiter) in found {
            let way = if failed.is_ok() { way } else { Way::Queue };
            match Waiter::wake(waiter.bind(py), way) {
                Ok(is_queued) => queued |= is_queued,
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed.map(|()| queued)
    }

    fn take(&mut self, wake: Wake, into: &mut Vec<Waiting>) {
        match wake {
            Wake::For(handle, wait) => {
                if let Some(of_one) = self.by_handle.get_mut(&handle) {
                    of_one.take(&wait, into);
                }
            }
            Wake::All(handle) => {
                if let Some(mut of_one) = self.by_handle.remove(&handle) {
                    of_one.take_all(into);
                }
            }
        }
    }

    /// Every waiter, for the collector.
    pub fn all(&self) -> impl Iterator<Item = &Py<Waiter>> {
        let all = self.by_handle.values().flat_map(session::Waiters::iter);
        all.map(|waiting| &waiting.0)
    }
}
