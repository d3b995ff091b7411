//! What `call_soon_threadsafe` returns from CPython 3.14 on: `asyncio.events._ThreadSafeHandle`.
//!
//! Its `cancel` and `cancelled` answer only while the callback does not run in another thread, so that
//! whoever has cancelled knows that it will not run any more.

use std::ffi::CStr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::callback::{AsHandle, SLOTS, State};
use super::handle::{self, define_common};
use crate::ffi::{
    self, Args, Definition, Native, Payload, This, Visited, Visitor, method, property,
};

/// A handle that other threads may cancel.
#[derive(Default)]
pub struct ThreadSafeHandle {
    state: State,
    gate: Gate,
}

impl ThreadSafeHandle {
    /// Run the callback, unless it was cancelled while the gate was closed.
    pub fn run(this: This<'_, '_, Self>) -> PyResult<()> {
        let _held = this.gate.enter(this.py());
        if this.state.is_cancelled() {
            return Ok(());
        }
        handle::run(this)
    }
}

/// A lock that its owner may take again (`threading.RLock`), waited for without the interpreter lock.
#[derive(Default)]
struct Gate {
    owner: Mutex<Owner>,
    left: Condvar,
}

#[derive(Default)]
struct Owner {
    thread_id: u64,
    depth: u32,
    /// Threads that wait for the gate.
    waiting: u32,
}

impl Gate {
    fn enter(&self, py: Python<'_>) -> Held<'_> {
        let thread_id = ffi::thread_id();
        if !self.try_enter(&mut self.lock(), thread_id) {
            py.detach(|| {
                let mut owner = self.lock();
                owner.waiting += 1;
                while !self.try_enter(&mut owner, thread_id) {
                    owner = self
                        .left
                        .wait(owner)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                owner.waiting -= 1;
            });
        }
        Held(self)
    }

    #[expect(clippy::unused_self, reason = "the owner is this gate's")]
    fn try_enter(&self, owner: &mut Owner, thread_id: u64) -> bool {
        if owner.depth > 0 && owner.thread_id != thread_id {
            return false;
        }
        owner.thread_id = thread_id;
        owner.depth += 1;
        true
    }

    fn lock(&self) -> MutexGuard<'_, Owner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves the gate when it is dropped.
struct Held<'a>(&'a Gate);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut owner = self.0.lock();
        owner.depth -= 1;
        // Waking nobody would cost a system call.
        if owner.depth == 0 && owner.waiting > 0 {
            self.0.left.notify_one();
        }
    }
}

impl AsHandle for ThreadSafeHandle {
    fn state(&self) -> &State {
        &self.state
    }
}

impl Payload for ThreadSafeHandle {
    const NAME: &'static CStr = c"ringloop._native.ThreadSafeHandle";
    const DOC: &'static CStr = c"A callback that any thread may cancel.";
    const BASE_SLOTS: usize = SLOTS;

    fn native() -> &'static Native<Self> {
        static TYPE: Native<ThreadSafeHandle> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        define_common!(ThreadSafeHandle, type_, cancel, cancelled, run_method);
    }

    fn visit(&self, _visitor: &mut dyn Visitor) -> Visited {
        Visited::Continue(())
    }

    fn clear(&self) {}
}

fn cancel(this: This<'_, '_, ThreadSafeHandle>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("cancel", 0)?;
    let _held = this.gate.enter(this.py());
    handle::cancel_handle(this)
}

fn cancelled(this: This<'_, '_, ThreadSafeHandle>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("cancelled", 0)?;
    let _held = this.gate.enter(this.py());
    Ok(this.state.is_cancelled())
}

fn run_method(this: This<'_, '_, ThreadSafeHandle>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_run", 0)?;
    ThreadSafeHandle::run(this)
}
