//! `ringloop_probe`: what the tests of `ringloop-pyo3` start, and the example does not need.

#![allow(missing_docs, reason = "Python sees the docstrings")]

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ringloop_pyo3::net::{AsyncFd, Ready, TcpStream};
use ringloop_pyo3::time::{sleep, timeout};
use ringloop_pyo3::{future_into_py, into_future};

const MOMENT: Duration = Duration::from_millis(1);

/// Values that are counted: futures, buffers.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Wakers that live longer than their futures.
static KEPT: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

struct Counted(Vec<u8>);

impl Counted {
    fn new(bytes: Vec<u8>) -> Self {
        LIVE.fetch_add(1, Ordering::SeqCst);
        Self(bytes)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A read after this shows that it was freed too early.
        self.0.fill(0xdd);
        LIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Calls a Python object when it is dropped, and panics if that raises.
struct CallOnDrop(Py<PyAny>);

impl Drop for CallOnDrop {
    fn drop(&mut self) {
        assert!(Python::attach(|py| self.0.call0(py)).is_ok(), "asked to");
    }
}

/// Futures and buffers that are alive.
#[pyfunction]
fn live() -> usize {
    LIVE.load(Ordering::SeqCst)
}

/// Wake what has started as "keep waker", from a thread that has no Python; returns how many.
#[pyfunction]
fn wake_kept(py: Python<'_>) -> usize {
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    let count = kept.len();
    let waking = thread::spawn(|| kept.into_iter().for_each(Waker::wake));
    py.detach(|| waking.join().map_or(0, |()| count))
}

/// Start a future; `kind` says what it does with `argument`.
#[pyfunction]
fn start<'py>(
    py: Python<'py>,
    kind: &str,
    argument: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let guard = Counted::new(Vec::new());
    let object = argument.clone().unbind();
    match kind {
        "ready" => future_into_py(py, async move {
            let _guard = guard;
            Ok(object)
        }),
        "raise" => future_into_py(py, async move {
            let _guard = guard;
            Python::attach(|py| Err::<(), _>(PyErr::from_value(object.into_bound(py))))
        }),
        "sleep" => {
            let delay = Duration::from_secs_f64(argument.extract()?);
            future_into_py(py, async move {
                let _guard = guard;
                sleep(delay).await;
                Ok(object)
            })
        }
        "await" => future_into_py(py, async move {
            let _guard = guard;
            let awaited = Python::attach(|py| into_future(object.bind(py).call0()?))?;
            awaited.await
        }),
        "call" => future_into_py(py, async move {
            // Not `Send`, and alive across the wait.
            let count = Rc::new(Cell::new(0));
            sleep(MOMENT).await;
            count.set(count.get() + 1);
            drop(guard);
            Python::attach(|py| object.call0(py))
        }),
        "panic" => future_into_py(py, async move {
            let _guard = guard;
            panic_now()
        }),
        "late panic" => future_into_py(py, async move {
            let _guard = guard;
            sleep(MOMENT).await;
            panic_now()
        }),
        "drop" => future_into_py(py, async move {
            let _guards = (guard, CallOnDrop(object));
            pending::<PyResult<()>>().await
        }),
        "thread" => future_into_py(py, async move {
            let _guard = guard;
            woken_by_a_thread(argument_of(&object)?).await;
            Ok(())
        }),
        "keep waker" => future_into_py(py, async move {
            let _guard = guard;
            poll_fn(|cx| {
                KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(cx.waker().clone());
                Poll::<PyResult<()>>::Pending
            })
            .await
        }),
        "joined" => future_into_py(py, async move {
            let _guard = guard;
            both(sleep(MOMENT), woken_by_a_thread(1)).await;
            Ok(())
        }),
        "timeout" => future_into_py(py, async move {
            let _guard = guard;
            Ok(timeout(MOMENT, pending::<()>()).await?)
        }),
        "write and drop" => {
            let address: String = argument.extract()?;
            future_into_py(py, write_and_drop(address, guard))
        }
        "read and drop" => {
            let address: String = argument.extract()?;
            future_into_py(py, read_and_drop(address, guard))
        }
        "datagram" => future_into_py(py, async move {
            let _guard = guard;
            Ok(datagram().await?)
        }),
        "accept" => future_into_py(py, async move {
            let _guard = guard;
            Ok(accept().await?)
        }),
        _ => Err(PyValueError::new_err("no such kind of future")),
    }
}

fn argument_of(object: &Py<PyAny>) -> PyResult<usize> {
    Python::attach(|py| object.extract(py))
}

fn panic_now() -> PyResult<()> {
    panic!("asked to")
}

/// Pending until another thread has woken it `times` times.
async fn woken_by_a_thread(times: usize) {
    for _ in 0..times {
        let mut thread = None;
        let woken = Arc::new(AtomicUsize::new(0));
        poll_fn(|cx| {
            if woken.load(Ordering::SeqCst) > 0 {
                return Poll::Ready(());
            }
            let (woken, waker) = (Arc::clone(&woken), cx.waker().clone());
            thread.get_or_insert_with(|| {
                thread::spawn(move || {
                    thread::sleep(MOMENT);
                    woken.store(1, Ordering::SeqCst);
                    waker.wake_by_ref();
                    // A waker that outlives its future.
                    waker
                })
            });
            Poll::Pending
        })
        .await;
        let waker = thread.take().and_then(|thread| thread.join().ok());
        drop(waker);
    }
}

/// Wakes a waker, as those of combinators do.
struct Relay(Waker, AtomicUsize);

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.wake_by_ref();
    }
}

/// Both, each polled with a waker of its own.
async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let mut done = (false, false);
    poll_fn(|cx| {
        let waker = || Waker::from(Arc::new(Relay(cx.waker().clone(), AtomicUsize::new(0))));
        done.0 = done.0 || one.as_mut().poll(&mut Context::from_waker(&waker())).is_ready();
        done.1 = done.1 || other.as_mut().poll(&mut Context::from_waker(&waker())).is_ready();
        if done == (true, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Sends more than a socket has room for, and drops the write in flight.
async fn write_and_drop(address: String, guard: Counted) -> PyResult<usize> {
    let stream = TcpStream::connect(address).await?;
    let bytes = Counted::new(vec![0x55; 16 << 20]);
    let pending = timeout(20 * MOMENT, stream.write_all(bytes)).await;
    drop(guard);
    match pending {
        Ok(done) => done.map(|()| 0).map_err(PyErr::from),
        // The stream is closed at the end, with whatever was sent.
        Err(_) => Ok(LIVE.load(Ordering::SeqCst)),
    }
}

/// Drops reads in flight while their bytes come, and looks at memory that is allocated next.
async fn read_and_drop(address: String, guard: Counted) -> PyResult<usize> {
    let _guard = guard;
    let stream = TcpStream::connect(address).await?;
    let mut dirty = 0;
    for _ in 0..200 {
        stream.write_all(b"more").await?;
        let dropped = {
            let mut read = pin!(stream.read(Vec::with_capacity(1 << 16)));
            poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_pending())).await
        };
        let canary = vec![0xaa_u8; 1 << 16];
        sleep(MOMENT / 4).await;
        if dropped && canary.iter().any(|byte| *byte != 0xaa) {
            dirty += 1;
        }
    }
    Ok(dirty)
}

/// Two UDP sockets of std's talk.
async fn datagram() -> io::Result<Vec<u8>> {
    let (one, other) = (bound()?, bound()?);
    let target = other.local_addr()?;
    let mut other = AsyncFd::new(other, Ready { readable: true, writable: false });
    let mut buf = [0; 100];
    for text in [&b"first"[..], b"second"] {
        one.send_to(text, target)?;
        let len = loop {
            match other.get_ref().recv(&mut buf) {
                Ok(len) => break len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = other.changed().await?;
                    assert!(ready.readable && !ready.writable, "{ready:?}");
                }
                Err(error) => return Err(error),
            }
        };
        assert_eq!(&buf[..len], text);
    }
    Ok(buf[..6].to_vec())
}

fn bound() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A listener of std's, whose connection is taken over.
async fn accept() -> io::Result<Vec<u8>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?.to_string();
    let mut listener = AsyncFd::new(listener, Ready { readable: true, writable: false });
    let client = TcpStream::connect(&address).await?;
    let served = loop {
        match listener.get_ref().accept() {
            Ok((served, _)) => break TcpStream::from_std(served)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                listener.changed().await?;
            }
            Err(error) => return Err(error),
        }
    };
    served.write_all(b"hello").await?;
    assert_eq!(client.as_std().peer_addr()?.to_string(), address);
    served.as_std().shutdown(std::net::Shutdown::Write)?;
    let (first, bytes) = client.read(Vec::with_capacity(100)).await;
    let (last, _) = client.read(Vec::with_capacity(100)).await;
    assert_eq!((first?, last?), (5, 0));
    Ok(bytes)
}

/// Send `request` to `address`, and return what comes back first.
#[pyfunction]
fn fetch(py: Python<'_>, address: String, request: Vec<u8>) -> PyResult<Bound<'_, PyAny>> {
    future_into_py(py, async move {
        let stream = TcpStream::connect(address).await?;
        stream.write_all(request).await?;
        let (count, reply) = stream.read(Vec::with_capacity(4096)).await;
        count?;
        Ok(reply)
    })
}

/// Poll an operation where no loop polls it; its error.
#[pyfunction]
fn poll_outside(address: &str) -> String {
    let mut connect = pin!(TcpStream::connect(address));
    match connect.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => error.to_string(),
        other => format!("{other:?}"),
    }
}

#[pymodule(gil_used = false)]
mod ringloop_probe {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{fetch, live, poll_outside, start, wake_kept};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        ringloop_pyo3::initialise(module.py())
    }
}
