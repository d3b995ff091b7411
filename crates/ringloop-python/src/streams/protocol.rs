//! The protocol between a transport and a reader: `asyncio.StreamReaderProtocol`, with a native way in.
//!
//! Owns: [`Protocol`], its core. Called by: transports (the functions of `transport::reader`, or `data_received`), the
//! inherited methods through the attributes, and `writer` (`drain`).
//!
//! Everything but the bytes is inherited: `connection_made`, `eof_received`, `connection_lost` and the flow control run
//! rarely. As in asyncio, the protocol does not keep its reader alive, and drops the bytes of a freed one.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;

use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

use super::inheritance;
use super::reader::{self, Reader, Reader_};
use crate::ffi::{
    self, Argument, Core, Definition, Members, Obj, ObjCell, Payload, Shell, ShellRef, Shelled,
    intern, members, payload,
};
use crate::transport::reader::{ReaderFunctions, Receive};

/// One protocol.
#[derive(Default)]
pub struct Protocol {
    /// The weak reference to the reader.
    weak: ObjCell,
    /// Its core, if it is exactly a native reader.
    reader: ObjCell,
    /// The transport has told it to stop writing.
    pub(super) paused: Cell<bool>,
    pub(super) lost: Cell<bool>,
    /// What was assigned to `data_received` of this one.
    receiver: ObjCell,
}

pub(super) type ProtocolShell<'a, 'py> = ShellRef<'a, 'py, Protocol>;

impl Payload for Protocol {
    const NAME: &'static CStr = c"ringloop._native.StreamProtocolCore";
    const DOC: &'static CStr = c"The state of a StreamReaderProtocol.";
    payload!(Protocol; define define; visit weak, reader, receiver; clear weak, reader, receiver);
}

impl Core for Protocol {
    fn shell() -> &'static Shell<Self> {
        static SHELL: Shell<Protocol> = Shell::new();
        &SHELL
    }

    fn new() -> Self {
        Self::default()
    }
}

fn define(_type: &mut Definition<Protocol>) {}

/// How our transports reach a reader.
pub(super) static FUNCTIONS: ReaderFunctions =
    ReaderFunctions { is_protocol: |object| Protocol::shell().is_exactly(object), feed, fill };

fn protocol() -> Members<Protocol> {
    let mut list = Members::new();
    members!(list, Shelled<Protocol>;
        _data_received(data) => data_received, "Pass bytes to the reader.";
        set data_received => receiver, set_receiver, "Pass bytes to the reader: a method, or what was assigned in its place.";
        set _stream_reader_wr => |this| this.with(|core| core.weak.get_or_none(core.py())), set_reader, "The weak reference to the reader, or None.";
        set _paused => |this| this.with(|core| core.paused.get()), |this, value| set_flag(this, value, |core| &core.paused), "Whether writing is paused.";
        set _connection_lost => |this| this.with(|core| core.lost.get()), |this, value| set_flag(this, value, |core| &core.lost), "Whether the connection is lost.";
    );
    list
}

/// Runs `body` with the core of the reader; `None` if bytes go another way: the reader is gone, of
/// another class, or of a subclass, or something was assigned in place of the methods.
#[inline]
fn with_reader<R>(
    protocol: &Bound<'_, PyAny>,
    body: impl FnOnce(Reader_<'_, '_>) -> PyResult<R>,
) -> PyResult<Option<R>> {
    let Some(this) = Protocol::shell().get(protocol) else {
        return Ok(None);
    };
    let reader = this.with(|core| {
        let py = core.py();
        let weak = core.weak.get(py).filter(|_| !core.receiver.is_some())?.into_bound(py);
        weak.cast::<PyWeakrefReference>().ok()?.upgrade()?;
        core.reader.get(py)
    })?;
    let Some(reader) = reader.map(|reader| reader.into_bound(this.py())) else {
        return Ok(None);
    };
    match Reader::native().get(&reader) {
        Some(core) => ffi::locked(&reader, || {
            if core.feeder.is_some() { Ok(None) } else { body(core).map(Some) }
        }),
        None => Ok(None),
    }
}

fn feed(protocol: &Bound<'_, PyAny>, bytes: Obj) -> PyResult<Option<Obj>> {
    let mut bytes = Some(bytes);
    with_reader(protocol, |reader| match bytes.take().filter(|bytes| ffi::bytes_len(bytes) > 0) {
        Some(bytes) => reader::feed(reader, bytes),
        None => Ok(()),
    })?;
    Ok(bytes)
}

fn fill(protocol: &Bound<'_, PyAny>, receive: Receive<'_>) -> PyResult<Option<io::Result<usize>>> {
    let filled = with_reader(protocol, |reader| {
        let received = reader.buffer.fill(reader.py(), receive)?;
        // The reader that waits takes all of it: no reason to pause.
        if matches!(received, Some(Ok(1..))) && !reader.buffer.is_filling() {
            reader::wake(reader)?;
        }
        Ok(received)
    })?;
    Ok(filled.flatten())
}

fn receiver<'py>(this: ProtocolShell<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let receiver = this.with(|core| core.receiver.get(core.py()))?;
    match receiver {
        Some(receiver) => Ok(receiver.into_bound(this.py())),
        None => this.object().getattr(intern!(this.py(), "_data_received")),
    }
}

fn set_receiver(this: ProtocolShell<'_, '_>, value: Argument<'_, '_>) -> PyResult<()> {
    let value = (!value.is_none()).then(|| Obj::from_borrowed(value));
    let old = this.with(|core| core.receiver.replace(value))?;
    drop(old);
    Ok(())
}

/// asyncio's own `data_received`, which calls the reader's `feed_data`.
fn data_received(this: ProtocolShell<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    let name = intern!(this.py(), "data_received");
    inheritance::inherited::<Protocol>(this, name, &[data]).map(drop)
}

fn set_reader(this: ProtocolShell<'_, '_>, weak: Argument<'_, '_>) -> PyResult<()> {
    let reader = weak.cast::<PyWeakrefReference>().ok().and_then(|weak| weak.upgrade());
    let core = match reader.as_ref().and_then(|reader| Reader::shell().get(reader)) {
        Some(reader) => Some(ffi::core_of(reader)?),
        None => None,
    };
    let weak = (!weak.is_none()).then(|| Obj::from_borrowed(weak));
    let old = this.with(|state| (state.weak.replace(weak), state.reader.replace(core)))?;
    drop(old);
    Ok(())
}

fn set_flag(
    this: ProtocolShell<'_, '_>,
    value: Argument<'_, '_>,
    place: impl for<'a> Fn(&'a Protocol) -> &'a Cell<bool>,
) -> PyResult<()> {
    let value = value.is_truthy()?;
    this.with(|core| place(core.payload()).set(value))
}

/// Creates the types; returns the class.
pub(super) fn create(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Protocol::native().create(py, &py.get_type::<PyAny>())?;
    let name = intern!(py, "StreamReaderProtocol");
    let base = py.import(intern!(py, "asyncio.streams"))?.getattr(name)?;
    inheritance::shell::<Protocol>(base.cast()?, name, protocol()).map(Bound::into_any)
}
