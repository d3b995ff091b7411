//! What happens to an exception that a callback raised.
//!
//! The words and the context dictionary are those of `asyncio.Handle._run`.

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::callback::Callback;
use crate::ffi;

/// Say whether an exception leaves `run_forever`.
pub fn leaves_the_loop(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PySystemExit>(py) || error.is_instance_of::<PyKeyboardInterrupt>(py)
}

/// Hand the error of a callback to the loop's exception handler.
#[cold]
pub fn callback_failed(
    object: Borrowed<'_, '_, PyAny>,
    callback: Callback<'_>,
    error: PyErr,
) -> PyResult<()> {
    let py = object.py();
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let loop_ = ffi::locked(&object, || callback.loop_(py));
    let source = describe(object, &loop_, callback)?;
    let context = PyDict::new(py);
    context.set_item(
        intern!(py, "message"),
        format!("Exception in callback {source}"),
    )?;
    context.set_item(intern!(py, "exception"), error.into_value(py))?;
    context.set_item(intern!(py, "handle"), object)?;
    let traceback = ffi::locked(&object, || callback.source_traceback(py));
    if traceback.is_truthy()? {
        context.set_item(intern!(py, "source_traceback"), traceback)?;
    }
    loop_.call_method1(intern!(py, "call_exception_handler"), (context,))?;
    Ok(())
}

/// Hand the error of what the loop calls without a handle, such as a transport at a completion, to its
/// exception handler.
#[cold]
pub fn handler_failed(
    loop_: &Bound<'_, PyAny>,
    object: &Bound<'_, PyAny>,
    error: PyErr,
) -> PyResult<()> {
    let py = loop_.py();
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let source = match object.repr() {
        Ok(text) => text.to_string(),
        Err(_) => object.get_type().to_string(),
    };
    let context = PyDict::new(py);
    context.set_item(
        intern!(py, "message"),
        format!("Exception in callback of {source}"),
    )?;
    context.set_item(intern!(py, "exception"), error.into_value(py))?;
    loop_.call_method1(intern!(py, "call_exception_handler"), (context,))?;
    Ok(())
}

/// asyncio's own description of a callback.
fn describe(
    object: Borrowed<'_, '_, PyAny>,
    loop_: &Bound<'_, PyAny>,
    callback: Callback<'_>,
) -> PyResult<String> {
    let py = loop_.py();
    let describe = py
        .import(intern!(py, "asyncio.format_helpers"))?
        .getattr("_format_callback_source")?;
    let (callable, arguments) =
        ffi::locked(&object, || (callback.callable(py), callback.arguments(py)));
    let keywords = PyDict::new(py);
    // 3.13 hides the arguments outside of debug mode and needs to be told.
    if describe
        .getattr("__kwdefaults__")?
        .contains("debug")
        .unwrap_or(false)
    {
        keywords.set_item("debug", loop_.call_method0(intern!(py, "get_debug"))?)?;
    }
    describe
        .call((callable, arguments?), Some(&keywords))?
        .extract()
}
