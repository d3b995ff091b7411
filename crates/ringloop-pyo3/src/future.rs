//! Rust futures as Python awaitables, and the other way.

use std::future::{Future, poll_fn};

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;

use crate::raw::{self, Operation};

/// Finds ringloop's event loop. Call it when your module is imported, so that a missing or too old ringloop
/// is seen there; without it the first future finds out.
///
/// # Errors
/// `ImportError`, with the versions and what to do.
pub fn initialise(py: Python<'_>) -> PyResult<()> {
    raw::load(py).map(drop)
}

/// Starts a future on the event loop that runs in this thread; returns an asyncio future of its result.
///
/// It runs on the loop's own thread and need not be `Send`. It is polled once before this returns; later
/// polls run in a copy of the caller's context (PEP 567). It goes on if the awaitable is dropped, and is
/// itself dropped if that is cancelled, at the latest in the loop's next turn, or when the loop is closed.
/// A panic becomes a `RuntimeError`.
///
/// # Errors
/// `RuntimeError` if the loop that runs is not ringloop's, or none does; those of [`initialise`].
/// What the future fails with is raised where the awaitable is awaited.
pub fn future_into_py<F, T>(py: Python<'_>, future: F) -> PyResult<Bound<'_, PyAny>>
where
    F: Future<Output = PyResult<T>> + 'static,
    T: for<'a> IntoPyObject<'a> + 'static,
{
    raw::start(py, async move {
        let value = future.await?;
        Python::attach(|py| value.into_py_any(py))
    })
}

/// Begins to run a Python awaitable on the event loop that runs in this thread, in the current context;
/// returns the future of its result. Of a coroutine it makes a task.
///
/// # Errors
/// `TypeError` for what is not awaitable; as [`future_into_py`].
///
/// # Cancel safety
/// Dropping the future cancels the awaitable.
pub fn into_future(
    awaitable: Bound<'_, PyAny>,
) -> PyResult<impl Future<Output = PyResult<Py<PyAny>>> + use<>> {
    let mut operation = Operation::of_awaitable(&awaitable)?;
    Ok(poll_fn(move |cx| operation.poll_object(cx)))
}
