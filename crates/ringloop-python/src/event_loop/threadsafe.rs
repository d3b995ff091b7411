//! Result of `call_soon_threadsafe` from CPython 3.14 on: `asyncio.events._ThreadSafeHandle`.
//!
//! Its `cancel` and `cancelled` wait while the callback runs in another thread, so that a cancelled
//! callback is known not to run any more.

use std::ffi::CStr;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release, SeqCst},
};
use std::sync::{Condvar, Mutex, PoisonError};

use pyo3::prelude::*;

use super::callback::{AsHandle, SLOTS, State};
use super::contexts::Entered;
use super::handle::{self, HandleType};
use crate::ffi::{self, Payload, This, payload};
use crate::limits;

/// A handle that other threads may cancel, with a re-entrant lock (`threading.RLock`) that is waited for
/// without the interpreter lock. A burst of calls makes many of them at once: 128 bytes each.
#[derive(Default)]
pub struct ThreadSafeHandle {
    state: State,
    /// How often the owner has entered; only the owner touches it.
    depth: AtomicU32,
    /// The thread inside; zero for none.
    owner: AtomicU64,
    /// A thread waits for it, or has waited.
    is_waited_for: AtomicBool,
}

/// Shared by all threads that wait for a handle: too rare for one each.
static LOCK: Mutex<()> = Mutex::new(());
static LEFT: Condvar = Condvar::new();

impl ThreadSafeHandle {
    #[inline]
    fn enter(&self, py: Python<'_>) -> Held<'_> {
        let me = ffi::thread_id();
        while !self.try_enter(me) {
            self.wait(py);
        }
        self.depth.store(self.depth.load(Relaxed) + 1, Relaxed);
        Held(self)
    }

    /// Called attached: with the interpreter lock no other thread changes the owner meanwhile.
    #[inline]
    fn try_enter(&self, me: u64) -> bool {
        let entered = if cfg!(Py_GIL_DISABLED) {
            self.owner.compare_exchange(0, me, SeqCst, SeqCst)
        } else {
            match self.owner.load(Relaxed) {
                0 => {
                    self.owner.store(me, Relaxed);
                    Ok(0)
                }
                owner => Err(owner),
            }
        };
        entered.is_ok() || entered == Err(me)
    }

    #[cold]
    fn wait(&self, py: Python<'_>) {
        // A leaving thread reads the flag after it released the handle, and we look at the owner after
        // we set the flag, so one of the two sees the other.
        self.is_waited_for.store(true, SeqCst);
        let owner = &self.owner;
        py.detach(|| {
            let mut guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
            while owner.load(SeqCst) != 0 {
                guard = LEFT.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
        });
    }
}

/// Leaves the handle when dropped.
struct Held<'a>(&'a ThreadSafeHandle);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.0.depth.load(Relaxed) - 1;
        self.0.depth.store(depth, Relaxed);
        if depth > 0 {
            return;
        }
        self.0.owner.store(0, if cfg!(Py_GIL_DISABLED) { SeqCst } else { Release });
        if self.0.is_waited_for.load(SeqCst) {
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
        let _held = this.enter(this.py());
        handle::cancel_handle(this)
    }

    fn cancelled(this: This<'_, '_, Self>) -> bool {
        let _held = this.enter(this.py());
        this.state.is_cancelled()
    }

    /// Does nothing if it was cancelled while another thread held it.
    fn run(this: This<'_, '_, Self>, entered: &mut Entered<'_>) -> PyResult<()> {
        let _held = this.enter(this.py());
        if this.state.is_cancelled() {
            return Ok(());
        }
        handle::run(this, entered)
    }
}

impl Payload for ThreadSafeHandle {
    const NAME: &'static CStr = c"ringloop._native._ThreadSafeHandle";
    const DOC: &'static CStr = c"A callback that any thread may cancel.";
    const BASE_SLOTS: usize = SLOTS;
    const SPARES_MAX: usize = limits::HANDLES_KEPT;
    payload!(ThreadSafeHandle; define handle::define; visit; clear);
}
