//! Awaiting a Python object from Rust.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;
use pyo3::types::PyFunction;

use crate::ffi::{Obj, imported, intern};

/// The task or future of a Python awaitable. Dropping it cancels that, unless it is done.
struct Awaited {
    task: Option<Obj>,
    waker: Arc<Mutex<Option<Waker>>>,
}

/// Done callback of the Python future.
#[pyclass(frozen, module = "ringloop._native")]
pub struct Done(Arc<Mutex<Option<Waker>>>);

#[pymethods]
impl Done {
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Begins to run a Python awaitable on the loop of this thread, in the current context; returns the
/// future of its result.
///
/// # Errors
/// Those of `asyncio.ensure_future`.
///
/// # Cancel safety
/// Dropping the future cancels the awaitable.
pub fn into_future(
    awaitable: &Bound<'_, PyAny>,
) -> PyResult<impl Future<Output = PyResult<Obj>> + 'static + use<>> {
    let py = awaitable.py();
    let ensure_future = imported!(py, PyFunction, "asyncio", "ensure_future")?;
    let task = ensure_future.call1((awaitable,))?;
    let waker = Arc::new(Mutex::new(None));
    let awaited = Awaited { task: Some(task.clone().into()), waker: Arc::clone(&waker) };
    let done = Bound::new(py, Done(waker))?;
    task.call_method1(intern!(py, "add_done_callback"), (done,))?;
    Ok(awaited)
}

impl Future for Awaited {
    type Output = PyResult<Obj>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PyResult<Obj>> {
        Python::attach(|py| {
            let Some(task) = self.task.as_ref().map(|task| task.clone_ref(py).into_bound(py))
            else {
                return Poll::Ready(Ok(py.None().into_bound(py).into()));
            };
            let is_done = task.call_method0(intern!(py, "done"));
            match is_done.and_then(|done| done.is_truthy()) {
                Ok(false) => {
                    let waker = cx.waker().clone();
                    *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
                    Poll::Pending
                }
                Ok(true) => {
                    drop(self.task.take());
                    Poll::Ready(task.call_method0(intern!(py, "result")).map(Obj::from))
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        })
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        Python::attach(|py| {
            let task = task.into_bound(py);
            if let Err(error) = cancel(&task) {
                error.write_unraisable(py, Some(&task));
            }
        });
    }
}

/// Cancels a task, unless its loop is closed and would not run it. A task that is done stays as it is.
fn cancel(task: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = task.py();
    let loop_ = task.call_method0(intern!(py, "get_loop"));
    let is_closed = loop_.and_then(|loop_| loop_.call_method0(intern!(py, "is_closed")));
    if !is_closed.and_then(|is_closed| is_closed.is_truthy()).unwrap_or(false) {
        task.call_method0(intern!(py, "cancel"))?;
    }
    Ok(())
}
