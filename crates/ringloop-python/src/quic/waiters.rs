//! The waiters of connections.
//!
//! A waiter is made only if a call has to wait. A cancelled one stays until its event arrives, or
//! another one waits for the same: at most one per direction of a stream, and one per task that
//! accepts, opens or waits for datagrams.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use ringloop_quic::core::Handle;
use ringloop_quic::session::{self, Wait, WaitHasher, Wake};

use super::waiter::{Waiter, Way};

/// The waiters, by connection.
#[derive(Default)]
pub struct Waiters {
    /// By the handles' bits, which no peer chooses.
    by_handle: HashMap<u64, session::Waiters<Wait, Waiting>, BuildHasherDefault<WaitHasher>>,
}

/// An entry.
struct Waiting(Py<Waiter>);

impl session::Waiter for Waiting {
    fn is_done(&self) -> bool {
        self.0.get().is_done()
    }
}

impl Waiters {
    /// Adds a waiter; false if another one waits already and only one may. Done and replaced
    /// waiters are dropped after the lock is released.
    pub fn add(waiters: &Mutex<Self>, handle: Handle, wait: Wait, waiter: Py<Waiter>) -> bool {
        let mut guard = waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = guard.by_handle.entry(handle.to_bits()).or_default();
        let added = if matches!(wait, Wait::Read(_)) {
            of_one.add_only(wait, Waiting(waiter)).map(Vec::from_iter)
        } else {
            Ok(of_one.add(wait, Waiting(waiter)))
        };
        drop(guard);
        added.is_ok()
    }

    /// Wakes the waiters of these events; whether the loop's queue now has something of them. All
    /// of them are woken, even if one raises.
    pub fn wake(
        waiters: &Mutex<Self>,
        py: Python<'_>,
        woken: &[Wake],
        way: Way<'_>,
    ) -> PyResult<bool> {
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
                if let Some(of_one) = self.by_handle.get_mut(&handle.to_bits()) {
                    of_one.take(&wait, into);
                }
            }
            Wake::All(handle) => {
                if let Some(mut of_one) = self.by_handle.remove(&handle.to_bits()) {
                    of_one.take_all(into);
                }
            }
        }
    }

    /// Every waiter, for the garbage collector.
    pub fn all(&self) -> impl Iterator<Item = &Py<Waiter>> {
        let all = self.by_handle.values().flat_map(session::Waiters::iter);
        all.map(|waiting| &waiting.0)
    }
}
