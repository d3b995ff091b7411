//! What the TLS state machine asks of the cryptography, and who answers.
//!
//! Owns: one connection's `ssl.SSLObject` and the two `ssl.MemoryBIO`s it reads ciphertext from and
//! writes ciphertext to. Called by: `tls::protocol`. Never does: touch a transport or a protocol.
//!
//! The object always comes from the user's own `SSLContext.wrap_bio`, so certificates, callbacks,
//! sessions and the keys' log are the standard library's. Two ways lead to it:
//! * [`bio`] – the Python methods of the three objects. It works with every `SSLContext` there is.
//! * [`direct`] – the functions of the very libssl that `_ssl` has loaded, on the structure inside of
//!   the object, with buffers of ours in the place of the two others. Only reading, writing and moving
//!   ciphertext go this way; handshake and shutdown are rare, and stay with the Python methods, their
//!   callbacks and their exceptions.
//!
//! Any call may run Python code (a callback of the context's), so no cell of the caller's is open
//! across one, except for [`Engine::take_in`].

mod bio;
mod direct;

use std::mem::MaybeUninit;

use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::ffi::{self, Obj, ObjCell, Raise as _, Visited, Visitor, intern};
use direct::Direct;
pub use direct::tls_engine;

/// What one step came to.
pub enum Step {
    /// It is done, and moved so many bytes (of plaintext; 0 for handshake and shutdown).
    Done(usize),
    /// More ciphertext is needed (`SSLWantReadError`, `SSLSyscallError`).
    Again,
    /// The peer will send no more (its `close_notify` came).
    Closed,
    /// The exception that the `ssl` module gives for it.
    Failed(PyErr),
}

/// One connection's cryptography.
pub struct Engine {
    object: ObjCell,
    /// Empty with a direct engine, which has buffers of its own.
    incoming: ObjCell,
    outgoing: ObjCell,
    direct: Option<Direct>,
}

impl Engine {
    /// Make the objects; the errors are those of `wrap_bio`.
    pub fn new(
        context: &Bound<'_, PyAny>,
        server_side: bool,
        server_hostname: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        static MEMORY_BIO: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let py = context.py();
        let memory_bio = ffi::imported(&MEMORY_BIO, intern!(py, "ssl"), intern!(py, "MemoryBIO"))?;
        let (incoming, outgoing) = (memory_bio.call0()?, memory_bio.call0()?);
        let keywords = ffi::new_dict(py)?;
        keywords.set_item(intern!(py, "server_side"), server_side)?;
        keywords.set_item(intern!(py, "server_hostname"), server_hostname)?;
        let object = context.call_method(
            intern!(py, "wrap_bio"),
            (&incoming, &outgoing),
            Some(&keywords),
        )?;
        let direct = Direct::adopt(&object)?;
        let (incoming, outgoing) = match direct {
            Some(_) => (None, None),
            None => (Some(incoming.into()), Some(outgoing.into())),
        };
        Ok(Self {
            object: ObjCell::new(Some(object.into())),
            incoming: ObjCell::new(incoming),
            outgoing: ObjCell::new(outgoing),
            direct,
        })
    }

    /// The `SSLObject`, for `get_extra_info`; None once the collector has cleared it.
    pub fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.object.get_or_none(py)
    }

    /// Say whether plaintext moves without a call into Python.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Go on with the handshake.
    pub fn handshake(&self, py: Python<'_>) -> Step {
        self.with(py, bio::handshake)
    }

    /// Send `close_notify`, or take the peer's.
    pub fn shutdown(&self, py: Python<'_>) -> Step {
        self.with(py, bio::shutdown)
    }

    /// Decrypt at most one record's worth into `memory`; as in asyncio, no memory counts as the end.
    #[inline]
    pub fn read(&self, py: Python<'_>, memory: &mut [MaybeUninit<u8>]) -> Step {
        if memory.is_empty() {
            return Step::Closed;
        }
        match &self.direct {
            Some(direct) => direct.read(py, memory),
            None => self.with(py, |py, object| bio::read(py, object, memory)),
        }
    }

    /// Encrypt; `data` is not empty.
    #[inline]
    pub fn write(&self, py: Python<'_>, data: &[u8]) -> Step {
        match &self.direct {
            Some(direct) => direct.write(py, data),
            None => self.with(py, |py, object| bio::write(py, object, data)),
        }
    }

    /// Take ciphertext in. Runs no Python code, so it may be called with a cell open; what comes back
    /// has to go to [`Engine::feed`] once it is closed.
    #[inline]
    pub fn take_in(&self, py: Python<'_>, ciphertext: &[u8]) -> PyResult<Option<Obj>> {
        match &self.direct {
            Some(direct) => direct.feed(ciphertext).map(|()| None),
            None => ffi::copy_bytes(py, ciphertext).map(Some),
        }
    }

    /// The rest of [`Engine::take_in`].
    pub fn feed(&self, py: Python<'_>, ciphertext: &Obj) -> PyResult<()> {
        bio::feed(py, &taken_from(py, &self.incoming)?, ciphertext)
    }

    /// Move out the ciphertext that is to be sent; empty where there is none.
    #[inline]
    pub fn take_output(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        match &self.direct {
            Some(direct) => direct.take_output(),
            None => bio::take_output(py, &taken_from(py, &self.outgoing)?),
        }
    }

    /// Bytes of ciphertext that were taken in and not read yet; what of a record the engine has begun
    /// to read does not count.
    #[inline]
    pub fn incoming_len(&self, py: Python<'_>) -> PyResult<usize> {
        match &self.direct {
            Some(direct) => Ok(direct.incoming_len()),
            None => bio::pending(py, &taken_from(py, &self.incoming)?),
        }
    }

    /// Bytes of ciphertext that wait for [`Engine::take_output`].
    #[inline]
    pub fn outgoing_len(&self, py: Python<'_>) -> PyResult<usize> {
        match &self.direct {
            Some(direct) => Ok(direct.outgoing_len()),
            None => bio::pending(py, &taken_from(py, &self.outgoing)?),
        }
    }

    /// Show the references to the collector.
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        if let Some(direct) = &self.direct {
            direct.visit(visitor)?;
        }
        self.object.visit(visitor)?;
        self.incoming.visit(visitor)?;
        self.outgoing.visit(visitor)
    }

    /// Let go of the objects, for the collector.
    pub fn clear(&self) {
        if let Some(direct) = &self.direct {
            direct.clear();
        }
        drop((
            self.object.take(),
            self.incoming.take(),
            self.outgoing.take(),
        ));
    }

    fn with(&self, py: Python<'_>, body: impl FnOnce(Python<'_>, &Obj) -> Step) -> Step {
        match taken_from(py, &self.object) {
            Ok(object) => body(py, &object),
            Err(error) => Step::Failed(error),
        }
    }
}

/// What a cell holds, for one call.
fn taken_from(py: Python<'_>, cell: &ObjCell) -> PyResult<Obj> {
    cell.get(py).ok_or_else(gone)
}

/// What is answered when the collector has cleared the connection.
fn gone() -> PyErr {
    PyConnectionError::raise("the TLS connection is gone")
}

/// Make a step of what the `ssl` module raised.
fn step_of(py: Python<'_>, error: PyErr) -> Step {
    match is_again(py, &error) {
        Ok(true) => Step::Again,
        Ok(false) => Step::Failed(error),
        Err(error) => Step::Failed(error),
    }
}

/// Say whether an exception only means that more ciphertext is needed.
fn is_again(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    static AGAIN: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let again = AGAIN.get_or_try_init(py, || {
        let ssl = py.import(intern!(py, "ssl"))?;
        let kinds = [
            ssl.getattr(intern!(py, "SSLWantReadError"))?,
            ssl.getattr(intern!(py, "SSLSyscallError"))?,
        ];
        Ok::<_, PyErr>(ffi::new_tuple(py, kinds.into_iter())?.unbind())
    })?;
    Ok(error.matches(py, again.bind(py))?)
}

/// Say whether an exception is the `ssl` module's.
pub fn is_ssl_error(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    static SSL_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(error.matches(
        py,
        ffi::imported(&SSL_ERROR, intern!(py, "ssl"), intern!(py, "SSLError"))?,
    )?)
}
