//! `asyncio.StreamWriter`, with a native way to the transport.
//!
//! Owns: [`Writer`], its core. Called by: user code. What is not here is inherited.
//!
//! `drain()` of a writer returns one and the same awaitable, which is done, as long as nothing is to be waited for; else
//! asyncio's own coroutine.

use std::ffi::CStr;

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::inheritance;
use super::protocol::Protocol;
use super::reader::Reader;
use crate::ffi::{
    Argument, Core, Coroutine, Definition, Members, Obj, ObjCell, Payload, Raise as _, Shell,
    ShellRef, Shelled, Step, This, intern, members, payload,
};
use crate::stream::native;
use crate::tls;

/// One writer.
#[derive(Default)]
pub struct Writer {
    transport: ObjCell,
    protocol: ObjCell,
    reader: ObjCell,
    loop_: ObjCell,
    /// A [`Drained`]. Loops of different threads share none, nor its lock and its count.
    drained: ObjCell,
}

type WriterShell<'a, 'py> = ShellRef<'a, 'py, Writer>;

impl Payload for Writer {
    const NAME: &'static CStr = c"ringloop._native.StreamWriterCore";
    const DOC: &'static CStr = c"The state of a StreamWriter.";
    payload!(Writer; define define_core;
        visit transport, protocol, reader, loop_, drained;
        clear transport, protocol, reader, loop_, drained);
}

impl Core for Writer {
    fn shell() -> &'static Shell<Self> {
        static SHELL: Shell<Writer> = Shell::new();
        &SHELL
    }

    fn new() -> Self {
        Self::default()
    }
}

fn define_core(_type: &mut Definition<Writer>) {}

fn writer() -> Members<Writer> {
    let mut list = Members::new();
    members!(list, Shelled<Writer>;
        write(data) => write, "Send data; returns at once.";
        writelines(data) => writelines, "Send several pieces of data.";
        drain() => drain, "Wait while the transport has too many bytes to send.";
        is_closing() => |this| is_closing(&transport(this)?), "Say whether the transport is closing or closed.";
        set _transport => |this| shown(this, |core| &core.transport), |this, value| assign(this, value, |core| &core.transport), "The transport.";
        set _protocol => |this| shown(this, |core| &core.protocol), |this, value| assign(this, value, |core| &core.protocol), "The protocol.";
        set _reader => |this| shown(this, |core| &core.reader), |this, value| assign(this, value, |core| &core.reader), "The reader, or None.";
        set _loop => |this| shown(this, |core| &core.loop_), |this, value| assign(this, value, |core| &core.loop_), "The loop.";
    );
    list
}

fn shown<'py>(
    this: WriterShell<'_, 'py>,
    place: impl for<'a> Fn(&'a Writer) -> &'a ObjCell,
) -> PyResult<Bound<'py, PyAny>> {
    this.with(|core| place(core.payload()).get_or_none(core.py()))
}

fn assign(
    this: WriterShell<'_, '_>,
    value: Argument<'_, '_>,
    place: impl for<'a> Fn(&'a Writer) -> &'a ObjCell,
) -> PyResult<()> {
    let value = (!value.is_none()).then(|| Obj::from_borrowed(value));
    let old = this.with(|core| place(core.payload()).replace(value))?;
    drop(old);
    Ok(())
}

#[inline]
fn transport<'py>(this: WriterShell<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    this.with(|core| core.transport.get_or_none(core.py()))
}

fn write(this: WriterShell<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    let transport = transport(this)?;
    if let Some(written) = native::write(&transport, data) {
        return written;
    }
    if let Some(written) = tls::write(&transport, data) {
        return written;
    }
    transport.call_method1(intern!(this.py(), "write"), (data,)).map(drop)
}

fn writelines(this: WriterShell<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    transport(this)?.call_method1(intern!(this.py(), "writelines"), (data,)).map(drop)
}

fn is_closing(transport: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Some(answer) = native::is_closing(transport) {
        return answer;
    }
    if let Some(answer) = tls::is_closing(transport) {
        return answer;
    }
    transport.call_method0(intern!(transport.py(), "is_closing"))?.is_truthy()
}

fn drain(this: WriterShell<'_, '_>) -> PyResult<Obj> {
    if !is_drained(this)? {
        return inheritance::inherited::<Writer>(this, intern!(this.py(), "drain"), &[]);
    }
    this.run(|core| {
        let py = core.py();
        if let Some(drained) = core.drained.get(py) {
            return Ok(drained);
        }
        let drained: Obj = Drained::native().instantiate(py, Drained)?.into();
        drop(core.drained.replace(Some(drained.clone_ref(py))));
        Ok(drained)
    })
}

/// Whether asyncio's coroutine would return without waiting. `false` if in doubt.
fn is_drained(this: WriterShell<'_, '_>) -> PyResult<bool> {
    let (transport, protocol, reader) = this.with(|core| {
        let object = |cell: &ObjCell| cell.get_or_none(core.py());
        (object(&core.transport), object(&core.protocol), object(&core.reader))
    })?;
    let reads = match Reader::shell().get(&reader) {
        Some(reader) => reader.with(|core| !core.exception.is_some())?,
        None => reader.is_none(),
    };
    let Some(protocol) = Protocol::shell().get(&protocol) else {
        return Ok(false);
    };
    Ok(reads
        && protocol.with(|core| !core.paused.get() && !core.lost.get())?
        && !is_closing(&transport)?)
}

/// The awaitable of a `drain()` that need not wait.
pub struct Drained;

impl Payload for Drained {
    const NAME: &'static CStr = c"ringloop._native.StreamDrained";
    const DOC: &'static CStr = c"A coroutine that has nothing to wait for.";
    payload!(Drained; define define_drained; visit; clear);
}

fn define_drained(type_: &mut Definition<Drained>) {
    members!(type_, Drained;
        send(value) => |_this, _value| Err::<(), _>(PyStopIteration::raise_bare()), "Return None.";
        throw(typ, val=None, tb=None) => |_this, typ, val, _tb| Err::<(), _>(inheritance::thrown(typ, val)), "Raise an exception.";
        close() => |_this| (), "End it.";
        get __name__ => |_this| "drain", "The method's name.";
        get __qualname__ => |_this| "StreamWriter.drain", "The method's qualified name.";
        get cr_running => |_this| false, "Whether it is running.";
        get cr_suspended => |_this| false, "Whether it waits.";
        get cr_frame => |this| this.py().None().into_bound(this.py()), "None: it has no Python frame.";
    );
    type_.coroutine();
}

impl Coroutine for Drained {
    fn resume(this: This<'_, '_, Self>, _sends_none: bool) -> PyResult<Step> {
        Ok(Step::Return(this.py().None().into_bound(this.py()).into()))
    }
}

/// Creates the type of the awaitable.
pub(super) fn create_drained(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    Drained::native().create(py, &py.get_type::<PyAny>())
}

/// Creates the types; returns the class.
pub(super) fn create(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Writer::native().create(py, &py.get_type::<PyAny>())?;
    let name = intern!(py, "StreamWriter");
    let base = py.import(intern!(py, "asyncio.streams"))?.getattr(name)?;
    inheritance::shell::<Writer>(base.cast()?, name, writer()).map(Bound::into_any)
}
