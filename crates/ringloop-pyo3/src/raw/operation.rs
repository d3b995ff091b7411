//! A future of ringloop's: an operation in its hands, or an awaitable that it runs.
//!
//! Invariants:
//! 1. The future is polled and dropped by the thread that has begun it: [`Operation`] is not `Send`.
//!    It is dropped once (contract 2).
//! 2. Its data is not null.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pyo3::prelude::*;
use ringloop_abi::{Future as RawFuture, OTHER_ERROR, Output, PENDING, TEXT_BYTES, Table};

use super::table::{load, loaded};
use super::waker::with_host;

/// A future of ringloop's.
pub struct Operation {
    table: &'static Table,
    raw: RawFuture,
}

impl Operation {
    /// What the table has begun; `None` if no loop of ringloop's runs here.
    pub(super) fn of(table: &'static Table, raw: RawFuture) -> Option<Self> {
        (!raw.data.is_null()).then_some(Self { table, raw })
    }

    /// A timer.
    pub fn sleep(delay: Duration) -> Option<Self> {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let table = loaded()?;
        // SAFETY: no condition.
        Self::of(table, unsafe { (table.sleep)(delay_ns) })
    }

    /// Changes of a descriptor's readiness; it may be polled again. The caller keeps the descriptor until
    /// this is dropped: otherwise another one of its number may be watched.
    pub fn readiness(fd: &impl AsFd, directions: u32) -> Option<Self> {
        let table = loaded()?;
        // SAFETY: it is open, and no memory depends on it.
        Self::of(table, unsafe { (table.readiness)(fd.as_fd().as_raw_fd(), directions) })
    }

    /// A connect to `host:port`.
    pub fn connect(address: &str) -> Option<Self> {
        let table = loaded()?;
        // SAFETY: the text is there during the call.
        Self::of(table, unsafe { (table.tcp_connect)(address.as_ptr(), address.len()) })
    }

    /// An awaitable, which begins to run.
    pub fn of_awaitable(awaitable: &Bound<'_, PyAny>) -> PyResult<Self> {
        let table = load(awaitable.py())?;
        // SAFETY: contract 6: attached, with a reference that is held.
        let raw = unsafe { (table.into_future)(awaitable.as_ptr().cast()) };
        Self::of(table, raw).ok_or_else(|| PyErr::fetch(awaitable.py()))
    }

    /// Polls it; `None` is pending.
    fn poll_raw(&mut self, cx: &mut Context<'_>) -> Option<Output> {
        let mut output = Output::EMPTY;
        let (raw, to) = (self.raw, &raw mut output);
        // SAFETY: invariants 1 and 2; contracts 2 and 3.
        let poll = |waker| unsafe { (raw.poll)(raw.data, waker, to) };
        let polled = with_host(self.table, cx.waker(), poll);
        (polled != PENDING).then_some(output)
    }

    /// Polls for a count.
    pub fn poll_count(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.poll_raw(cx) {
            None => Poll::Pending,
            Some(output) => Poll::Ready(check(&output).map(|()| output.count)),
        }
    }

    /// Polls for a handle, which the caller owns.
    pub(super) fn poll_handle<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<*mut T>> {
        match self.poll_raw(cx) {
            None => Poll::Pending,
            Some(output) => Poll::Ready(check(&output).map(|()| output.object.cast())),
        }
    }

    /// Polls for a Python object.
    pub fn poll_object(&mut self, cx: &mut Context<'_>) -> Poll<PyResult<Py<PyAny>>> {
        let Some(output) = self.poll_raw(cx) else {
            return Poll::Pending;
        };
        Poll::Ready(Python::attach(|py| {
            check(&output)?;
            // SAFETY: contracts 5 and 6: an owned reference, or null with an exception.
            unsafe { Bound::from_owned_ptr_or_err(py, output.object.cast()) }.map(Bound::unbind)
        }))
    }
}

impl Future for Operation {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_count(cx)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { (self.raw.drop)(self.raw.data) }
    }
}

/// The output's error, if it is one.
fn check(output: &Output) -> io::Result<()> {
    match output.error {
        0 => Ok(()),
        OTHER_ERROR => {
            let len = (output.text_len as usize).min(TEXT_BYTES);
            Err(io::Error::other(String::from_utf8_lossy(&output.text[..len])))
        }
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The error of an operation that could not begin.
pub fn no_loop() -> io::Error {
    io::Error::other(
        "no loop of ringloop's runs this future: start it by ringloop_pyo3::future_into_py, in a thread \
         where such a loop runs",
    )
}
