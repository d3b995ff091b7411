//! From the lower transport's `connection_made` to the application's.
//!
//! Called by: `protocol` (`connection_made`, the timeout, more ciphertext).
//! Source: the "Handshake flow" of `asyncio.sslproto.SSLProtocol`.

use pyo3::exceptions::{PyConnectionAbortedError, PyConnectionResetError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::engine::{self, Step};
use super::state::{AppState, State, Tls, call_later, cancel, is_exception};
use super::{lower, outgoing, shutdown};
use crate::event_loop::exceptions::{self, leaves_the_loop};
use crate::ffi::{self, Argument, Fallible, Obj, Raise as _, imported, intern};
use crate::transport::base::{log_debug, tell};

/// Starts over the lower transport, which is new.
pub(super) fn start(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    log_debug(this, "debug", "%r starts SSL handshake")?;
    let core = this.core(py)?;
    let start = if core.get().debug() {
        Some(core.call_method0(intern!(py, "time"))?.extract()?)
    } else {
        None
    };
    this.timing.handshake_start.set(start);
    this.set_state(State::DoHandshake)?;
    let timer =
        call_later(this, &this.timing.handshake_timeout, intern!(py, "_check_handshake_timeout"))?;
    drop(this.timing.handshake_timer.replace(Some(timer)));
    go_on(this)
}

/// The timeout has expired.
pub(super) fn check_timeout(this: Tls<'_, '_>) -> PyResult<()> {
    if this.state.get() != State::DoHandshake {
        return Ok(());
    }
    let seconds = this.timing.handshake_timeout.get_or_none(this.py());
    let error = PyConnectionAbortedError::raise(format!(
        "SSL handshake is taking longer than {} seconds: aborting the connection",
        seconds.str()?
    ));
    lower::fatal_error(this, error, "Fatal error on transport").map(drop)
}

/// More ciphertext arrived.
pub(super) fn go_on(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    match this.engine.handshake(py) {
        Step::Again => outgoing::process(this),
        Step::Done(_) | Step::Closed => complete(this, Ok(())),
        Step::Failed(error) if engine::is_ssl_error(py, &error)? => complete(this, Err(error)),
        Step::Failed(error) => Err(error),
    }
}

/// The lower transport ended during the handshake.
pub(super) fn cut_off(this: Tls<'_, '_>) -> PyResult<()> {
    complete(this, Err(PyConnectionResetError::raise_bare()))
}

fn complete(this: Tls<'_, '_>, outcome: PyResult<()>) -> PyResult<()> {
    let py = this.py();
    cancel(py, &this.timing.handshake_timer)?;
    let object = this.engine.object(py);
    let wrapped = outcome
        .and_then(|()| this.set_state(State::Wrapped))
        .and_then(|()| object.call_method0(intern!(py, "getpeercert")));
    let peercert = match wrapped {
        Ok(peercert) => peercert,
        Err(error) if is_exception(py, &error) => return failed(this, error),
        Err(error) => return Err(error),
    };
    log_duration(this)?;
    let extra = this.extra.get_or_none(py);
    let extra = extra.cast::<PyDict>()?;
    extra.set_item(intern!(py, "peercert"), peercert)?;
    for name in [intern!(py, "cipher"), intern!(py, "compression")] {
        extra.set_item(name, object.call_method0(name)?)?;
    }
    extra.set_item(intern!(py, "ssl_object"), object)?;
    let told = tell_made(this);
    let has_waiter = this.waiter.get(py).is_some();
    // Wakes the waiter even if the protocol raised an exception that leaves the loop.
    let woken = match &told {
        Err(error) if !leaves_the_loop(py, error) => Ok(()),
        _ => wake_waiter(this, None),
    };
    told.and(woken)?;
    let done = shutdown::read(this);
    if has_waiter && matches!(this.state.get(), State::Wrapped | State::Flushing) {
        // A busy peer's next bytes may be there in this turn, before the waiter has run.
        this.incoming.waiter_is_next.set(true);
        shutdown::again(this)?;
    }
    done
}

/// Calls the application's `connection_made`, once.
fn tell_made(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    if this.app_state.get() != AppState::Init {
        return Ok(());
    }
    this.app_state.set(AppState::Made);
    match (this.app.get(py), this.app_transport.get(py)) {
        (Some(app), Some(transport)) => {
            tell(this, &app, intern!(py, "connection_made"), Some(&transport)).map(drop)
        }
        _ => Ok(()),
    }
}

fn failed(this: Tls<'_, '_>, error: PyErr) -> PyResult<()> {
    let py = this.py();
    this.set_state(State::Unwrapped)?;
    let certificate_error = imported!(py, PyType, "ssl", "CertificateError")?;
    let message = if error.matches(py, certificate_error)? {
        "SSL handshake failed on verifying the certificate"
    } else {
        "SSL handshake failed"
    };
    let exception = lower::fatal_error(this, error, message)?;
    wake_waiter(this, Some(&exception))
}

fn log_duration(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let core = this.core(py)?;
    let Some(start) = this.timing.handshake_start.get() else {
        return Ok(());
    };
    if !core.get().debug() {
        return Ok(());
    }
    let now: f64 = core.call_method0(intern!(py, "time"))?.extract()?;
    let text = intern!(py, "%r: SSL handshake took %.1f ms");
    let arguments = (text, this.object(), Fallible((now - start) * 1e3));
    exceptions::log(intern!(py, "debug"), arguments, None)
}

/// Resolves the waiter, once. Without memory it is tried again: no other event would.
pub(super) fn wake_waiter(this: Tls<'_, '_>, error: Option<&Obj>) -> PyResult<()> {
    let py = this.py();
    match wake(this, error) {
        Err(failed) if failed.is_instance_of::<PyMemoryError>(py) => {
            let error =
                error.map_or_else(|| py.None().into_bound(py).into(), |error| error.clone_ref(py));
            this.core(py)?.get().owe(this.object(), intern!(py, "_wake_waiter"), Some(error))
        }
        woken => woken,
    }
}

/// `_wake_waiter`, after a failure.
pub(super) fn wake_again(this: Tls<'_, '_>, error: Argument<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let done = match this.waiter.get(py) {
        Some(waiter) => {
            ffi::call_method(py, intern!(py, "done"), &[&waiter])?.bind(py).is_truthy()?
        }
        None => true,
    };
    if done {
        drop(this.waiter.take());
        return Ok(());
    }
    let error = (!error.is_none()).then(|| Obj::from_borrowed(error));
    wake_waiter(this, error.as_ref())
}

fn wake(this: Tls<'_, '_>, error: Option<&Obj>) -> PyResult<()> {
    let py = this.py();
    let Some(waiter) = this.waiter.get(py) else {
        return Ok(());
    };
    if !ffi::call_method(py, intern!(py, "cancelled"), &[&waiter])?.bind(py).is_truthy()? {
        if let Some(error) = error {
            ffi::call_method(py, intern!(py, "set_exception"), &[&waiter, error])?;
        } else {
            let none = py.None().into_bound(py).into();
            ffi::call_method(py, intern!(py, "set_result"), &[&waiter, &none])?;
        }
    }
    drop(this.waiter.take());
    Ok(())
}
