//! Exceptions of callbacks: the exception handler and asyncio's log.
//!
//! Messages and context dictionary are those of `asyncio.Handle._run`.

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyBaseException, PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::callback::Callback;
use super::standard;
use crate::ffi::{self, intern};

/// Whether an exception ends `run_forever`.
pub fn leaves_the_loop(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PySystemExit>(py) || error.is_instance_of::<PyKeyboardInterrupt>(py)
}

/// Passes a callback's error to the loop's exception handler.
#[cold]
pub fn callback_failed(
    object: Borrowed<'_, '_, PyAny>,
    callback: Callback<'_>,
    error: PyErr,
) -> PyResult<()> {
    let py = object.py();
    contain(py, error, |exception| {
        let loop_ = ffi::locked(&object, || callback.loop_(py));
        let context = context_of(object, &loop_, callback, exception)?;
        call_handler(&loop_, &context)
    })
}

/// Passes an error of code that the loop calls without a handle, such as a transport at a
/// completion, to its exception handler.
#[cold]
pub fn handler_failed(
    loop_: &Bound<'_, PyAny>,
    object: &Bound<'_, PyAny>,
    error: PyErr,
) -> PyResult<()> {
    let py = loop_.py();
    contain(py, error, |exception| {
        let message = ffi::fill_template(intern!(py, "Exception in callback of %r"), &[object])
            .or_else(|_| {
                let template = intern!(py, "Exception in callback of %s");
                ffi::fill_template(template, &[&object.get_type()])
            })?;
        call_handler(loop_, &context_with(&message, exception)?)
    })
}

/// The context of an error without a handle.
fn context_with<'py>(
    message: &Bound<'py, PyString>,
    exception: &Bound<'py, PyBaseException>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = message.py();
    let context = ffi::new_dict(py)?;
    context.set_item(intern!(py, "message"), message)?;
    context.set_item(intern!(py, "exception"), exception)?;
    Ok(context)
}

fn call_handler(loop_: &Bound<'_, PyAny>, context: &Bound<'_, PyDict>) -> PyResult<()> {
    let name = intern!(loop_.py(), "call_exception_handler");
    loop_.call_method1(name, (context,)).map(drop)
}

/// Calls the loop's exception handler with `message`, `exception` and `more`, as inside of `except`.
pub(crate) fn report<'py>(
    loop_: &Bound<'py, PyAny>,
    message: &str,
    exception: &Bound<'py, PyBaseException>,
    more: &[(&Bound<'_, PyString>, &Bound<'_, PyAny>)],
) -> PyResult<()> {
    let py = loop_.py();
    let context = context_with(&ffi::new_str(py, message)?, exception)?;
    for (name, value) in more {
        context.set_item(name, value)?;
    }
    ffi::while_handled(exception, || call_handler(loop_, &context))
}

/// Calls a method of asyncio's logger: `debug`, `info` or `warning`.
pub(crate) fn log<'py>(
    level: &Bound<'py, PyString>,
    arguments: impl PyCallArgs<'py>,
    exception: Option<&Bound<'py, PyBaseException>>,
) -> PyResult<()> {
    let py = level.py();
    let logger = standard::LOG.get(intern!(py, "logger"))?;
    let keywords = ffi::new_dict(py)?;
    if let Some(exception) = exception {
        keywords.set_item(intern!(py, "exc_info"), exception)?;
    }
    logger.call_method(level, arguments, Some(&keywords)).map(drop)
}

/// Logs one of asyncio's warnings.
pub(crate) fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    log(intern!(py, "warning"), (ffi::new_str(py, text)?,), None)
}

/// Contains an error that ends nothing else: `report` passes it on, unless it leaves the loop.
pub(crate) fn contain(
    py: Python<'_>,
    error: PyErr,
    report: impl FnOnce(&Bound<'_, PyBaseException>) -> PyResult<()>,
) -> PyResult<()> {
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let exception = error.into_value(py).into_bound(py);
    let reported = ffi::while_handled(&exception, || report(&exception));
    contained(exception, reported)
}

/// A failing report does not end the loop: its handler contains its own errors, and this one means
/// that there is no memory. The interpreter writes what it can.
pub(crate) fn contained(
    exception: Bound<'_, PyBaseException>,
    reported: PyResult<()>,
) -> PyResult<()> {
    let py = exception.py();
    match reported {
        Err(failed) if leaves_the_loop(py, &failed) => Err(failed),
        Err(_) => {
            PyErr::from_value(exception.into_any()).write_unraisable(py, None);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The context that asyncio passes to the exception handler of a callback.
fn context_of<'py>(
    object: Borrowed<'_, 'py, PyAny>,
    loop_: &Bound<'py, PyAny>,
    callback: Callback<'_>,
    exception: &Bound<'py, PyBaseException>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = object.py();
    let source = describe(object, loop_, callback)?;
    let message = ffi::fill_template(intern!(py, "Exception in callback %s"), &[&source])?;
    let context = context_with(&message, exception)?;
    context.set_item(intern!(py, "handle"), object)?;
    let traceback = ffi::locked(&object, || callback.source_traceback(py));
    if traceback.is_truthy()? {
        context.set_item(intern!(py, "source_traceback"), traceback)?;
    }
    Ok(context)
}

/// asyncio's own description of a callback.
fn describe<'py>(
    object: Borrowed<'_, 'py, PyAny>,
    loop_: &Bound<'py, PyAny>,
    callback: Callback<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = loop_.py();
    let describe = standard::FORMAT_HELPERS.get(intern!(py, "_format_callback_source"))?;
    let (callable, arguments) =
        ffi::locked(&object, || (callback.callable(py), callback.arguments(py)));
    let keywords = ffi::new_dict(py)?;
    // 3.13 hides the arguments outside debug mode, unless debug mode is passed.
    if describe
        .getattr(intern!(py, "__kwdefaults__"))?
        .contains(intern!(py, "debug"))
        .unwrap_or(false)
    {
        keywords.set_item(intern!(py, "debug"), loop_.call_method0(intern!(py, "get_debug"))?)?;
    }
    describe.call((callable, arguments?), Some(&keywords))
}
