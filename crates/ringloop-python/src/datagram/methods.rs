//! The transport's Python methods: `asyncio.DatagramTransport`, and additions of asyncio's own.
//!
//! Called by: user code. Arguments are checked here; the parts do the work.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::state::{Datagram, Datagram_};
use super::{read, write};
use crate::ffi::{self, Argument, Definition, Obj, Raise as _, intern, members, repr_slot};
use crate::transport::{base, flow, socket, thread};

pub(super) fn define(type_: &mut Definition<Datagram>) {
    base::define(type_);
    base::define_reading(type_);
    flow::define(type_);
    socket::define(type_);
    members!(type_, Datagram;
        sendto(data, addr=None) => sendto, "Send a datagram; returns at once.";
        _read_ready() => read::read_ready, "Receive and deliver.";
        set _address => |this| this.address.get_or_none(this.py()), set_address, "The only address that it sends to: the remote one it was made with, or what was assigned. None for any.";
    );
    type_.repr(repr_slot!(Datagram, repr));
}

fn sendto(
    this: Datagram_<'_, '_>,
    data: Argument<'_, '_>,
    address: Option<Argument<'_, '_>>,
) -> PyResult<()> {
    if !ffi::is_bytes_like(data) {
        return Err(PyTypeError::raise(format!(
            "data argument must be a bytes-like object, not {}",
            data.get_type().name()?.repr()?
        )));
    }
    if !this.rules.sends_empty && !data.is_truthy()? {
        return Ok(());
    }
    let none = this.py().None();
    let mut address = address.unwrap_or_else(|| none.bind_borrowed(this.py()));
    let bound = this.address.get(this.py());
    if let Some(bound) = &bound {
        let bound = bound.bind(this.py());
        if !address.is_none() && !address.eq(bound)? {
            return Err(PyValueError::raise(format!(
                "Invalid address: must be None or {}",
                bound.str()?
            )));
        }
        address = bound.as_borrowed();
    }
    if this.base.is_elsewhere() {
        return hand_over_datagram(this, data, address);
    }
    if dropped(this, bound.is_some())? {
        return Ok(());
    }
    write::send(this, data, write::destination(this, address))
}

/// Assigned by programs that connect the socket themselves, so that other addresses are refused.
fn set_address(this: Datagram_<'_, '_>, value: Argument<'_, '_>) -> PyResult<()> {
    let value = value.is_truthy()?.then(|| Obj::from_borrowed(value));
    drop(this.address.replace(value));
    Ok(())
}

/// Passes a send from another thread to the loop.
#[cold]
fn hand_over_datagram(
    this: Datagram_<'_, '_>,
    data: Argument<'_, '_>,
    address: Argument<'_, '_>,
) -> PyResult<()> {
    let py = this.py();
    let copied = ffi::with_bytes(data, |bytes| ffi::new_bytes(py, bytes))??;
    let sendto = this.object().getattr(intern!(py, "sendto"))?;
    thread::call_in_loop(this, (sendto, copied, address))
}

/// Drops datagrams after the end; asyncio logs the fifth and later ones.
///
/// An endpoint without a remote address sends until its socket is closed. After that asyncio
/// reports an accidental `AttributeError` (`None.sendto`) as fatal; here they are dropped like the
/// others.
fn dropped(this: Datagram_<'_, '_>, has_address: bool) -> PyResult<bool> {
    if !(this.base.is_over() || has_address && this.base.lost_writes.get() > 0) {
        return Ok(false);
    }
    let text = "socket.send() raised exception.";
    this.base.lost_writes.drop_write(&this.object(), text).map(|()| true)
}

fn repr<'py>(this: Datagram_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    socket::repr(this, this.read.is_polling(), this.write.is_blocked())
}
