//! The loop that drives an endpoint: one reader, one timer, one flush per pass.
//!
//! ```text
//!  readable ─▶ turn: receive ─▶ due timers ─▶ wake waiters: their steps ─▶ flush: send ─▶ timer
//!  write    ─▶ call_soon(flush), once per pass ────────────────────────▶
//! ```
//! If waking has left something in the loop's queue, the flush goes after it. Works with any
//! asyncio loop, through the methods in [`Methods`]. An endpoint that was never attached has no
//! loop, and its user sends by `datagrams_to_send`.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use pyo3::PyTraverseError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use crate::ffi::{self, Fallible, Raise as _, intern};

/// The methods used of a loop, and the endpoint's own methods that it calls.
pub struct Methods {
    /// The loop's thread.
    pub thread: ThreadId,
    pub call_soon: Py<PyAny>,
    pub call_soon_threadsafe: Py<PyAny>,
    pub call_later: Py<PyAny>,
    pub loop_: Py<PyAny>,
    pub flush: Py<PyAny>,
    pub expire: Py<PyAny>,
    /// `on_events(accepted, eventful, gone)`; true if it has left something in the loop's queue.
    pub on_events: Py<PyAny>,
    /// `on_full()`: the socket is full; call `flush` once it is writable.
    pub on_full: Py<PyAny>,
    /// See [`Methods::done`].
    pub done: OnceLock<Py<PyAny>>,
}

impl Methods {
    /// A future of the loop that is done ([`Way::Direct`](super::waiter::Way)), made when it is
    /// first needed.
    pub fn done(&self, py: Python<'_>) -> PyResult<&Py<PyAny>> {
        if let Some(done) = self.done.get() {
            return Ok(done);
        }
        let done = self.loop_.call_method0(py, intern!(py, "create_future"))?;
        done.call_method1(py, intern!(py, "set_result"), (py.None(),))?;
        Ok(self.done.get_or_init(|| done))
    }
}

/// The methods while there is a loop, and the timer scheduled in it.
#[derive(Default)]
pub struct LoopSide {
    methods: Option<Arc<Methods>>,
    timer: Option<(Instant, Py<PyAny>)>,
}

impl LoopSide {
    pub fn attach(side: &Mutex<Self>, methods: Methods) {
        let old = {
            let mut guard = side.lock().unwrap_or_else(PoisonError::into_inner);
            guard.methods.replace(Arc::new(methods))
        };
        drop(old);
    }

    /// Forgets the loop, and cancels what is scheduled in it.
    pub fn detach(side: &Mutex<Self>, py: Python<'_>) -> PyResult<()> {
        let old = {
            let mut guard = side.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *guard)
        };
        if let Some((_, timer)) = &old.timer {
            timer.call_method0(py, intern!(py, "cancel"))?;
        }
        Ok(())
    }

    pub fn methods(side: &Mutex<Self>) -> Option<Arc<Methods>> {
        let guard = side.lock().unwrap_or_else(PoisonError::into_inner);
        guard.methods.clone()
    }

    /// Fails once the loop is closed: nothing can be sent any more.
    pub fn check_open(side: &Mutex<Self>, py: Python<'_>) -> PyResult<()> {
        let Some(methods) = Self::methods(side) else {
            return Ok(());
        };
        let is_closed = methods.loop_.call_method0(py, intern!(py, "is_closed"))?;
        if is_closed.is_truthy(py)? {
            return Err(PyRuntimeError::raise(
                "Event loop is closed: the peer cannot be notified, and nothing was changed; close before the loop",
            ));
        }
        Ok(())
    }

    /// Makes the loop call `flush`. Streams are dropped, and so stopped or finished, in whatever
    /// thread the garbage collector runs: from there the loop must be woken.
    pub fn call_soon_flush(side: &Mutex<Self>, py: Python<'_>) -> PyResult<()> {
        if let Some(methods) = Self::methods(side) {
            let call = if methods.thread == thread::current().id() {
                &methods.call_soon
            } else {
                &methods.call_soon_threadsafe
            };
            call.call1(py, (&methods.flush,))?;
        }
        Ok(())
    }

    /// Makes the loop report an exception of the application; without a loop, the interpreter.
    pub fn report(side: &Mutex<Self>, py: Python<'_>, message: &str, error: PyErr) {
        let reported = Self::methods(side).map(|methods| {
            let context = ffi::new_dict(py)?;
            context.set_item(intern!(py, "message"), Fallible(message))?;
            context.set_item(intern!(py, "exception"), error.value(py))?;
            let loop_ = methods.loop_.bind(py);
            let name = intern!(py, "call_exception_handler");
            ffi::while_handled(error.value(py), || loop_.call_method1(name, (context,)))
        });
        match reported {
            Some(Ok(_)) => {}
            Some(Err(failed)) => failed.write_unraisable(py, None),
            None => error.write_unraisable(py, None),
        }
    }

    /// Schedules `expire` at the deadline. A timer that fires too early is left alone: it costs one
    /// turn instead of two operations; packets move deadlines all the time, mostly later.
    pub fn arm_timer(
        side: &Mutex<Self>,
        py: Python<'_>,
        now: Instant,
        deadline: Option<Instant>,
    ) -> PyResult<()> {
        let Some(deadline) = deadline else {
            return Ok(());
        };
        let (methods, late) = {
            let mut guard = side.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((armed, _)) = &guard.timer
                && *armed <= deadline
            {
                return Ok(());
            }
            (guard.methods.clone(), guard.timer.take())
        };
        if let Some((_, late)) = late {
            late.call_method0(py, intern!(py, "cancel"))?;
        }
        let Some(methods) = methods else {
            return Ok(());
        };
        let delay = deadline.saturating_duration_since(now).as_secs_f64();
        let timer = methods.call_later.call1(py, (Fallible(delay), &methods.expire))?;
        let mut guard = side.lock().unwrap_or_else(PoisonError::into_inner);
        let old = guard.timer.replace((deadline, timer));
        drop(guard);
        drop(old);
        Ok(())
    }

    /// The timer has fired.
    pub fn expired(side: &Mutex<Self>) {
        let old = {
            let mut guard = side.lock().unwrap_or_else(PoisonError::into_inner);
            guard.timer.take()
        };
        drop(old);
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(methods) = &self.methods {
            for method in [
                &methods.call_soon,
                &methods.call_soon_threadsafe,
                &methods.call_later,
                &methods.loop_,
                &methods.flush,
                &methods.expire,
                &methods.on_events,
                &methods.on_full,
            ] {
                visit.call(method)?;
            }
            visit.call(methods.done.get())?;
        }
        match &self.timer {
            Some((_, timer)) => visit.call(timer),
            None => Ok(()),
        }
    }
}
