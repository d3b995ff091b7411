//! State shared by an endpoint, its connections and streams, and the lock order.
//!
//! Three locks, each held alone and for a few instructions, except `state`, which is also held
//! while packets are sealed and opened, and under which a stream's halves are locked:
//!
//! | lock      | guards                     | while it is held                                              |
//! |-----------|----------------------------|---------------------------------------------------------------|
//! | `state`   | the protocol; no Python objects | Python objects are not called, made or dropped   |
//! | `waiters` | waiters                    | they are moved in or out, never dropped or called             |
//! | `loop_`   | the loop's methods, timer  | as above                                                      |
//!
//! So no thread waits for the interpreter while it holds one of these locks, and a thread that
//! holds the interpreter and finds `state` locked releases the interpreter while it waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use ringloop_quic::session::Wake;

use super::loop_::LoopSide;
use super::ready::Ready;
use super::state::State;
use super::waiter::Way;
use super::waiters::Waiters;
use crate::ffi;

/// See the module docs.
pub struct Shared {
    state: Mutex<State>,
    pub waiters: Mutex<Waiters>,
    pub loop_: Mutex<LoopSide>,
    /// A flush is in the loop's queue.
    pub is_flush_armed: AtomicBool,
    /// Something was sent ahead of it.
    pub has_sent: AtomicBool,
    /// The last turn, and the last flush, took less than `QUIC_BRIEF_RUN`.
    pub was_turn_brief: AtomicBool,
    pub was_flush_brief: AtomicBool,
    ready: Py<Ready>,
}

impl Shared {
    pub fn new(py: Python<'_>, state: State) -> PyResult<Arc<Self>> {
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            waiters: Mutex::default(),
            loop_: Mutex::default(),
            is_flush_armed: AtomicBool::new(false),
            has_sent: AtomicBool::new(false),
            was_turn_brief: AtomicBool::new(false),
            was_flush_brief: AtomicBool::new(false),
            ready: Py::new(py, Ready)?,
        }))
    }

    /// The awaitable of calls that need not wait.
    #[inline]
    pub fn ready<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.ready.bind(py).clone().into_any()
    }

    /// The protocol, for a thread that holds the interpreter.
    #[inline]
    pub fn state(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        ffi::arm();
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// The protocol, for a thread that has released the interpreter.
    pub fn state_detached(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The protocol, if it is not locked.
    pub fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// Wakes waiters, and makes the loop send.
    pub fn finish(self: &Arc<Self>, py: Python<'_>, woken: Vec<Wake>) -> PyResult<()> {
        if !woken.is_empty() {
            Waiters::wake(&self.waiters, py, &woken, Way::Queue)?;
        }
        self.arm_flush(py)
    }

    /// Something may have to be sent, at the end of this pass of the loop.
    #[inline]
    pub fn arm_flush(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_flush_armed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let called = LoopSide::call_soon_flush(&self.loop_, py);
        if called.is_err() {
            // It is in no queue: the next write must try again.
            self.is_flush_armed.store(false, Ordering::Release);
        }
        called
    }
}
