//! The reading side: from ciphertext to the application's protocol.
//!
//! Called by: `protocol` (ciphertext), and `shutdown`, which reads as long as the connection is open
//! and handles the end of the stream.
//!
//! Byte path: `stream::read` → [`take`] → [`read`] → `protocol.data_received`.
//!
//! All available records become one `data_received`, as in asyncio; they are decrypted directly
//! into its `bytes`, or into the buffer of a `BufferedProtocol`.
//! Source: the "Incoming flow" of `asyncio.sslproto.SSLProtocol`.

use std::io;
use std::mem::MaybeUninit;

use pyo3::prelude::*;

use super::engine::Step;
use super::state::{AppState, Receiver, Tls};
use super::{lower, outgoing};
use crate::event_loop::exceptions::{leaves_the_loop, warn};
use crate::ffi::{self, IntoObject as _, Obj, intern};
use crate::limits;
use crate::transport::base::{call_soon, tell};

/// Takes in ciphertext. Runs no Python code, so a cell may be open; the result is for
/// `protocol::taken`.
#[inline]
pub(super) fn take(this: Tls<'_, '_>, ciphertext: &[u8]) -> PyResult<Option<Obj>> {
    this.engine.take_in(this.py(), ciphertext)
}

/// Delivers what can be decrypted, unless that is paused, and sends the resulting
/// output; whether the peer sent `close_notify`.
pub(super) fn read(this: Tls<'_, '_>) -> PyResult<bool> {
    let mut is_closed = false;
    if !this.incoming.is_paused() {
        is_closed = match this.receiver.get() {
            Receiver::Buffered => read_into_buffer(this)?,
            Receiver::Data | Receiver::Native(_) | Receiver::Reader(_) => read_as_bytes(this)?,
        };
        if this.outgoing.backlog.is_empty() {
            outgoing::process(this)?;
        } else {
            outgoing::encrypt(this)?;
        }
    }
    control_lower(this)?;
    Ok(is_closed)
}

/// Decrypts straight into the result that a native reader waits for; returns what ended that before it was complete.
fn read_into_result(this: Tls<'_, '_>) -> PyResult<Option<Step>> {
    let py = this.py();
    let (Receiver::Reader(functions), Some(app)) = (this.receiver.get(), this.app.get(py)) else {
        return Ok(None);
    };
    let mut last = None;
    let mut decrypt = |room: &mut [MaybeUninit<u8>]| -> io::Result<usize> {
        match this.engine.read(py, room) {
            Step::Done(count) => Ok(count),
            ended => {
                last = Some(ended);
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    };
    while let Some(Ok(_)) = (functions.fill)(app.bind(py), &mut decrypt)? {}
    Ok(last)
}

fn read_as_bytes(this: Tls<'_, '_>) -> PyResult<bool> {
    let py = this.py();
    match read_into_result(this)? {
        Some(Step::Failed(error)) => return Err(error),
        Some(ended) => return Ok(matches!(ended, Step::Closed)),
        None => {}
    }
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
    Ok(matches!(last, Step::Closed))
}

fn deliver(this: Tls<'_, '_>, bytes: &Obj) -> PyResult<()> {
    let py = this.py();
    let Some(app) = this.app.get(py) else {
        return Ok(());
    };
    ffi::released(&this.object(), || {
        let native = match this.receiver.get() {
            Receiver::Native(native) => native,
            Receiver::Reader(functions) => {
                return match (functions.feed)(app.bind(py), bytes.clone_ref(py))? {
                    Some(_) => data_received(py, &app, bytes),
                    None => Ok(()),
                };
            }
            Receiver::Data | Receiver::Buffered => return data_received(py, &app, bytes),
        };
        let app = app.bind(py);
        ffi::locked(app, || {
            let held = (native.take)(app, ffi::bytes_from(py, bytes, 0))?;
            (native.taken)(app, held)
        })
    })
}

fn data_received(py: Python<'_>, app: &Obj, bytes: &Obj) -> PyResult<()> {
    ffi::call_method(py, intern!(py, "data_received"), &[app, bytes]).map(drop)
}

fn read_into_buffer(this: Tls<'_, '_>) -> PyResult<bool> {
    let py = this.py();
    let Some(app) = this.app.get(py) else {
        return Ok(false);
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
        call_soon(this, intern!(py, "_do_read"))?;
    }
    if count > 0 {
        let argument: Obj = count.into_object(py)?.into();
        tell(this, &app, intern!(py, "buffer_updated"), Some(&argument))?;
    }
    Ok(matches!(last, Step::Closed))
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
            lower::fatal_error(this, error, "Error calling eof_received()").map(drop)
        }
        result => result,
    }
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
