//! The transport's Python methods: `asyncio.DatagramTransport`, and what asyncio's own has beside it.
//!
//! Called by: user code. Never does: more than check arguments and hand over to a part.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

use super::{Datagram, Datagram_, lifecycle, read, write};
use crate::ffi::{
    self, Args, Definition, Fallible, IntoObject as _, Obj, Raise as _, intern, members, repr_slot,
};
use crate::limits;
use crate::transport::{flow, thread};

/// List the members.
pub(super) fn define(type_: &mut Definition<Datagram>) {
    members!(type_, Datagram;
        sendto("data, addr=None") => sendto, "Send a datagram; returns at once.";
        get_write_buffer_size() => get_write_buffer_size, "Return how many bytes wait to be sent.";
        get_write_buffer_limits() => get_write_buffer_limits, "Return the low and high water marks, in bytes.";
        set_write_buffer_limits("high=None, low=None") => set_write_buffer_limits, "Set the water marks, in bytes.";
        pause_reading() => pause_reading, "Deliver nothing until resume_reading().";
        resume_reading() => resume_reading, "Deliver again.";
        is_reading() => is_reading, "Say whether datagrams are delivered.";
        _start_reading() => start_reading, "Begin to read, after connection_made.";
        _read_ready() => read_ready, "Receive and deliver.";
        close() => close, "Close once everything is sent.";
        abort() => abort, "Close now; unsent datagrams are lost.";
        is_closing() => closing, "Say whether it is closing or closed.";
        set_protocol("protocol") => set_protocol, "Hand the endpoint to another protocol.";
        get_protocol() => protocol, "Return the current protocol.";
        _call_connection_lost("exc") => call_connection_lost, "Tell the protocol and let go of the socket.";
        _send_gathered() => send_gathered, "Send what waits for the end of the turn.";
        _write_at_once() => write_at_once, "Send what waits, and have nothing wait any more.";
        get _loop => loop_, "The loop.";
        get _sock => socket, "The socket; None once closed.";
        get _sock_fd => socket_fd, "The socket's descriptor.";
        get _protocol => protocol, "The protocol; None once lost.";
        get _address => address, "The remote address it was made with, or None.";
        get _closing => closing, "Whether it is closing or closed.";
        get _conn_lost => conn_lost, "Sends since the endpoint was lost.";
        get _protocol_paused => protocol_paused, "Whether the protocol was told to stop writing.";
    );
    type_.repr(repr_slot!(Datagram, repr));
}

fn sendto(this: Datagram_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let (data, address) = sendto_arguments(args)?;
    let is_bytes_like = data.is_instance_of::<PyBytes>()
        || data.is_instance_of::<PyByteArray>()
        || data.is_instance_of::<PyMemoryView>();
    if !is_bytes_like {
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
    if this.is_elsewhere() {
        return hand_over_datagram(this, data, address);
    }
    if dropped(this, bound.is_some())? {
        return Ok(());
    }
    write::send(this, data, write::destination(this, address))
}

/// Another thread than the loop's sends: the loop is to.
#[cold]
fn hand_over_datagram(
    this: Datagram_<'_, '_>,
    data: Argument<'_, '_>,
    address: Argument<'_, '_>,
) -> PyResult<()> {
    let py = this.py();
    let loop_ = thread::checked(this)?;
    let copied = ffi::with_bytes(data, |bytes| ffi::new_bytes(py, bytes))??;
    let arguments = (
        this.object().getattr(intern!(py, "sendto"))?,
        copied,
        address,
    );
    loop_.call_method1(intern!(py, "call_soon_threadsafe"), arguments)?;
    Ok(())
}

type Argument<'a, 'py> = Borrowed<'a, 'py, PyAny>;

fn sendto_arguments<'a, 'py>(
    args: Args<'a, 'py>,
) -> PyResult<(Argument<'a, 'py>, Option<Argument<'a, 'py>>)> {
    let mut values = [args.get(0), args.get(1)];
    if args.len() > values.len() {
        return Err(PyTypeError::raise(format!(
            "sendto() takes from 1 to 2 positional arguments but {} were given",
            args.len()
        )));
    }
    for (name, value) in args.keywords() {
        let index = match name.extract::<std::borrow::Cow<'_, str>>()?.as_ref() {
            "data" => 0,
            "addr" => 1,
            other => {
                return Err(PyTypeError::raise(format!(
                    "sendto() got an unexpected keyword argument '{other}'"
                )));
            }
        };
        if values[index].replace(value).is_some() {
            return Err(PyTypeError::raise(format!(
                "sendto() got multiple values for argument '{}'",
                name.to_owned()
            )));
        }
    }
    match values {
        [Some(data), address] => Ok((data, address)),
        [None, _] => Err(PyTypeError::raise(
            "sendto() missing 1 required positional argument: 'data'",
        )),
    }
}

/// After the end, datagrams go nowhere; asyncio logs the fifth and later ones.
///
/// An endpoint without a remote address sends until its socket is closed. After that asyncio's reports
/// an `AttributeError` of its own (`None.sendto`) as fatal; here they are dropped as the others.
fn dropped(this: Datagram_<'_, '_>, has_address: bool) -> PyResult<bool> {
    let lost = this.lifecycle.lost_sends.get();
    if !(this.lifecycle.is_over() || has_address && lost > 0) {
        return Ok(false);
    }
    if lost >= limits::LOST_WRITES_BEFORE_WARNING {
        let py = this.py();
        let logger = py
            .import(intern!(py, "asyncio.log"))?
            .getattr(intern!(py, "logger"))?;
        let text = ffi::new_str(py, "socket.send() raised exception.")?;
        logger.call_method1(intern!(py, "warning"), (text,))?;
    }
    this.lifecycle.lost_sends.set(lost + 1);
    Ok(true)
}

fn get_write_buffer_size(this: Datagram_<'_, '_>) -> u64 {
    this.write.size() as u64
}

fn get_write_buffer_limits<'py>(this: Datagram_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    this.flow.limits(this.py())
}

fn set_write_buffer_limits(this: Datagram_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    this.flow.set_limits(this.py(), args)?;
    flow::maybe_pause(this, this.write.size())
}

fn pause_reading(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "pause_reading"));
    }
    if read::pause(this)? {
        log_debug(this, "%r pauses reading")?;
    }
    Ok(())
}

fn resume_reading(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "resume_reading"));
    }
    if !this.lifecycle.is_closing() && read::resume(this)? {
        log_debug(this, "%r resumes reading")?;
    }
    Ok(())
}

fn log_debug(this: Datagram_<'_, '_>, text: &str) -> PyResult<()> {
    let py = this.py();
    if this.core(py)?.get().debug() {
        let logger = py
            .import(intern!(py, "asyncio.log"))?
            .getattr(intern!(py, "logger"))?;
        logger.call_method1(intern!(py, "debug"), (Fallible(text), this.object()))?;
    }
    Ok(())
}

fn is_reading(this: Datagram_<'_, '_>) -> bool {
    !this.lifecycle.is_closing() && !this.read.is_paused()
}

fn start_reading(this: Datagram_<'_, '_>) -> PyResult<()> {
    read::start(this)
}

fn read_ready(this: Datagram_<'_, '_>) -> PyResult<()> {
    read::read_ready(this)
}

fn close(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "close"));
    }
    lifecycle::close(this)
}

fn abort(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "abort"));
    }
    lifecycle::force_close(this, None)
}

fn set_protocol(this: Datagram_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("set_protocol", 1)?;
    drop(this.protocol.replace(args.get(0).map(Obj::from_borrowed)));
    Ok(())
}

fn call_connection_lost(this: Datagram_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_call_connection_lost", 1)?;
    match args.get(0) {
        Some(error) => lifecycle::connection_lost(this, &Obj::from_borrowed(error)),
        None => Ok(()),
    }
}

fn send_gathered(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return Ok(());
    }
    write::send_gathered(this)
}

fn write_at_once(this: Datagram_<'_, '_>) -> PyResult<()> {
    reached(this)
}

/// The program gets at the descriptor: what it writes from now on leaves at once.
fn reached(this: Datagram_<'_, '_>) -> PyResult<()> {
    this.gathering.refuse();
    if this.is_elsewhere() {
        return Ok(());
    }
    write::send_gathered(this)
}

fn loop_<'py>(this: Datagram_<'_, 'py>) -> Bound<'py, PyAny> {
    this.loop_.get_or_none(this.py())
}

fn socket<'py>(this: Datagram_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    reached(this)?;
    Ok(this.socket.get_or_none(this.py()))
}

fn socket_fd<'py>(this: Datagram_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    reached(this)?;
    this.socket.original_fd().into_object(this.py())
}

fn protocol<'py>(this: Datagram_<'_, 'py>) -> Bound<'py, PyAny> {
    this.protocol.get_or_none(this.py())
}

fn address<'py>(this: Datagram_<'_, 'py>) -> Bound<'py, PyAny> {
    this.address.get_or_none(this.py())
}

fn closing(this: Datagram_<'_, '_>) -> bool {
    this.lifecycle.is_closing()
}

fn conn_lost(this: Datagram_<'_, '_>) -> u64 {
    u64::from(this.lifecycle.lost_sends.get())
}

fn protocol_paused(this: Datagram_<'_, '_>) -> bool {
    this.flow.is_paused()
}

/// As asyncio writes it, with our class's name.
fn repr<'py>(this: Datagram_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let is_closed = !this.socket.is_some();
    let state = match (is_closed, this.lifecycle.is_closing()) {
        (true, _) => " closed",
        (false, true) => " closing",
        (false, false) => "",
    };
    let traffic = if is_closed || this.core(this.py())?.get().is_closed() {
        String::new()
    } else {
        let word = |polling: bool| if polling { "polling" } else { "idle" };
        let (read, write) = (word(this.read.is_polling()), word(this.write.is_blocked()));
        let size = this.write.size();
        format!(" read={read} write=<{write}, bufsize={size}>")
    };
    let name = this.object().get_type().name()?;
    let fd = this.socket.original_fd();
    let text = format!("<{name}{state} fd={fd}{traffic}>");
    text.into_object(this.py())
}
