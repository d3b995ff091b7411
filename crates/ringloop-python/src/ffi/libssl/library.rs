//! Locates libssl and its structures.
//!
//! Owns: the known layout of `_ssl`'s objects. Called by: [`super`], once per connection. Does not use an `SSL`.
//!
//! The invariants are those of [`super`].

use ringloop::embed::sys::{libc, platform};
use std::ffi::{CString, c_ulong, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::bio;
use super::functions::{BioMethod, Functions, Ssl};
use crate::ffi::intern;

/// The first version with the functions and errors declared here.
const OPENSSL_3: c_ulong = 0x3000_0000;

/// The library of this process, once found.
pub(super) struct Library {
    pub(super) functions: &'static Functions,
    pub(super) method: NonNull<BioMethod>,
    /// The types with a known layout.
    socket_type: Py<PyType>,
    context_type: Py<PyType>,
}

// SAFETY: function addresses, and a method table that no longer changes.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The library, or why it cannot be used.
static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();

pub(super) fn library(py: Python<'_>) -> Result<&'static Library, &'static str> {
    if LIBRARY.get().is_none() {
        // Not locked: the search may run Python code, and finding the same result twice is
        // harmless.
        let _ = LIBRARY.set(Library::find(py));
    }
    match LIBRARY.get() {
        Some(found) => found.as_ref().map_err(String::as_str),
        None => Err("libssl was not looked for"),
    }
}

/// Why connections of this process cannot be driven directly; `None` if they can.
pub fn refusal(py: Python<'_>) -> Option<&'static str> {
    library(py).err()
}

impl Library {
    fn find(py: Python<'_>) -> Result<Self, String> {
        if !platform::SEES_LIBRARIES_OF_MODULES {
            return Err("this system shows no libssl through the module _ssl".to_owned());
        }
        let module = py.import(intern!(py, "_ssl")).map_err(|error| error.to_string())?;
        let path = module
            .getattr(intern!(py, "__file__"))
            .and_then(|file| file.extract::<String>())
            .map_err(|_| "_ssl is built into the interpreter".to_owned())?;
        let type_named = |name: &str| {
            let found = module.getattr(name).ok()?;
            found.cast_into::<PyType>().ok()
        };
        let (Some(socket_type), Some(context_type)) =
            (type_named("_SSLSocket"), type_named("_SSLContext"))
        else {
            return Err("_ssl has other types than expected".to_owned());
        };
        if !holds::<SocketHead>(&socket_type) || !holds::<ContextHead>(&context_type) {
            return Err("the objects of _ssl are not laid out as expected".to_owned());
        }
        let in_c = CString::new(path).map_err(|error| error.to_string())?;
        // SAFETY: a zero-terminated path; RTLD_NOLOAD loads nothing.
        let handle = unsafe { libc::dlopen(in_c.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        let handle = NonNull::new(handle).ok_or("_ssl is not loaded from its file")?;
        let functions = Functions::of(handle)?;
        // SAFETY: invariant 1: no arguments.
        let version = unsafe { (functions.OpenSSL_version_num)() };
        if version < OPENSSL_3 {
            return Err(format!("OpenSSL 3 is needed, _ssl has {version:#x}"));
        }
        let method = bio::make_method(functions).ok_or("libssl refuses a BIO method")?;
        Ok(Self {
            functions,
            method,
            socket_type: socket_type.unbind(),
            context_type: context_type.unbind(),
        })
    }

    /// Reads `SSL` and `SSL_CTX` from the objects, after checking their fields.
    pub(super) fn structures_of(
        &self,
        socket: &Bound<'_, PyAny>,
    ) -> Option<(NonNull<Ssl>, NonNull<c_void>)> {
        let py = socket.py();
        if !socket.get_type().is(self.socket_type.bind(py)) {
            return None;
        }
        let context = socket.getattr(intern!(py, "context")).ok()?;
        if !context.is_instance(self.context_type.bind(py)).ok()? {
            return None;
        }
        // SAFETY: invariant 2: it is a `_ssl._SSLSocket`, and those are large enough.
        let head = unsafe { socket.as_ptr().cast::<SocketHead>().read() };
        // A MemoryBIO pair has no socket, and its context is at the expected offset.
        if !head.socket.is_null() || head.context != context.as_ptr() {
            return None;
        }
        // SAFETY: invariant 2: it is a `_ssl._SSLContext`, and those are large enough.
        let context = unsafe { context.as_ptr().cast::<ContextHead>().read() };
        Some((NonNull::new(head.ssl)?, NonNull::new(context.context)?))
    }
}

/// Start of `_ssl._SSLSocket` in every supported CPython (Modules/_ssl.c, `PySSLSocket`).
#[repr(C)]
struct SocketHead {
    object: ffi::PyObject,
    socket: *mut ffi::PyObject,
    ssl: *mut Ssl,
    context: *mut ffi::PyObject,
}

/// Start of its `_ssl._SSLContext` (`PySSLContext`).
#[repr(C)]
struct ContextHead {
    object: ffi::PyObject,
    context: *mut c_void,
}

/// Whether instances of a type are large enough for a leading `T`.
fn holds<T>(type_: &Bound<'_, PyType>) -> bool {
    let size = type_
        .getattr(intern!(type_.py(), "__basicsize__"))
        .and_then(|size| size.extract::<usize>());
    size.is_ok_and(|size| size >= size_of::<T>())
}
