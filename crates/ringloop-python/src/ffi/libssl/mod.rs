//! Uses the libssl that `_ssl` has loaded, on the `SSL` inside an `ssl.SSLObject`.
//!
//! Owns: the library's functions, access from the Python object to its structure, and the two
//! buffers that replace the object's `MemoryBIO`s. Called by: `tls::engine::direct`. Handshake,
//! shutdown and exceptions are left to the object's own methods. [`library`] finds the [`functions`]
//! and structures, [`bio`] holds the buffers; this file makes the calls.
//!
//! ```text
//! feed ──▶ Buffers.incoming ──▶ SSL_read_ex  ──▶ plaintext          the SSL's one BIO: read on the
//! take ◀── Buffers.outgoing ◀── SSL_write_ex ◀── plaintext          left, written on the left
//! ```
//!
//! Invariants:
//! 1. The functions are found through the handle of the `_ssl` module itself, so they are the ones
//!    that it calls, and they stay loaded: an extension module is never unloaded. Their types are
//!    those of OpenSSL 3.
//! 2. A field of a Python object is read only after a check of its identity: the object is exactly
//!    a `_ssl._SSLSocket`, and the field after the `SSL` is the same context as its attribute. The
//!    `SSL` is used only after libssl confirmed that it belongs to this object and this context.
//! 3. A caller of libssl with an `SSL` holds a reference to the object that frees it.
//! 4. One call at a time: a context callback that re-enters finds the session busy. Without the
//!    interpreter lock the object's critical section is entered, as `_ssl` does.
//! 5. The buffers belong to the BIO, and a session holds a reference to the BIO.
//! 6. BIO callbacks access only the buffers: no Python, no libssl.

mod bio;
mod functions;
mod library;

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;

use super::confined::{Busy, Confined};
use super::make::no_memory;
use super::object::{Obj, ObjCell, Visited, Visitor};
use bio::Buffers;
use functions::{Bio, Functions, Ssl};
use library::Library;

pub use library::refusal;

// openssl/ssl.h
const SSL_ERROR_WANT_READ: c_int = 2;
const SSL_ERROR_WANT_WRITE: c_int = 3;
const SSL_ERROR_ZERO_RETURN: c_int = 6;
const SSL_RECEIVED_SHUTDOWN: c_int = 2;

/// Maximum overhead of a record in TLS 1.2 and 1.3: header, nonce, tag, type.
const RECORD_OVERHEAD: usize = 64;
/// Maximum plaintext of a record in bytes (RFC 8446, 5.1).
const RECORD_LEN_MAX: usize = 16 * 1024;

/// Result of one call.
pub enum Moved {
    /// This many bytes.
    Bytes(usize),
    /// More ciphertext is needed.
    WantsInput,
    /// The peer sent `close_notify`.
    Closed,
    /// No memory for its output.
    NoMemory,
    /// Anything else; libssl's error queue is left as it is.
    Failed,
}

/// One connection's `SSL` with the buffers that it reads and writes.
pub struct Session {
    library: &'static Library,
    /// The `_ssl._SSLSocket`; empty once the collector has cleared it.
    socket: ObjCell,
    ssl: NonNull<Ssl>,
    bio: NonNull<Bio>,
    buffers: NonNull<Confined<Buffers>>,
    busy: AtomicBool,
    /// The last read left nothing, so that only new ciphertext can produce more.
    drained: AtomicBool,
}

impl Session {
    /// Inspects a fresh `_ssl._SSLSocket` and replaces its BIOs. `None` if its layout is not known
    /// to be safe; it is then unchanged.
    pub fn adopt(socket: &Bound<'_, PyAny>) -> Option<Self> {
        let py = socket.py();
        let library = library::library(py).ok()?;
        let functions = library.functions;
        let (ssl, context) = library.structures_of(socket)?;
        // SAFETY: invariant 2, in part: the field that `_ssl` calls `ssl`.
        let owner = unsafe { (functions.SSL_get_ex_data)(ssl.as_ptr(), 0) };
        // SAFETY: as above.
        let context_of_ssl = unsafe { (functions.SSL_get_SSL_CTX)(ssl.as_ptr()) };
        if owner != socket.as_ptr().cast() || context_of_ssl != context.as_ptr() {
            return None;
        }
        let (bio, buffers) = bio::make(functions, library.method)?;
        // SAFETY: as above; the session's reference.
        unsafe { (functions.BIO_up_ref)(bio.as_ptr()) };
        // SAFETY: invariant 2 is complete; the SSL takes over the other reference, one for both
        // directions, and drops its previous BIOs.
        unsafe { (functions.SSL_set_bio)(ssl.as_ptr(), bio.as_ptr(), bio.as_ptr()) };
        Some(Self {
            library,
            socket: ObjCell::new(Some(socket.clone().into())),
            ssl,
            bio,
            buffers,
            busy: AtomicBool::new(false),
            drained: AtomicBool::new(false),
        })
    }

    /// Decrypts at most one record into `memory`, which is not empty.
    #[inline]
    pub fn read(&self, py: Python<'_>, memory: &mut [MaybeUninit<u8>]) -> Moved {
        if self.drained.load(Ordering::Relaxed) {
            return Moved::WantsInput;
        }
        let mut count = 0;
        let moved = self.call(py, |functions, ssl| {
            // SAFETY: invariants 3 and 4; libssl writes at most that many bytes.
            unsafe {
                (functions.SSL_read_ex)(
                    ssl,
                    memory.as_mut_ptr().cast(),
                    memory.len(),
                    &raw mut count,
                )
            }
        });
        let len = memory.len();
        match moved {
            Some(Moved::Bytes(_)) => {
                // A record that filled the memory may have more.
                self.set_drained(count < len && self.incoming_len() == 0);
                Moved::Bytes(count)
            }
            Some(Moved::WantsInput) => {
                self.set_drained(self.incoming_len() == 0);
                Moved::WantsInput
            }
            Some(other) => other,
            None => Moved::WantsInput,
        }
    }

    /// Encrypts `data`, which is not empty.
    #[inline]
    pub fn write(&self, py: Python<'_>, data: &[u8]) -> Moved {
        let records = data.len().div_ceil(RECORD_LEN_MAX);
        let expected = data.len() + records * RECORD_OVERHEAD;
        match self.with(|buffers| buffers.outgoing.try_reserve(expected)) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Moved::NoMemory,
            Err(_) => return Moved::Failed,
        }
        let mut count = 0;
        let moved = self.call(py, |functions, ssl| {
            // SAFETY: invariants 3 and 4; libssl reads that many bytes.
            unsafe {
                (functions.SSL_write_ex)(ssl, data.as_ptr().cast(), data.len(), &raw mut count)
            }
        });
        match moved {
            Some(Moved::Bytes(_)) => Moved::Bytes(count),
            Some(other) => other,
            // Retry when the session is no longer busy.
            None => Moved::WantsInput,
        }
    }

    /// Makes one call of libssl, unless another is in progress.
    #[inline]
    fn call(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&Functions, *mut Ssl) -> c_int,
    ) -> Option<Moved> {
        let Some(socket) = self.socket.get(py) else {
            return Some(Moved::Failed);
        };
        if self.busy.swap(true, Ordering::Acquire) {
            return None;
        }
        let moved = with_critical_section(socket.bind(py), || self.call_alone(body));
        self.busy.store(false, Ordering::Release);
        Some(moved)
    }

    #[inline]
    fn call_alone(&self, body: impl FnOnce(&Functions, *mut Ssl) -> c_int) -> Moved {
        let functions = self.library.functions;
        let ssl = self.ssl.as_ptr();
        // SAFETY: invariant 1: no arguments.
        if unsafe { (functions.ERR_peek_error)() } != 0 {
            // Left by other code; it would be taken for this call's error.
            self.clear_errors();
        }
        let result = body(functions, ssl);
        if result == 1 {
            return Moved::Bytes(0);
        }
        // SAFETY: invariants 3 and 4.
        let error = unsafe { (functions.SSL_get_error)(ssl, result) };
        // SAFETY: invariants 3 and 4.
        let shutdown = unsafe { (functions.SSL_get_shutdown)(ssl) };
        match error {
            SSL_ERROR_WANT_READ | SSL_ERROR_WANT_WRITE => Moved::WantsInput,
            // After our own close_notify, `_ssl` raises.
            SSL_ERROR_ZERO_RETURN if shutdown == SSL_RECEIVED_SHUTDOWN => Moved::Closed,
            _ => Moved::Failed,
        }
    }

    /// Clears libssl's error queue of this thread.
    pub fn clear_errors(&self) {
        // SAFETY: invariant 1: no arguments.
        unsafe { (self.library.functions.ERR_clear_error)() };
    }

    /// The `_ssl._SSLSocket`.
    pub fn socket(&self, py: Python<'_>) -> Option<Obj> {
        self.socket.get(py)
    }

    /// Takes in ciphertext. Calls neither libssl nor Python.
    #[inline]
    pub fn feed(&self, ciphertext: &[u8]) -> PyResult<()> {
        self.set_drained(false);
        self.with(|buffers| buffers.feed(ciphertext))?.map_err(no_memory)
    }

    /// Takes the ciphertext to be sent.
    #[inline]
    pub fn take_output(&self) -> Result<Vec<u8>, Busy> {
        self.with(|buffers| std::mem::take(&mut buffers.outgoing))
    }

    /// Bytes of ciphertext that libssl has not read yet.
    #[inline]
    pub fn incoming_len(&self) -> usize {
        self.with(|buffers| buffers.incoming_len()).unwrap_or(0)
    }

    /// Bytes of ciphertext that [`Session::take_output`] would return.
    #[inline]
    pub fn outgoing_len(&self) -> usize {
        self.with(|buffers| buffers.outgoing.len()).unwrap_or(0)
    }

    #[inline]
    fn set_drained(&self, drained: bool) {
        self.drained.store(drained, Ordering::Relaxed);
    }

    #[inline]
    fn with<R>(&self, body: impl FnOnce(&mut Buffers) -> R) -> Result<R, Busy> {
        // SAFETY: invariant 5: the session's reference keeps the BIO, and the BIO keeps the cell.
        let buffers = unsafe { self.buffers.as_ref() };
        buffers.with(body)
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.socket.visit(visitor)
    }

    pub fn clear(&self) {
        self.socket.clear();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: invariant 5: the session's own reference.
        unsafe { (self.library.functions.BIO_free)(self.bio.as_ptr()) };
    }
}
