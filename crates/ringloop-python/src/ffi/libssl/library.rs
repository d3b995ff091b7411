//! Locates libssl's functions and structures.
//!
//! Owns: the functions, and the known layout of `_ssl`'s objects. Called by: [`super`], once per
//! connection. Does not use an `SSL`.
//!
//! The invariants are those of [`super`].

use std::ffi::{CString, c_char, c_int, c_long, c_ulong, c_void};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::bio;
use crate::ffi::intern;

/// `SSL`, `BIO` and `BIO_METHOD` are opaque.
pub(super) type Ssl = c_void;
pub(super) type Bio = c_void;
pub(super) type BioMethod = c_void;
pub(super) type BioRead = unsafe extern "C" fn(*mut Bio, *mut c_char, usize, *mut usize) -> c_int;
pub(super) type BioWrite =
    unsafe extern "C" fn(*mut Bio, *const c_char, usize, *mut usize) -> c_int;
pub(super) type BioControl = unsafe extern "C" fn(*mut Bio, c_int, c_long, *mut c_void) -> c_long;
pub(super) type BioDestroy = unsafe extern "C" fn(*mut Bio) -> c_int;

/// The first version with the functions and errors declared here.
const OPENSSL_3: c_ulong = 0x3000_0000;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions in use, under OpenSSL's own names.
        #[allow(non_snake_case, reason = "OpenSSL's names")]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn resolve(handle: NonNull<c_void>) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let address = symbol(handle, stringify!($name))?;
                        // SAFETY: invariant 1.
                        unsafe {
                            transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    OpenSSL_version_num: fn() -> c_ulong;
    SSL_read_ex: fn(*mut Ssl, *mut c_void, usize, *mut usize) -> c_int;
    SSL_write_ex: fn(*mut Ssl, *const c_void, usize, *mut usize) -> c_int;
    SSL_get_error: fn(*const Ssl, c_int) -> c_int;
    SSL_get_shutdown: fn(*const Ssl) -> c_int;
    SSL_get_ex_data: fn(*const Ssl, c_int) -> *mut c_void;
    SSL_get_SSL_CTX: fn(*const Ssl) -> *mut c_void;
    SSL_set_bio: fn(*mut Ssl, *mut Bio, *mut Bio);
    ERR_peek_error: fn() -> c_ulong;
    ERR_clear_error: fn();
    BIO_get_new_index: fn() -> c_int;
    BIO_meth_new: fn(c_int, *const c_char) -> *mut BioMethod;
    BIO_meth_set_read_ex: fn(*mut BioMethod, BioRead) -> c_int;
    BIO_meth_set_write_ex: fn(*mut BioMethod, BioWrite) -> c_int;
    BIO_meth_set_ctrl: fn(*mut BioMethod, BioControl) -> c_int;
    BIO_meth_set_destroy: fn(*mut BioMethod, BioDestroy) -> c_int;
    BIO_new: fn(*const BioMethod) -> *mut Bio;
    BIO_up_ref: fn(*mut Bio) -> c_int;
    BIO_free: fn(*mut Bio) -> c_int;
    BIO_set_data: fn(*mut Bio, *mut c_void);
    BIO_get_data: fn(*mut Bio) -> *mut c_void;
    BIO_set_flags: fn(*mut Bio, c_int);
    BIO_clear_flags: fn(*mut Bio, c_int);
}

fn symbol(handle: NonNull<c_void>, name: &str) -> Result<NonNull<c_void>, String> {
    let in_c = CString::new(name).map_err(|_| name.to_owned())?;
    // SAFETY: the handle stays open, and the name is zero-terminated.
    let address = unsafe { libc::dlsym(handle.as_ptr(), in_c.as_ptr()) };
    NonNull::new(address).ok_or_else(|| format!("the libssl of _ssl does not show {name}"))
}

/// The library of this process, once found.
pub(super) struct Library {
    pub(super) functions: Functions,
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
        let functions = Functions::resolve(handle)?;
        // SAFETY: invariant 1: no arguments.
        let version = unsafe { (functions.OpenSSL_version_num)() };
        if version < OPENSSL_3 {
            return Err(format!("OpenSSL 3 is needed, _ssl has {version:#x}"));
        }
        let method = bio::make_method(&functions).ok_or("libssl refuses a BIO method")?;
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

/// The functions, once a session exists: BIO callbacks need them without a token.
pub(super) fn functions() -> Option<&'static Functions> {
    Some(&LIBRARY.get()?.as_ref().ok()?.functions)
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
