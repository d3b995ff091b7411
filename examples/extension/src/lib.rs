//! `ringloop_echo`: a TCP client in Rust that Python awaits, on the loop's own thread and ring.

#![allow(missing_docs, reason = "Python sees the docstrings")]

use std::io;
use std::net::Shutdown;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use ringloop_pyo3::net::TcpStream;
use ringloop_pyo3::{future_into_py, into_future};

/// A connection to an echo server. It belongs to the thread of its loop.
#[pyclass(unsendable)]
struct Client {
    stream: Rc<TcpStream>,
}

#[pymethods]
impl Client {
    /// Send `data`, and return as many bytes of what comes back. One call at a time.
    fn echo<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> PyResult<Bound<'py, PyAny>> {
        let stream = Rc::clone(&self.stream);
        future_into_py(py, async move { Ok(echo(&stream, data).await?) })
    }

    /// End the connection, and what waits for it.
    fn close(&self) -> io::Result<()> {
        self.stream.as_std().shutdown(Shutdown::Both)
    }

    /// Send each of `messages`; await `handle(reply)`, a coroutine, before the next.
    fn converse<'py>(
        &self,
        py: Python<'py>,
        messages: Vec<PyBackedBytes>,
        handle: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stream = Rc::clone(&self.stream);
        future_into_py(py, async move {
            for message in messages {
                let reply = echo(&stream, message).await?;
                let handled = Python::attach(|py| into_future(handle.bind(py).call1((reply,))?))?;
                handled.await?;
            }
            Ok(())
        })
    }

    /// Do the same as `echo` `times` times, without a step of Python between; return the last reply.
    fn echo_often<'py>(
        &self,
        py: Python<'py>,
        data: PyBackedBytes,
        times: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stream = Rc::clone(&self.stream);
        future_into_py(py, async move {
            let data: Rc<[u8]> = Rc::from(&*data);
            let mut reply = Vec::new();
            for _ in 0..times {
                reply = echo(&stream, Rc::clone(&data)).await?;
            }
            Ok(reply)
        })
    }
}

async fn echo(stream: &TcpStream, data: impl AsRef<[u8]> + 'static) -> io::Result<Vec<u8>> {
    let len = data.as_ref().len();
    stream.write_all(data).await?;
    let mut reply = Vec::new();
    while reply.len() < len {
        let (count, bytes) = stream.read(Vec::with_capacity(len - reply.len())).await;
        if count? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if reply.is_empty() {
            reply = bytes;
        } else {
            reply.extend_from_slice(&bytes);
        }
    }
    Ok(reply)
}

/// Connect to an echo server at `address`, "host:port".
#[pyfunction]
fn connect(py: Python<'_>, address: String) -> PyResult<Bound<'_, PyAny>> {
    future_into_py(py, async move {
        let stream = TcpStream::connect(address).await?;
        stream.as_std().set_nodelay(true)?;
        Ok(Client { stream: Rc::new(stream) })
    })
}

#[pymodule(gil_used = false)]
mod ringloop_echo {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{Client, connect};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        ringloop_pyo3::initialise(module.py())
    }
}
