//! Interface between the TLS state machine and its cryptography.
//!
//! Owns: one connection's `ssl.SSLObject` and the two `ssl.MemoryBIO`s for incoming and outgoing
//! ciphertext. Called by: `tls::protocol`. Knows neither transports nor protocols.
//!
//! The object always comes from the application's own `SSLContext.wrap_bio`, so certificates,
//! callbacks, sessions and the key log are the standard library's. There are two ways to use it:
//! * [`bio`]: the Python methods of the three objects. Works with every `SSLContext`.
//! * [`direct`]: functions of the libssl that `_ssl` has loaded, on the structure inside the
//!   object, with our buffers in place of the two others. Only reading, writing and moving
//!   ciphertext use it; handshake and shutdown are rare, and stay with the Python methods, their
//!   callbacks and their exceptions.
//!
//! Any call may run Python code (a callback of the context), so no cell of the caller may be open
//! across one, except for [`Engine::take_in`].

mod bio;
mod direct;

use std::mem::MaybeUninit;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::ffi::libssl::Session;
use crate::ffi::{self, Obj, ObjCell, Visited, Visitor, imported, intern};
pub use bio::Step;
use bio::gone;
pub use direct::tls_engine;

/// One connection's cryptography.
pub struct Engine {
    object: ObjCell,
    /// Empty with a direct engine, which has its own buffers.
    incoming: ObjCell,
    outgoing: ObjCell,
    direct: Option<Session>,
}

impl Engine {
    /// Makes the objects; the errors are those of `wrap_bio`.
    pub fn new(
        context: &Bound<'_, PyAny>,
        server_side: bool,
        server_hostname: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = context.py();
        let memory_bio = imported!(py, PyType, "ssl", "MemoryBIO")?;
        let (incoming, outgoing) = (memory_bio.call0()?, memory_bio.call0()?);
        let keywords = ffi::new_dict(py)?;
        keywords.set_item(intern!(py, "server_side"), server_side)?;
        keywords.set_item(intern!(py, "server_hostname"), server_hostname)?;
        let object = context.call_method(
            intern!(py, "wrap_bio"),
            (&incoming, &outgoing),
            Some(&keywords),
        )?;
        let direct = direct::adopt(&object)?;
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

    /// Whether plaintext moves without a call into Python.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Continues the handshake.
    pub fn handshake(&self, py: Python<'_>) -> Step {
        self.with(py, |py, object| bio::negotiate(py, object, intern!(py, "do_handshake")))
    }

    /// Sends `close_notify`, or takes the peer's.
    pub fn shutdown(&self, py: Python<'_>) -> Step {
        self.with(py, |py, object| bio::negotiate(py, object, intern!(py, "unwrap")))
    }

    /// Decrypts at most one record into `memory`; as in asyncio, no memory counts as the end.
    #[inline]
    pub fn read(&self, py: Python<'_>, memory: &mut [MaybeUninit<u8>]) -> Step {
        if memory.is_empty() {
            return Step::Closed;
        }
        match &self.direct {
            Some(session) => direct::read(py, session, memory),
            None => self.with(py, |py, object| bio::read(py, object, memory)),
        }
    }

    /// Encrypts `data`, which is not empty.
    #[inline]
    pub fn write(&self, py: Python<'_>, data: &[u8]) -> Step {
        match &self.direct {
            Some(session) => direct::write(py, session, data),
            None => self.with(py, |py, object| bio::write(py, object, data)),
        }
    }

    /// Takes in ciphertext. Runs no Python code, so it may be called with a cell open; the result
    /// must be passed to [`Engine::feed`] once it is closed.
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

    /// Takes the ciphertext to be sent; may be empty.
    #[inline]
    pub fn take_output(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        match &self.direct {
            Some(direct) => Ok(direct.take_output()?),
            None => bio::take_output(py, &taken_from(py, &self.outgoing)?),
        }
    }

    /// Bytes of ciphertext taken in and not read yet, without a partial record that the engine has
    /// started to read.
    #[inline]
    pub fn incoming_len(&self, py: Python<'_>) -> PyResult<usize> {
        match &self.direct {
            Some(direct) => Ok(direct.incoming_len()),
            None => bio::pending(py, &taken_from(py, &self.incoming)?),
        }
    }

    /// Bytes of ciphertext that [`Engine::take_output`] would return.
    #[inline]
    pub fn outgoing_len(&self, py: Python<'_>) -> PyResult<usize> {
        match &self.direct {
            Some(direct) => Ok(direct.outgoing_len()),
            None => bio::pending(py, &taken_from(py, &self.outgoing)?),
        }
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        if let Some(direct) = &self.direct {
            direct.visit(visitor)?;
        }
        self.object.visit(visitor)?;
        self.incoming.visit(visitor)?;
        self.outgoing.visit(visitor)
    }

    pub fn clear(&self) {
        if let Some(direct) = &self.direct {
            direct.clear();
        }
        for cell in [&self.object, &self.incoming, &self.outgoing] {
            cell.clear();
        }
    }

    fn with(&self, py: Python<'_>, body: impl FnOnce(Python<'_>, &Obj) -> Step) -> Step {
        match taken_from(py, &self.object) {
            Ok(object) => body(py, &object),
            Err(error) => Step::Failed(error),
        }
    }
}

/// The content of a cell, for one call.
fn taken_from(py: Python<'_>, cell: &ObjCell) -> PyResult<Obj> {
    cell.get(py).ok_or_else(gone)
}

/// Whether an exception is the `ssl` module's.
pub fn is_ssl_error(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    Ok(error.matches(py, imported!(py, PyType, "ssl", "SSLError")?)?)
}
