//! Result of `call_soon_threadsafe` from CPython 3.14 on: `asyncio.events._ThreadSafeHandle`.
//!
//! Its `cancel` and `cancelled` wait while the callback runs in another thread, so that a cancelled
//! callback is known not to run any more.

use std::ffi::CStr;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Condvar, Mutex, PoisonError};

use pyo3::prelude::*;

use super::callback::{AsHandle, Contexts, SLOTS, State};
use super::handle::{self, HandleType};
use crate::ffi::{self, Payload, This, payload};

/// A handle that other threads may cancel.
#[derive(Default)]
pub struct ThreadSafeHandle {
    state: State,
    gate: Gate,
}

/// A re-entrant lock (`threading.RLock`), waited for without the interpreter lock.
#[derive(Default)]
struct Gate {
    /// The thread inside; zero for none.
    owner: AtomicU64,
    /// How often the owner has entered; only the owner touches it.
    depth: AtomicU32,
    waiting_count: AtomicU32,
}

/// Shared by all threads that wait for a gate: too rare for one each.
static LOCK: Mutex<()> = Mutex::new(());
static LEFT: Condvar = Condvar::new();

impl Gate {
    #[inline]
    fn enter(&self, py: Python<'_>) -> Held<'_> {
        let me = ffi::thread_id();
        if !self.try_enter(me) {
            py.detach(|| self.wait(me));
        }
        self.depth.fetch_add(1, Relaxed);
        Held(self)
    }

    #[inline]
    fn try_enter(&self, me: u64) -> bool {
        match self.owner.compare_exchange(0, me, SeqCst, SeqCst) {
            Ok(_) => true,
            Err(owner) => owner == me,
        }
    }

    #[cold]
    fn wait(&self, me: u64) {
        // A leaving thread reads the count after it opened the gate, and we check the gate after we
        // incremented the count, so one of the two sees the other.
        let mut guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting_count.fetch_add(1, SeqCst);
        while !self.try_enter(me) {
            guard = LEFT.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting_count.fetch_sub(1, SeqCst);
    }
}

/// Leaves the gate when dropped.
struct Held<'a>(&'a Gate);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.depth.fetch_sub(1, Relaxed) > 1 {
            return;
        }
        self.0.owner.store(0, SeqCst);
        if self.0.waiting_count.load(SeqCst) > 0 {
            drop(LOCK.lock().unwrap_or_else(PoisonError::into_inner));
            LEFT.notify_all();
        }
    }
}

impl AsHandle for ThreadSafeHandle {
    fn state(&self) -> &State {
        &self.state
    }
}

impl HandleType for ThreadSafeHandle {
    fn cancel(this: This<'_, '_, Self>) -> PyResult<()> {
        let _held = this.gate.enter(this.py());
        handle::cancel_handle(this)
    }

    fn cancelled(this: This<'_, '_, Self>) -> bool {
        let _held = this.gate.enter(this.py());
        this.state.is_cancelled()
    }

    /// Does nothing if it was cancelled while the gate was closed.
    fn run(this: This<'_, '_, Self>, contexts: &Contexts) -> PyResult<()> {
        let _held = this.gate.enter(this.py());
        if this.state.is_cancelled() {
            return Ok(());
        }
        handle::run(this, contexts)
    }
}

impl Payload for ThreadSafeHandle {
    const NAME: &'static CStr = c"ringloop._native._ThreadSafeHandle";
    const DOC: &'static CStr = c"A callback that any thread may cancel.";
    const BASE_SLOTS: usize = SLOTS;
    payload!(ThreadSafeHandle; define handle::define; visit; clear);
}
