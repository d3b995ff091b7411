//! The libssl that `_ssl` has loaded, on the `SSL` inside of an `ssl.SSLObject`.
//!
//! Owns: the functions of the library, the way from the Python object to its structure, and the two
//! buffers that take the place of the object's `MemoryBIO`s. Called by: `tls::engine::direct`.
//! Never does: handshake, shutdown, or the making of an exception; those are the object's own methods.
//! [`library`] finds the functions and the structures, [`bio`] holds the buffers; here is what is called.
//!
//! ```text
//!  feed ──▶ Buffers.incoming ──▶ SSL_read_ex  ──▶ plaintext          the SSL's one BIO, read by it on the
//!  take ◀── Buffers.outgoing ◀── SSL_write_ex ◀── plaintext          left and written to on the left
//! ```
//!
//! Invariants:
//! 1. The functions are found through the handle of the `_ssl` module itself, so they are those that it
//!    calls, and they stay: an extension module is never unloaded. Their types are those of OpenSSL 3.
//! 2. A field of a Python object is read only behind a check that says what it is: the object is exactly a
//!    `_ssl._SSLSocket`, and the field after the `SSL` is the very context that its attribute names.
//!    The `SSL` is used only after libssl has said that it belongs to this object and this context.
//! 3. Whoever calls libssl with an `SSL` holds a reference to the object that frees it.
//! 4. One call at a time: a callback of the context that comes back in finds the session busy. Without
//!    the interpreter lock the object's critical section is entered, as `_ssl` does.
//! 5. The buffers belong to the BIO, and a session holds a reference to the BIO.
//! 6. What the BIO calls touches the buffers and nothing else: no Python, no libssl.

mod bio;
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
use library::{Bio, Functions, Library, Ssl};

pub use library::refusal;

// openssl/ssl.h
const SSL_ERROR_WANT_READ: c_int = 2;
const SSL_ERROR_WANT_WRITE: c_int = 3;
const SSL_ERROR_ZERO_RETURN: c_int = 6;
const SSL_RECEIVED_SHUTDOWN: c_int = 2;

/// What a record adds to the plaintext at most with the ciphers of TLS 1.2 and 1.3: header, nonce, tag, type.
const RECORD_OVERHEAD: usize = 64;
/// Plaintext bytes of a record at most (RFC 8446, 5.1).
const RECORD_LEN_MAX: usize = 16 * 1024;

/// What one call came to.
pub enum Moved {
    /// So many bytes.
    Bytes(usize),
    /// More ciphertext is needed.
    WantsInput,
    /// The peer's `close_notify` came.
    Closed,
    /// There is no memory for what it would write.
    NoMemory,
    /// Anything else; the library's error queue, if it says why, is as the call left it.
    Failed,
}

/// One connection's `SSL`, and the buffers that it reads from and writes to.
pub struct Session {
    library: &'static Library,
    /// The `_ssl._SSLSocket`; empty once the collector has cleared it.
    socket: ObjCell,
    ssl: NonNull<Ssl>,
    bio: NonNull<Bio>,
    buffers: NonNull<Confined<Buffers>>,
    busy: AtomicBool,
    /// The last read has left nothing behind, so that only new ciphertext can bring more.
    drained: AtomicBool,
}

impl Session {
    /// Look into a fresh `_ssl._SSLSocket` and take the place of its BIOs. `None` where it is not what is
    /// known to be safe; then it is as it was.
    pub fn adopt(socket: &Bound<'_, PyAny>) -> Option<Self> {
        let py = socket.py();
        let library = library::library(py).ok()?;
        let functions = &library.functions;
        let (ssl, context) = library.structures_of(socket)?;
        // SAFETY: invariant 2, in part: the field is the one that `_ssl` calls `ssl`.
        let owner = unsafe { (functions.SSL_get_ex_data)(ssl.as_ptr(), 0) };
        // SAFETY: as above.
        let context_of_ssl = unsafe { (functions.SSL_get_SSL_CTX)(ssl.as_ptr()) };
        if owner != socket.as_ptr().cast() || context_of_ssl != context.as_ptr() {
            return None;
        }
        let (bio, buffers) = bio::make(functions, library.method)?;
        // SAFETY: as above; this reference is the session's.
        unsafe { (functions.BIO_up_ref)(bio.as_ptr()) };
        // SAFETY: invariant 2 is complete; the other reference goes to the SSL, one for both directions,
        // and the SSL lets go of the BIOs it had.
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

    /// Decrypt at most one record's worth into `memory`, which is not empty.
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
                // A record that filled the memory may have more of it.
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

    /// Encrypt `data`, which is not empty.
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
            // Again, when whoever is in there has left.
            None => Moved::WantsInput,
        }
    }

    /// Run one call of libssl, unless one is under way.
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
        let functions = &self.library.functions;
        let ssl = self.ssl.as_ptr();
        // SAFETY: invariant 1: it takes nothing.
        if unsafe { (functions.ERR_peek_error)() } != 0 {
            // Somebody else's, which would be taken for the reason of a failure of this call.
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
            // Once we have sent ours too, `_ssl` raises.
            SSL_ERROR_ZERO_RETURN if shutdown == SSL_RECEIVED_SHUTDOWN => Moved::Closed,
            _ => Moved::Failed,
        }
    }

    /// Forget what the library says of past failures of this thread.
    pub fn clear_errors(&self) {
        // SAFETY: invariant 1: it takes nothing.
        unsafe { (self.library.functions.ERR_clear_error)() };
    }

    /// The `_ssl._SSLSocket`.
    pub fn socket(&self, py: Python<'_>) -> Option<Obj> {
        self.socket.get(py)
    }

    /// Take ciphertext in. Calls neither libssl nor Python.
    #[inline]
    pub fn feed(&self, ciphertext: &[u8]) -> PyResult<()> {
        self.set_drained(false);
        self.with(|buffers| buffers.feed(ciphertext))?
            .map_err(no_memory)
    }

    /// Move out the ciphertext that is to be sent.
    #[inline]
    pub fn take_output(&self) -> Result<Vec<u8>, Busy> {
        self.with(|buffers| std::mem::take(&mut buffers.outgoing))
    }

    /// Bytes of ciphertext that libssl has not read yet.
    #[inline]
    pub fn incoming_len(&self) -> usize {
        self.with(|buffers| buffers.incoming_len()).unwrap_or(0)
    }

    /// Bytes of ciphertext that wait for [`Session::take_output`].
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

    /// Show the reference to the collector.
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.socket.visit(visitor)
    }

    /// Let go of the object, for the collector; every later call fails.
    pub fn clear(&self) {
        drop(self.socket.take());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: invariant 5: the session's own reference.
        unsafe { (self.library.functions.BIO_free)(self.bio.as_ptr()) };
    }
}
