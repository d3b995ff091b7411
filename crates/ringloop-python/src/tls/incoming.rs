//! The reading side: from ciphertext to the application's protocol.
//!
//! Called by: `lower` and `protocol` (ciphertext), `transport` (pause, resume), `shutdown` (flush).
//! The end of the stream is handled by `shutdown`.
//!
//! Byte path: `transport::read` → [`take`] → [`taken`] → `protocol.data_received`.
//!
//! All available records become one `data_received`, as in asyncio; they are decrypted directly
//! into its `bytes`, or into the buffer of a `BufferedProtocol`.
//! Source: the "Incoming flow" of `asyncio.sslproto.SSLProtocol`.

use pyo3::prelude::*;

use super::engine::Step;
use super::state::{AppState, Receiver, State};
use super::{Tls, TlsProtocol, handshake, lower, outgoing, shutdown};
use crate::event_loop::exceptions::{leaves_the_loop, warn};
use crate::ffi::{self, IntoObject as _, Obj, Payload, intern};
use crate::limits;
use crate::transport::base::{call_soon, tell};

/// Takes in ciphertext. Runs no Python code, so a cell may be open; the result is for [`taken`].
#[inline]
pub(super) fn take(this: Tls<'_, '_>, ciphertext: &[u8]) -> PyResult<Option<Obj>> {
    this.engine.take_in(this.py(), ciphertext)
}

/// Continues with what was taken in.
#[inline]
pub(super) fn taken(this: Tls<'_, '_>, held: Option<Obj>) -> PyResult<()> {
    if let Some(held) = held {
        this.engine.feed(this.py(), &held)?;
    }
    let done = match this.state.get() {
        State::Wrapped => read(this),
        State::DoHandshake => handshake::go_on(this),
        State::Flushing => shutdown::flush(this),
        State::Shutdown => shutdown::go_on(this),
        State::Unwrapped => Ok(()),
    };
    or_again(this, done)
}

/// An exception of the application's protocol may leave the loop, with undelivered records or an
/// unsent answer, for which the lower transport has no further event: the next run continues with
/// them.
pub(super) fn or_again(this: Tls<'_, '_>, done: PyResult<()>) -> PyResult<()> {
    let py = this.py();
    let Err(error) = done else { return Ok(()) };
    if leaves_the_loop(py, &error) && this.state.get() != State::Unwrapped {
        again(this)?;
    }
    Err(error)
}

/// Calls [`resumed`] in the next pass.
fn again(this: Tls<'_, '_>) -> PyResult<()> {
    call_soon(this, intern!(this.py(), "_resume"), |protocol, _| {
        TlsProtocol::native().with(protocol, resumed)
    })
}

/// Delivers what can be decrypted, and sends the resulting output.
pub(super) fn read(this: Tls<'_, '_>) -> PyResult<()> {
    if !matches!(this.state.get(), State::Wrapped | State::Flushing) {
        return Ok(());
    }
    match read_and_answer(this) {
        Err(error) if super::is_exception(this.py(), &error) => {
            shutdown::fatal_error(this, error, "Fatal error on SSL protocol").map(drop)
        }
        result => result,
    }
}

/// One pass after a buffer was full.
pub(super) fn do_read(this: Tls<'_, '_>) -> PyResult<()> {
    let done = read(this);
    or_again(this, done)
}

fn read_and_answer(this: Tls<'_, '_>) -> PyResult<()> {
    if !this.incoming.app_paused.get() {
        match this.receiver.get() {
            Receiver::Buffered => read_into_buffer(this)?,
            Receiver::Data | Receiver::Tls => read_as_bytes(this)?,
        }
        if outgoing::has_backlog(this) {
            outgoing::encrypt(this)?;
        } else {
            outgoing::process(this)?;
        }
    }
    control_lower(this)
}

fn read_as_bytes(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let waiting = this.engine.incoming_len(py)?;
    let expected = if waiting <= limits::TLS_RECORD_MAX {
        waiting
    } else {
        // The engine may have started to read one more record.
        waiting + limits::TLS_RECORD_MAX
    };
    let mut last = Step::Again;
    let bytes = ffi::gather_bytes(py, expected, |memory| {
        last = this.engine.read(py, memory);
        match last {
            Step::Done(count) => Some(count),
            _ => None,
        }
    })?;
    if let Step::Failed(error) = last {
        return Err(error);
    }
    if ffi::bytes_len(&bytes) > 0 {
        deliver(this, &bytes)?;
    }
    match last {
        Step::Closed => ended(this),
        _ => Ok(()),
    }
}

fn deliver(this: Tls<'_, '_>, bytes: &Obj) -> PyResult<()> {
    let py = this.py();
    let Some(app) = this.app.get(py) else {
        return Ok(());
    };
    ffi::released(&this.object(), || {
        let Some(inner) = TlsProtocol::native().get(app.bind(py)) else {
            let method = intern!(py, "data_received");
            return ffi::call_method(py, method, &[&app, bytes]).map(drop);
        };
        ffi::locked(app.bind(py), || {
            let held = take(inner, ffi::bytes_from(py, bytes, 0))?;
            taken(inner, held)
        })
    })
}

fn read_into_buffer(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let Some(app) = this.app.get(py) else {
        return Ok(());
    };
    let hint: Obj = this.engine.incoming_len(py)?.into_object(py)?.into();
    let buffer = tell(this, &app, intern!(py, "get_buffer"), Some(&hint))?;
    let (last, count, full) = ffi::with_memory(buffer.bind(py).as_borrowed(), |memory| {
        let mut count = 0;
        loop {
            match this.engine.read(py, &mut memory[count..]) {
                Step::Done(more) => count += more,
                last => break (last, count, false),
            }
            if count >= memory.len() {
                break (Step::Again, count, true);
            }
        }
    })?;
    drop(buffer);
    if let Step::Failed(error) = last {
        return Err(error);
    }
    if full {
        call_soon(this, intern!(py, "_do_read"), |protocol, _| {
            TlsProtocol::native().with(protocol, do_read)
        })?;
    }
    if count > 0 {
        let argument: Obj = count.into_object(py)?.into();
        tell(this, &app, intern!(py, "buffer_updated"), Some(&argument))?;
    }
    match last {
        Step::Closed => ended(this),
        _ => Ok(()),
    }
}

/// The peer sent `close_notify`.
fn ended(this: Tls<'_, '_>) -> PyResult<()> {
    let told = tell_eof(this);
    let started = shutdown::start(this);
    told.and(started)
}

/// Calls the application's `eof_received`, once.
pub(super) fn tell_eof(this: Tls<'_, '_>) -> PyResult<()> {
    if this.app_state.get() != AppState::Made {
        return Ok(());
    }
    this.app_state.set(AppState::Eof);
    let py = this.py();
    let Some(app) = this.app.get(py) else {
        return Ok(());
    };
    let told = tell(this, &app, intern!(py, "eof_received"), None)
        .and_then(|keep_open| keep_open.bind(py).is_truthy())
        .and_then(|keep_open| {
            if keep_open {
                warn(py, "returning true from eof_received() has no effect when using ssl")
            } else {
                Ok(())
            }
        });
    match told {
        Err(error) if !leaves_the_loop(py, &error) => {
            shutdown::fatal_error(this, error, "Error calling eof_received()").map(drop)
        }
        result => result,
    }
}

/// `resume_reading` of the application's transport.
pub(super) fn resume(this: Tls<'_, '_>) -> PyResult<()> {
    if !this.incoming.app_paused.replace(false) {
        return Ok(());
    }
    again(this)
}

/// One pass after `resume`, or after an exception that left the loop.
pub(super) fn resumed(this: Tls<'_, '_>) -> PyResult<()> {
    let done = match this.state.get() {
        State::Wrapped => read(this),
        State::Flushing => shutdown::flush(this),
        State::Shutdown => shutdown::go_on(this),
        State::Unwrapped | State::DoHandshake => Ok(()),
    };
    or_again(this, done)
}

/// Pauses the lower transport when too much ciphertext is queued, and resumes it later.
pub(super) fn control_lower(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let size = this.engine.incoming_len(py)?;
    if this.incoming.flow.pauses_at(size) {
        lower::call(this, intern!(py, "pause_reading"))
    } else if this.incoming.flow.resumes(size) {
        lower::call(this, intern!(py, "resume_reading"))
    } else {
        Ok(())
    }
}
