//! `tokio_echo`: the client of `examples/extension`, by pyo3-async-runtimes with tokio.

use std::io;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3_async_runtimes::tokio::future_into_py;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

#[pyclass]
struct Client {
    stream: Arc<Mutex<TcpStream>>,
}

#[pymethods]
impl Client {
    fn echo<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> PyResult<Bound<'py, PyAny>> {
        let stream = Arc::clone(&self.stream);
        future_into_py(py, async move { Ok(echo(&mut *stream.lock().await, &data).await?) })
    }

    fn echo_often<'py>(
        &self,
        py: Python<'py>,
        data: PyBackedBytes,
        times: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stream = Arc::clone(&self.stream);
        future_into_py(py, async move {
            let mut stream = stream.lock().await;
            let mut reply = Vec::new();
            for _ in 0..times {
                reply = echo(&mut stream, &data).await?;
            }
            Ok(reply)
        })
    }
}

async fn echo(stream: &mut TcpStream, data: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(data).await?;
    let mut reply = Vec::with_capacity(data.len());
    while reply.len() < data.len() {
        if stream.read_buf(&mut reply).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(reply)
}

#[pyfunction]
fn connect(py: Python<'_>, address: String) -> PyResult<Bound<'_, PyAny>> {
    future_into_py(py, async move {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: Arc::new(Mutex::new(stream)) })
    })
}

/// Have so many threads, instead of one a processor; before anything else.
#[pyfunction]
fn use_threads(count: usize) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(count).enable_all();
    pyo3_async_runtimes::tokio::init(builder);
}

#[pymodule(gil_used = false)]
mod tokio_echo {
    #[pymodule_export]
    use super::{Client, connect, use_threads};
}
