//! How each method begins an operation, and makes its result.

use std::ffi::CString;
use std::future::Future;
use std::io;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringloop::time::yield_now;

use crate::error;
use crate::event_loop::LoopCore;
use crate::ffi::{Argument, IntoObject, Obj, Raise as _};
use crate::futures;

pub type Loop<'a, 'py> = Borrowed<'a, 'py, LoopCore>;

/// Starts an operation; the result, or the asyncio future of it.
pub fn begin(
    loop_: Loop<'_, '_>,
    future: impl Future<Output = PyResult<Obj>> + 'static,
) -> PyResult<Obj> {
    futures::start(&loop_, future).map(futures::Started::into_either)
}

/// An operation that the page cache may complete at once: in the next turn, if this one has had its
/// time of them.
pub fn cached<F: Future>(
    loop_: Loop<'_, '_>,
    operation: F,
) -> impl Future<Output = F::Output> + use<F> {
    let gives_way = !loop_.get().may_complete_at_once();
    async move {
        if gives_way {
            yield_now().await;
        }
        operation.await
    }
}

/// The object of an operation's value, or its error.
pub fn given<T: for<'py> IntoObject<'py>>(result: io::Result<T>) -> PyResult<Obj> {
    let value = result.map_err(|error| error::from_io(&error))?;
    Python::attach(|py| value.into_object(py).map(Obj::from))
}

/// None, or the error.
pub fn done(result: io::Result<()>) -> PyResult<Obj> {
    result.map_err(|error| error::from_io(&error))?;
    Ok(Python::attach(|py| py.None().into_bound(py).into()))
}

/// The name that `os.fsencode` has made.
pub fn name(path: Argument<'_, '_>) -> PyResult<CString> {
    let path = path.cast::<PyBytes>()?;
    let bytes = path.as_bytes();
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len() + 1).map_err(crate::ffi::no_memory)?;
    copy.extend_from_slice(bytes);
    CString::new(copy).map_err(|_| PyValueError::raise("embedded null byte"))
}
