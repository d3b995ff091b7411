//! Starting a future, and polling it to its end.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::promise::{self, Promise, Started};
use crate::event_loop::LoopCore;
use crate::ffi::{self, Obj, Raise as _};

/// Starts a future that does not call Python before its result, on the loop that runs in this thread.
///
/// # Errors
/// The future's, if it has failed at once; `RuntimeError` if the loop does not run in this thread.
pub fn start(
    loop_: &Bound<'_, LoopCore>,
    future: impl Future<Output = PyResult<Obj>> + 'static,
) -> PyResult<Started> {
    spawn(loop_, future, None, drop)
}

/// As [`start`], for a result that is a resource; `lost` gets it if the asyncio future was cancelled.
pub fn start_owning(
    loop_: &Bound<'_, LoopCore>,
    future: impl Future<Output = PyResult<Obj>> + 'static,
    lost: fn(Obj),
) -> PyResult<Started> {
    spawn(loop_, future, None, lost)
}

/// Starts a future on the loop that runs in this thread; returns an asyncio future of it, also if it was
/// ready at once. What it calls runs in the caller's context.
///
/// # Errors
/// `RuntimeError` if the loop does not run in this thread.
pub fn future_into_py(
    loop_: &Bound<'_, LoopCore>,
    future: impl Future<Output = PyResult<Obj>> + 'static,
) -> PyResult<Obj> {
    let py = loop_.py();
    check_runs_here(loop_)?;
    let context = ffi::context_copy_current(py)?;
    let outcome = match spawn(loop_, future, Some(context), drop) {
        Ok(Started::Pending(future)) => return Ok(future),
        Ok(Started::Done(result)) => Ok(result),
        Err(error) => Err(error),
    };
    promise::settled(loop_, outcome)
}

fn spawn(
    loop_: &Bound<'_, LoopCore>,
    future: impl Future<Output = PyResult<Obj>> + 'static,
    context: Option<Obj>,
    lost: fn(Obj),
) -> PyResult<Started> {
    check_runs_here(loop_)?;
    let core = loop_.get();
    let promise = Rc::new(Promise::new(lost));
    let settle = Rc::clone(&promise);
    core.engine.hosting(|local, live| {
        let live = Rc::clone(live);
        drop(local.spawn_polled(async move {
            drive(future, context, &settle).await;
            drop(live);
        }));
    })?;
    promise.started(loop_)
}

/// A future needs the loop's thread, and its turns.
fn check_runs_here(loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
    let core = loop_.get();
    core.check_open()?;
    core.engine.check_process()?;
    if core.is_running_here() {
        return Ok(());
    }
    Err(PyRuntimeError::raise(
        "a Rust future needs the running loop: start it in a coroutine or a callback of the loop",
    ))
}

/// Polls `future` to its end or its cancel; what it yields goes to the promise.
async fn drive(
    future: impl Future<Output = PyResult<Obj>>,
    context: Option<Obj>,
    promise: &Promise,
) {
    let result = {
        let mut future = pin!(future);
        let mut is_first = true;
        poll_fn(move |cx| {
            if promise.is_cancelled() {
                return Poll::Ready(None);
            }
            // The first poll is made by the caller, in its context.
            let context = context.as_ref().filter(|_| !is_first);
            is_first = false;
            let polled = within(context, || {
                catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
                    .unwrap_or_else(|payload| Poll::Ready(Err(panicked(&*payload))))
            });
            if polled.is_pending() {
                promise.keep_waker(cx.waker());
            }
            polled.map(Some)
        })
        .await
    };
    if let Some(result) = result {
        promise.settle(result);
    }
}

/// Polls in a context; an error of entering it is the future's.
fn within<T>(context: Option<&Obj>, poll: impl FnOnce() -> Poll<PyResult<T>>) -> Poll<PyResult<T>> {
    let Some(context) = context else {
        return poll();
    };
    Python::attach(|py| {
        if let Err(error) = ffi::context_enter(py, context) {
            return Poll::Ready(Err(error));
        }
        let polled = poll();
        match ffi::context_exit(py, context) {
            Ok(()) => polled,
            Err(error) => Poll::Ready(Err(error)),
        }
    })
}

fn panicked(payload: &(dyn Any + Send)) -> PyErr {
    PyRuntimeError::raise(format!("a Rust future panicked: {}", ffi::panic_message(payload)))
}
