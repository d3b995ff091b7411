//! The ASGI scope (HTTP spec 2.4, "Connection Scope") of a request's head.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::ffi::{self, intern};
use crate::quic::http::Section;

/// A copy of `template` with method, path, query, fields and the client's address, for which the
/// template has placeholders. `asgi`, `state` and `extensions`, which applications change, are copied
/// too.
///
/// As uvicorn's: `path` is decoded and begins with `root_path`, `raw_path` is not decoded.
pub fn made<'py>(
    py: Python<'py>,
    template: &Bound<'py, PyDict>,
    head: &Section,
    client: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let scope = template.copy()?;
    for name in [intern!(py, "asgi"), intern!(py, "state")] {
        if let Some(shared) = template.get_item(name)? {
            scope.set_item(name, shared.cast::<PyDict>()?.copy()?)?;
        }
    }
    if let Some(shared) = template.get_item(intern!(py, "extensions"))? {
        let own = ffi::new_dict(py)?;
        for (name, _) in shared.cast::<PyDict>()?.iter() {
            own.set_item(name, ffi::new_dict(py)?)?;
        }
        scope.set_item(intern!(py, "extensions"), own)?;
    }
    if template.contains(intern!(py, "method"))?
        && let Some(method) = head.pseudo(b":method")
    {
        scope.set_item(intern!(py, "method"), text(py, method)?)?;
    }
    set_target(py, &scope, head)?;
    scope.set_item(intern!(py, "headers"), headers(py, head)?)?;
    scope.set_item(intern!(py, "client"), client)?;
    Ok(scope)
}

fn set_target(py: Python<'_>, scope: &Bound<'_, PyDict>, head: &Section) -> PyResult<()> {
    let target = head.pseudo(b":path").map_or(&[][..], |target| target);
    let (raw, query) = match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &[][..]),
    };
    let root = scope.get_item(intern!(py, "root_path"))?;
    let root = root.as_ref().map(|root| root.cast::<PyString>()?.to_str()).transpose()?;
    let root = root.unwrap_or_default();
    let mut path = text(py, raw)?;
    if raw.contains(&b'%') {
        let unquote = ffi::imported!(py, PyAny, "urllib.parse", "unquote")?;
        path = unquote.call1((path,))?.cast_into::<PyString>()?;
    }
    let raw = if root.is_empty() {
        ffi::new_bytes(py, raw)?
    } else {
        path = ffi::new_str(py, &format!("{root}{}", path.to_str()?))?;
        ffi::new_bytes(py, &[root.as_bytes(), raw].concat())?
    };
    scope.set_item(intern!(py, "path"), path)?;
    scope.set_item(intern!(py, "raw_path"), raw)?;
    scope.set_item(intern!(py, "query_string"), ffi::new_bytes(py, query)?)
}

/// The fields with `host` first, from `:authority`, and one cookie (RFC 9114 §4.2.1).
fn headers<'py>(py: Python<'py>, head: &Section) -> PyResult<Bound<'py, PyList>> {
    let list = ffi::new_list(py)?;
    let append = |name: &Bound<'py, PyBytes>, value: &[u8]| {
        let pair = [name.clone().into_any(), ffi::new_bytes(py, value)?.into_any()];
        list.append(ffi::new_tuple(py, pair.into_iter())?)
    };
    let authority = head.pseudo(b":authority");
    if let Some(authority) = authority {
        append(&ffi::new_bytes(py, b"host")?, authority)?;
    }
    let fields = head.headers();
    let cookies = || fields.iter().filter(|field| field.name == b"cookie"[..]);
    let is_split = cookies().nth(1).is_some();
    for field in fields {
        let is_replaced = authority.is_some() && field.name == b"host"[..];
        let is_joined = is_split && field.name == b"cookie"[..];
        if is_replaced || is_joined {
            continue;
        }
        append(&ffi::new_bytes(py, &field.name)?, &field.value)?;
    }
    if is_split {
        let values: Vec<&[u8]> = cookies().map(|field| &field.value[..]).collect();
        append(&ffi::new_bytes(py, b"cookie")?, &values.join(&b"; "[..]))?;
    }
    Ok(list)
}

fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    ffi::new_str(py, &String::from_utf8_lossy(bytes))
}
