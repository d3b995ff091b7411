//! Zero-copy exchange of bytes between the kernel and Python.
//!
//! Owns: `bytes` objects being filled, `bytes` borrowed by the engine, writable views. Called by:
//! the transports and `sock`. Views are not kept across a call into Python.
//!
//! Invariants:
//! 1. A fresh `bytes` object is written only before other code can see it.
//! 2. An exact `bytes` object is immutable, so the engine may use its memory while a reference is
//!    held; everything else is copied.
//! 3. A writable view is released before anything else runs (except in `with_memory`); the exporter keeps
//!    the memory until then.
//! 4. A `Room`'s object is seen by no other code before `finish`, which checks that no loan is left; each loan
//!    is a slice that starts at the end of what is filled, and holds a reference.
//! 5. The count reported to `gather_bytes` and to `Filling::fill` has been written: their callers are the
//!    reading side of TLS, whose engine counts what it has copied or decrypted, and recv(2).
//! 6. The memory of a `bytearray` is read with its lock held, and by code that does not call into Python.

use ringloop::embed::sys::fd::RawFd;
use ringloop::embed::sys::libc;
use std::io;
use std::mem::MaybeUninit;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::sys::{file, socket};

use super::critical::locked;
use super::make::{Raise as _, new_bytes, try_copy};
use super::object::Obj;

unsafe extern "C" {
    /// Documented in the C API ("Bytes Objects"); `PyO3` does not declare it.
    fn _PyBytes_Resize(bytes: *mut *mut ffi::PyObject, new_len: isize) -> std::ffi::c_int;
}

/// Receives into a new `bytes` of at most `size` bytes; the inner error is the socket's.
pub fn receive_bytes(py: Python<'_>, fd: RawFd, size: usize) -> PyResult<io::Result<Obj>> {
    // An application's own socket may be blocking; the loop must not block in it.
    fill_new_bytes(py, size, |memory| socket::recv(fd, memory, libc::MSG_DONTWAIT))
}

/// Reads into a new `bytes` of at most `size` bytes; the inner error is the file's.
pub fn read_bytes(py: Python<'_>, fd: RawFd, size: usize) -> PyResult<io::Result<Obj>> {
    fill_new_bytes(py, size, |memory| file::read(fd, memory, None))
}

/// Makes a `bytes` of at most `size` bytes; `fill` returns how many it wrote.
#[inline]
fn fill_new_bytes(
    py: Python<'_>,
    size: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
) -> PyResult<io::Result<Obj>> {
    let mut filling = Filling::new(py, size)?;
    match fill(filling.room()) {
        Ok(count) => {
            filling.len = count;
            filling.finish(py).map(Ok)
        }
        Err(error) => Ok(Err(error)),
    }
}

/// Receives at most `size` bytes into `memory`, which keeps its capacity for the next call.
pub fn receive_scratch(memory: &mut Vec<u8>, fd: RawFd, size: usize) -> io::Result<&[u8]> {
    memory.clear();
    memory.try_reserve(size).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    let room = &mut memory.spare_capacity_mut()[..size];
    let count = socket::recv(fd, room, libc::MSG_DONTWAIT)?;
    // SAFETY: the kernel has written `count` bytes from the start of the room.
    unsafe { memory.set_len(count) };
    Ok(memory)
}

/// Maximum size that [`gather_bytes`] builds on the stack.
const GATHER_ON_STACK: usize = 16 * 1024;

/// A `bytes` object that no other code refers to.
pub struct Filling {
    object: *mut ffi::PyObject,
    len: usize,
    capacity: usize,
}

impl Filling {
    #[inline]
    pub fn new(py: Python<'_>, capacity: usize) -> PyResult<Self> {
        // SAFETY: with null it allocates `capacity` bytes and leaves them unwritten.
        let object = unsafe { ffi::PyBytes_FromStringAndSize(std::ptr::null(), capacity as isize) };
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        Ok(Self { object, len: 0, capacity })
    }

    /// How many bytes were written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies as many bytes as fit; returns their number.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        self.fill(|room| Ok(copy_into(room, bytes))).unwrap_or(0)
    }

    /// Lets `receive` write into the rest; it returns how many bytes it wrote from its start, as recv(2) does.
    pub fn fill(
        &mut self,
        receive: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let count = receive(self.room())?;
        self.len = self.capacity.min(self.len + count);
        Ok(count)
    }

    #[inline]
    fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: invariant 1: the object is ours alone.
        let memory = unsafe { ffi::PyBytes_AsString(self.object) }.cast::<MaybeUninit<u8>>();
        // SAFETY: invariant 1: the memory is writable for `capacity` bytes and needs no contents.
        let all = unsafe { std::slice::from_raw_parts_mut(memory, self.capacity) };
        &mut all[self.len..]
    }

    /// Changes the capacity. Without memory, the bytes are lost.
    pub fn resize(&mut self, py: Python<'_>, capacity: usize) -> PyResult<()> {
        self.capacity = capacity;
        // SAFETY: invariant 1: a single reference, which the call replaces, or releases and nulls.
        if unsafe { _PyBytes_Resize(&raw mut self.object, capacity as isize) } < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(())
    }

    /// The object, of exactly the bytes that were written.
    #[inline]
    pub fn finish(mut self, py: Python<'_>) -> PyResult<Obj> {
        if self.len != self.capacity {
            self.resize(py, self.len)?;
        }
        let object = std::mem::replace(&mut self.object, std::ptr::null_mut());
        // SAFETY: transfers our reference.
        unsafe { Obj::from_owned_ptr(py, object) }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        // SAFETY: our reference, or null after it was transferred.
        unsafe { ffi::Py_XDECREF(self.object) }
    }
}

/// Makes a `bytes` of everything `fill` yields: it gets memory and returns how many bytes it wrote
/// from the start (invariant 5), or `None` at the end. `expected` is an estimate of the total.
pub fn gather_bytes(
    py: Python<'_>,
    expected: usize,
    mut fill: impl FnMut(&mut [MaybeUninit<u8>]) -> Option<usize>,
) -> PyResult<Obj> {
    let mut filling;
    if expected <= GATHER_ON_STACK {
        let mut memory = [const { MaybeUninit::<u8>::uninit() }; GATHER_ON_STACK];
        let mut len = 0;
        while len < memory.len() {
            let Some(count) = fill(&mut memory[len..]) else {
                // SAFETY: invariant 5: so many bytes were written.
                let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), len) };
                return copy_bytes(py, bytes);
            };
            len = memory.len().min(len + count);
        }
        filling = Filling::new(py, 2 * GATHER_ON_STACK)?;
        filling.room()[..len].copy_from_slice(&memory);
        filling.len = len;
    } else {
        filling = Filling::new(py, expected)?;
    }
    loop {
        if filling.len == filling.capacity {
            filling.resize(py, filling.capacity * 2)?;
        }
        let Some(count) = fill(filling.room()) else {
            return filling.finish(py);
        };
        filling.len = filling.capacity.min(filling.len + count);
    }
}

/// Makes a `bytes` object by concatenating `pieces`.
pub fn join_bytes(py: Python<'_>, pieces: &[impl AsRef<[u8]>]) -> PyResult<Obj> {
    if let [piece] = pieces {
        return copy_bytes(py, piece.as_ref());
    }
    let len = pieces.iter().map(|piece| piece.as_ref().len()).sum();
    let mut filling = Filling::new(py, len)?;
    for piece in pieces {
        let piece = piece.as_ref();
        let room = filling.room();
        copy_into(room, piece);
        filling.len += piece.len();
    }
    filling.finish(py)
}

/// Makes a `bytes` object. Allocates no GC-tracked object, so it may be called with a cell open.
#[inline]
pub fn copy_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Obj> {
    new_bytes(py, bytes).map(Obj::from)
}

unsafe fn release_reference(owner: *mut ()) {
    // SAFETY: `take_over` took this reference for the buffer; the engine drops it attached.
    unsafe { ffi::Py_DECREF(owner.cast()) }
}

/// Makes a send buffer: exact `bytes` are kept by reference, other bytes-like objects are copied.
pub fn take_over(object: Borrowed<'_, '_, PyAny>) -> PyResult<SendBuf> {
    let Ok(exact) = object.cast_exact::<PyBytes>() else {
        // SAFETY: the object is alive.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
            return Err(not_bytes_like(object));
        }
        let view = View::open(object, ffi::PyBUF_SIMPLE)?;
        return try_copy(view.bytes()).map(SendBuf::from);
    };
    let (bytes, owner) = (exact.as_bytes(), object.as_ptr());
    // SAFETY: alive; the new reference belongs to the buffer.
    unsafe { ffi::Py_INCREF(owner) };
    // SAFETY: invariant 2, with the reference just taken.
    let buf =
        unsafe { SendBuf::from_raw(bytes.as_ptr(), bytes.len(), owner.cast(), release_reference) };
    Ok(buf)
}

unsafe fn release_reference_anywhere(owner: *mut ()) {
    // SAFETY: the loan took this reference. An interpreter that has ended frees nothing any more.
    Python::try_attach(|_| unsafe { ffi::Py_DECREF(owner.cast()) });
}

/// As [`take_over`], for an operation that the engine may drop in a thread that is not attached.
pub fn take_over_anywhere(object: Borrowed<'_, '_, PyAny>) -> PyResult<SendBuf> {
    let Ok(exact) = object.cast_exact::<PyBytes>() else {
        return take_over(object);
    };
    let (bytes, owner) = (exact.as_bytes(), object.as_ptr());
    // SAFETY: alive; the new reference belongs to the buffer.
    unsafe { ffi::Py_INCREF(owner) };
    let release = release_reference_anywhere;
    // SAFETY: invariant 2, with the reference just taken.
    Ok(unsafe { SendBuf::from_raw(bytes.as_ptr(), bytes.len(), owner.cast(), release) })
}

/// A `bytes` object that operations fill, part after part.
pub struct Room(Filling);

impl Room {
    pub fn new(py: Python<'_>, capacity: usize) -> PyResult<Self> {
        Filling::new(py, capacity).map(Self)
    }

    /// Number of bytes that are filled.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Number of bytes that are not.
    pub fn left(&self) -> usize {
        self.0.capacity - self.0.len
    }

    /// Grows by at least `more` bytes.
    pub fn grow(&mut self, py: Python<'_>, more: usize) -> PyResult<()> {
        self.check_unlent()?;
        self.0.resize(py, self.0.capacity.saturating_add(more))
    }

    /// Lends the next `len` bytes at most.
    pub fn lend(&mut self, len: usize) -> RecvBuf {
        let object = self.0.object;
        let room = self.0.room();
        let len = len.min(room.len());
        let start = room.as_mut_ptr().cast::<u8>();
        // SAFETY: alive, and a thread that lends is attached, as the one that made the room.
        unsafe { ffi::Py_INCREF(object) };
        // SAFETY: invariant 4, with the reference just taken.
        unsafe { RecvBuf::from_raw(start, len, object.cast(), release_reference_anywhere) }
    }

    /// Takes a loan back with what was received in it.
    pub fn take_back(&mut self, loan: RecvBuf) {
        let received = loan.filled();
        // Another room's bytes, or a loan that overlaps one taken back, do not count.
        if std::ptr::eq(received.as_ptr(), self.0.room().as_ptr().cast()) {
            self.0.len += received.len().min(self.left());
        }
    }

    /// The filled bytes.
    pub fn finish(self, py: Python<'_>) -> PyResult<Obj> {
        self.check_unlent()?;
        self.0.finish(py)
    }

    fn check_unlent(&self) -> PyResult<()> {
        // Of no bytes there is one object for all, and nothing to lend.
        // SAFETY: alive.
        if self.0.capacity == 0 || unsafe { ffi::Py_REFCNT(self.0.object) } == 1 {
            return Ok(());
        }
        Err(pyo3::exceptions::PySystemError::raise("memory that an operation has is not free yet"))
    }
}

/// A view of an object's memory.
struct View(ffi::Py_buffer);

impl View {
    fn open(object: Borrowed<'_, '_, PyAny>, flags: i32) -> PyResult<Self> {
        let mut view = MaybeUninit::<ffi::Py_buffer>::zeroed();
        // SAFETY: the object is alive; the call fills the view or sets an exception.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) } < 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: filled by the successful call.
        Ok(Self(unsafe { view.assume_init() }))
    }

    fn len(&self) -> usize {
        self.0.len as usize
    }

    fn bytes(&self) -> &[u8] {
        if self.0.len == 0 {
            return &[];
        }
        // SAFETY: invariant 3: `PyBUF_SIMPLE` views are contiguous, `len` bytes.
        unsafe { std::slice::from_raw_parts(self.0.buf.cast(), self.len()) }
    }

    fn memory(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.0.len == 0 {
            return &mut [];
        }
        // SAFETY: invariant 3: opened writable, contiguous, `len` bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf.cast(), self.len()) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the view was filled by `PyObject_GetBuffer` and is released once.
        unsafe { ffi::PyBuffer_Release(&raw mut self.0) }
    }
}

/// Passes the bytes of a bytes-like object to `body`, which must not call into Python.
pub fn with_bytes<R>(
    object: Borrowed<'_, '_, PyAny>,
    body: impl FnOnce(&[u8]) -> R,
) -> PyResult<R> {
    if let Ok(exact) = object.cast_exact::<PyBytes>() {
        return Ok(body(exact.as_bytes()));
    }
    let view = View::open(object, ffi::PyBUF_SIMPLE)?;
    Ok(body(view.bytes()))
}

/// Fills the start of a writable object from `bytes`; returns how many fit.
pub fn fill(object: Borrowed<'_, '_, PyAny>, bytes: &[u8]) -> PyResult<usize> {
    let mut view = View::open(object, ffi::PyBUF_WRITABLE)?;
    Ok(copy_into(view.memory(), bytes))
}

/// Copies `bytes` to the start of `memory`; returns how many fit.
pub fn copy_into(memory: &mut [MaybeUninit<u8>], bytes: &[u8]) -> usize {
    for (place, byte) in memory.iter_mut().zip(bytes) {
        place.write(*byte);
    }
    bytes.len().min(memory.len())
}

/// Lets `body` write into an object. It may run Python code: the exporter keeps the memory in place
/// until the view is released, as for methods of the standard library that fill a buffer.
pub fn with_memory<R>(
    object: Borrowed<'_, '_, PyAny>,
    body: impl FnOnce(&mut [MaybeUninit<u8>]) -> R,
) -> PyResult<R> {
    let mut view = View::open(object, ffi::PyBUF_WRITABLE)?;
    Ok(body(view.memory()))
}

/// Receives directly into a writable object; `Ok(Err(_))` is the socket's error. An empty object
/// gives `InvalidInput`, which recv(2) never returns.
pub fn receive_into(object: Borrowed<'_, '_, PyAny>, fd: RawFd) -> PyResult<io::Result<usize>> {
    let mut view = View::open(object, ffi::PyBUF_WRITABLE)?;
    if view.len() == 0 {
        return Ok(Err(io::ErrorKind::InvalidInput.into()));
    }
    Ok(socket::recv(fd, view.memory(), libc::MSG_DONTWAIT))
}

/// Whether [`receive_into`] can receive into an object.
pub fn is_writable(object: Borrowed<'_, '_, PyAny>) -> bool {
    View::open(object, ffi::PyBUF_WRITABLE).is_ok_and(|view| view.len() > 0)
}

/// Sends the bytes of a bytes-like object from `skip` on; the second value is its total length.
pub fn send_from(
    object: Borrowed<'_, '_, PyAny>,
    skip: usize,
    fd: RawFd,
) -> PyResult<(io::Result<usize>, usize)> {
    let view = View::open(object, ffi::PyBUF_SIMPLE)?;
    let rest = view.bytes().get(skip..).unwrap_or_default();
    Ok((socket::send(fd, rest, libc::MSG_DONTWAIT), view.len()))
}

/// Whether an object is of a type that asyncio accepts as bytes.
pub fn is_bytes_like(object: Borrowed<'_, '_, PyAny>) -> bool {
    object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>()
        || object.is_instance_of::<PyMemoryView>()
}

/// Length of a `bytes` object.
#[inline]
pub fn bytes_len(bytes: &Obj) -> usize {
    // SAFETY: the callers made it a `bytes` object, and it is alive.
    unsafe { ffi::PyBytes_Size(bytes.as_ptr()) }.max(0) as usize
}

/// The content of a `bytes` object from `start` on.
pub fn bytes_from<'a>(py: Python<'a>, bytes: &'a Obj, start: usize) -> &'a [u8] {
    let content = bytes.bind(py).cast::<PyBytes>().map_or(&[][..], |bytes| bytes.as_bytes());
    content.get(start..).unwrap_or_default()
}

/// Passes the content of a `bytearray` to `body`, which must not call into Python.
pub fn array_with<R>(array: &Bound<'_, PyByteArray>, body: impl FnOnce(&[u8]) -> R) -> R {
    // SAFETY: invariant 6.
    locked(array.as_any(), || body(unsafe { array.as_bytes() }))
}

/// Appends bytes to a `bytearray`.
pub fn array_append(array: &Bound<'_, PyByteArray>, bytes: &Obj) -> PyResult<()> {
    // SAFETY: both are alive.
    let same = unsafe { ffi::PySequence_InPlaceConcat(array.as_ptr(), bytes.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Obj::from_owned_ptr(array.py(), same) }.map(drop)
}

/// Takes the first `count` bytes out of a `bytearray`.
pub fn array_take(array: &Bound<'_, PyByteArray>, count: usize) -> PyResult<Obj> {
    let py = array.py();
    let taken = array_with(array, |bytes| copy_bytes(py, &bytes[..count.min(bytes.len())]))?;
    let count = bytes_len(&taken).cast_signed();
    // SAFETY: alive.
    if unsafe { ffi::PySequence_DelSlice(array.as_ptr(), 0, count) } < 0 {
        return Err(PyErr::fetch(py));
    }
    Ok(taken)
}

/// The error for an object that is not bytes-like, with asyncio's message.
fn not_bytes_like(object: Borrowed<'_, '_, PyAny>) -> PyErr {
    let name = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::raise(format!("data argument must be a bytes-like object, not '{name}'"))
}
