//! The table by which other extension modules use the loop: `ringloop-abi` on the side of the wheel.
//!
//! Owns: the functions of the table, the futures and wakers that cross it. Called by:
//! `futures/exported.rs`, and code of other extensions. The numbers are those of the contract in
//! `ringloop-abi`; no function unwinds into its caller (contract 7).
//!
//! Invariants:
//! 1. A foreign future is polled and dropped by the thread that it came in on, which runs the loop: the
//!    types that hold one are not `Send`, and a loop never drops another thread's futures. Dropped once.
//! 2. A future that is handed out is boxed: it does not move, and what `drop` gets was boxed here.
//! 3. A waker is a `Waker` of ours behind its pointer: lent for a call, or boxed by `owned`.
//! 4. Foreign memory is in one buffer of an operation, which releases it when it is dropped.
//! 5. A connection's handle is one count of an `Rc` of this thread.

use ringloop::embed::sys::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ffi::{CStr, c_void};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::Local;
use ringloop::net::{Interest, Readiness, TcpStream};
use ringloop::time::sleep;
use ringloop_abi as abi;

use super::method::{panic_message, panic_to_error};
use super::object::Obj;

/// What the table needs of the event loop.
pub trait Exports: 'static {
    /// Starts a future on the running loop; returns its awaitable.
    fn future_into_py(py: Python<'_>, future: ForeignCall) -> PyResult<Obj>;

    /// Begins to run an awaitable on the running loop.
    fn into_future(
        awaitable: &Bound<'_, PyAny>,
    ) -> PyResult<impl Future<Output = PyResult<Obj>> + 'static>;
}

/// A capsule with the table.
pub fn capsule<E: Exports>(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
    const { assert!(size_of::<abi::Table>() <= u32::MAX as usize) };
    let table = NonNull::from(Shared::<E>::TABLE).cast::<c_void>();
    // SAFETY: a pointer to a static, which is what the name stands for.
    unsafe { PyCapsule::new_with_pointer(py, table, abi::CAPSULE) }
}

struct Shared<E>(std::marker::PhantomData<E>);

impl<E: Exports> Shared<E> {
    const TABLE: &'static abi::Table = &abi::Table {
        head: abi::Head {
            version: abi::VERSION,
            size: size_of::<abi::Table>() as u32,
            release: RELEASE.as_ptr(),
        },
        waker_clone,
        waker_wake,
        waker_drop,
        waker_of,
        future_into_py: future_into_py::<E>,
        into_future: into_future::<E>,
        sleep: sleep_for,
        readiness,
        tcp_connect,
        tcp_from_fd,
        tcp_fd,
        tcp_read,
        tcp_write_all,
        tcp_drop,
    };
}

const RELEASE: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version has no nulls"),
    };

/// A future of another extension, which yields a Python object.
pub struct ForeignCall(abi::Future);

impl Future for ForeignCall {
    type Output = PyResult<Obj>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PyResult<Obj>> {
        let mut output = abi::Output::EMPTY;
        let waker = ptr::from_ref(cx.waker()).cast::<abi::HostWaker>();
        // SAFETY: invariants 1 and 3; contract 2.
        let polled = unsafe { (self.0.poll)(self.0.data, waker, &raw mut output) };
        if polled == abi::PENDING {
            return Poll::Pending;
        }
        // SAFETY: contracts 5 and 6: an owned reference, or null with an exception.
        Poll::Ready(Python::attach(|py| unsafe { Obj::from_owned_ptr(py, output.object.cast()) }))
    }
}

impl Drop for ForeignCall {
    fn drop(&mut self) {
        // SAFETY: invariant 1; contract 2.
        unsafe { (self.0.drop)(self.0.data) }
    }
}

unsafe extern "C" fn future_into_py<E: Exports>(future: abi::Future) -> *mut abi::PyObject {
    let call = ForeignCall(future);
    guarded(|py| E::future_into_py(py, call))
}

unsafe extern "C" fn into_future<E: Exports>(awaitable: *mut abi::PyObject) -> abi::Future {
    let mut future = NONE;
    let begin = |py: Python<'_>| {
        // SAFETY: contract 6: the caller's reference.
        let awaitable = unsafe { Borrowed::from_ptr_or_err(py, awaitable.cast()) }?;
        future = hand_out(E::into_future(&awaitable)?);
        Ok(py.None().into_bound(py).into())
    };
    drop_object(guarded(begin));
    future
}

/// Calls `body`; the object, or null with the exception set, also for a panic.
fn guarded(body: impl FnOnce(Python<'_>) -> PyResult<Obj>) -> *mut abi::PyObject {
    Python::attach(|py| {
        let made = catch_unwind(AssertUnwindSafe(|| body(py)))
            .unwrap_or_else(|payload| Err(panic_to_error(&*payload)));
        match made {
            Ok(object) => object.into_ptr().cast(),
            Err(error) => {
                error.restore(py);
                ptr::null_mut()
            }
        }
    })
}

fn drop_object(object: *mut abi::PyObject) {
    // SAFETY: attached (contract 6); null, or an owned reference.
    unsafe { ffi::Py_XDECREF(object.cast()) }
}

// --- futures that are handed out --------------------------------------------------------------------------

/// What a function returns that could not begin.
const NONE: abi::Future =
    abi::Future { data: ptr::null_mut(), poll: never_polled, drop: never_dropped };

unsafe extern "C" fn never_polled(
    _: *mut c_void,
    _: *const abi::HostWaker,
    _: *mut abi::Output,
) -> i32 {
    abi::PENDING
}

unsafe extern "C" fn never_dropped(_: *mut c_void) {}

/// What a future yields, as an output.
trait Yields {
    fn fill(self, output: &mut abi::Output);
}

fn hand_out<F: Future<Output: Yields> + 'static>(future: F) -> abi::Future {
    let data = Box::into_raw(Box::new(future)).cast();
    abi::Future { data, poll: poll_handed_out::<F>, drop: drop_handed_out::<F> }
}

/// As [`hand_out`], for operations, which need a loop that runs here.
fn begin<F: Future<Output: Yields> + 'static>(future: F) -> abi::Future {
    if Local::current_id().is_some() { hand_out(future) } else { NONE }
}

unsafe extern "C" fn poll_handed_out<F: Future<Output: Yields>>(
    data: *mut c_void,
    waker: *const abi::HostWaker,
    output: *mut abi::Output,
) -> i32 {
    // SAFETY: invariant 2; contract 2: no other reference.
    let future = unsafe { &mut *data.cast::<F>() };
    // SAFETY: invariant 2: it is boxed until it is dropped.
    let future = unsafe { Pin::new_unchecked(future) };
    // SAFETY: invariant 3.
    let waker = unsafe { &*waker.cast::<Waker>() };
    // SAFETY: contract 5: the caller's; no other reference is used during the call.
    let output = unsafe { &mut *output };
    let poll = || future.poll(&mut Context::from_waker(waker)).map(|value| value.fill(output));
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(Poll::Pending) => abi::PENDING,
        Ok(Poll::Ready(())) => abi::READY,
        Err(payload) => {
            fill_text(output, &format!("ringloop panicked: {}", panic_message(&*payload)));
            abi::READY
        }
    }
}

unsafe extern "C" fn drop_handed_out<F>(data: *mut c_void) {
    // SAFETY: invariant 2; contract 2: once.
    let future = unsafe { Box::from_raw(data.cast::<F>()) };
    contained(|| drop(future));
}

/// A panic in a destructor has nowhere to go: the hook has shown it.
fn contained(body: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(body)));
}

fn fill_text(output: &mut abi::Output, text: &str) {
    let len = text.len().min(abi::TEXT_BYTES);
    output.text[..len].copy_from_slice(&text.as_bytes()[..len]);
    output.text_len = len as u32;
    output.error = abi::OTHER_ERROR;
}

impl Yields for () {
    fn fill(self, _: &mut abi::Output) {}
}

impl Yields for io::Result<usize> {
    fn fill(self, output: &mut abi::Output) {
        match self {
            Ok(count) => output.count = count,
            Err(error) => match error.raw_os_error() {
                Some(errno) => output.error = errno,
                None => fill_text(output, &error.to_string()),
            },
        }
    }
}

impl Yields for io::Result<TcpStream> {
    fn fill(self, output: &mut abi::Output) {
        let handle = self.map(|stream| Rc::into_raw(Rc::new(stream)));
        handle.map(|handle| output.object = handle.cast_mut().cast()).map(|()| 0).fill(output);
    }
}

impl Yields for PyResult<Obj> {
    fn fill(self, output: &mut abi::Output) {
        output.object = guarded(|_| self);
    }
}

// --- wakers ------------------------------------------------------------------------------------------------

fn owned(waker: Waker) -> *const abi::HostWaker {
    Box::into_raw(Box::new(waker)).cast()
}

unsafe extern "C" fn waker_clone(waker: *const abi::HostWaker) -> *const abi::HostWaker {
    // SAFETY: invariant 3.
    owned(unsafe { &*waker.cast::<Waker>() }.clone())
}

unsafe extern "C" fn waker_wake(waker: *const abi::HostWaker) {
    // SAFETY: invariant 3.
    let waker = unsafe { &*waker.cast::<Waker>() };
    contained(|| waker.wake_by_ref());
}

unsafe extern "C" fn waker_drop(waker: *const abi::HostWaker) {
    // SAFETY: invariant 3: boxed by `owned`, and dropped once.
    let waker = unsafe { Box::from_raw(waker.cast::<Waker>().cast_mut()) };
    contained(|| drop(waker));
}

/// A waker of another extension.
struct Adopted(abi::ForeignWaker);

// SAFETY: contract 3: it is used on any thread.
unsafe impl Send for Adopted {}
// SAFETY: the same.
unsafe impl Sync for Adopted {}

impl Wake for Adopted {
    fn wake(self: Arc<Self>) {
        // SAFETY: contract 3; the `Arc` keeps its state.
        unsafe { (self.0.wake)(self.0.data) }
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        // SAFETY: contract 3; once.
        unsafe { (self.0.drop)(self.0.data) }
    }
}

unsafe extern "C" fn waker_of(waker: abi::ForeignWaker) -> *const abi::HostWaker {
    owned(Waker::from(Arc::new(Adopted(waker))))
}

// --- operations --------------------------------------------------------------------------------------------

unsafe extern "C" fn sleep_for(delay_ns: u64) -> abi::Future {
    begin(sleep(Duration::from_nanos(delay_ns)))
}

/// Yields each change of a descriptor's readiness.
struct Changes(Readiness<'static>);

impl Future for Changes {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let interest = match ready!(self.0.poll_next(cx)) {
            Ok(interest) => interest,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let bit = |direction, bit: u32| if interest.contains(direction) { bit as usize } else { 0 };
        let bits = bit(Interest::READ, abi::READABLE) | bit(Interest::WRITE, abi::WRITABLE);
        Poll::Ready(Ok(bits))
    }
}

unsafe extern "C" fn readiness(fd: i32, directions: u32) -> abi::Future {
    let mut interest = Interest::NONE;
    for (bit, direction) in [(abi::READABLE, Interest::READ), (abi::WRITABLE, Interest::WRITE)] {
        if directions & bit != 0 {
            interest |= direction;
        }
    }
    // SAFETY: the table's contract: it stays open until the future is dropped.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    begin(Changes(Readiness::new(fd, interest)))
}

unsafe extern "C" fn tcp_connect(address: *const u8, len: usize) -> abi::Future {
    // SAFETY: the caller's bytes, for the call.
    let address = unsafe { std::slice::from_raw_parts(address, len) };
    let address = String::from_utf8_lossy(address).into_owned();
    begin(async move { TcpStream::connect(address).await })
}

unsafe extern "C" fn tcp_from_fd(fd: i32) -> *mut abi::Tcp {
    // SAFETY: the caller gives it up.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Rc::into_raw(Rc::new(TcpStream::from(fd))).cast_mut().cast()
}

unsafe extern "C" fn tcp_fd(tcp: *const abi::Tcp) -> i32 {
    // SAFETY: invariant 5.
    unsafe { &*tcp.cast::<TcpStream>() }.as_raw_fd()
}

unsafe extern "C" fn tcp_read(tcp: *const abi::Tcp, into: abi::Memory) -> abi::Future {
    // SAFETY: contract 4 and invariant 4.
    let buf = unsafe { RecvBuf::from_raw(into.ptr, into.len, into.owner.cast(), release) };
    let stream = counted(tcp);
    begin(async move {
        let (result, buf) = stream.read_buf(buf).await;
        drop(buf);
        result
    })
}

unsafe extern "C" fn tcp_write_all(tcp: *const abi::Tcp, from: abi::Memory) -> abi::Future {
    // SAFETY: contract 4 and invariant 4.
    let buf = unsafe { SendBuf::from_raw(from.ptr, from.len, from.owner.cast(), release) };
    let stream = counted(tcp);
    begin(async move {
        let (result, buf) = stream.write_all(buf).await;
        drop(buf);
        result.map(|()| 0)
    })
}

unsafe extern "C" fn tcp_drop(tcp: *mut abi::Tcp) {
    // SAFETY: invariant 5: the handle's own count.
    let stream = unsafe { Rc::from_raw(tcp.cast_const().cast::<TcpStream>()) };
    contained(|| drop(stream));
}

/// Another count of a handle's connection.
fn counted(tcp: *const abi::Tcp) -> Rc<TcpStream> {
    let stream = tcp.cast::<TcpStream>();
    // SAFETY: invariant 5.
    unsafe { Rc::increment_strong_count(stream) };
    // SAFETY: the count made above.
    unsafe { Rc::from_raw(stream) }
}

/// Gives memory back to its extension.
unsafe fn release(owner: *mut ()) {
    let owner = owner.cast::<abi::Owner>();
    // SAFETY: contract 4: the owner is there until it is released.
    let give_back = unsafe { (*owner).release };
    // SAFETY: the same; once, by invariant 4.
    unsafe { give_back(owner) }
}
