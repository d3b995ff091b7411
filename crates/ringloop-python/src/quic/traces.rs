//! Logs of connections for Python: in memory, one per connection, in the crate's format (qlog's
//! JSON-SEQ).

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringloop_quic::qlog::{Target, Trace};

/// Contents of one log.
type Buffer = Arc<Mutex<Vec<u8>>>;

/// By the client's original destination id, and whether the client writes it.
type Buffers = HashMap<(String, bool), Buffer>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned buffer is still consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the logs of connections until they are taken; their number and length are not limited.
#[pyclass(frozen, module = "ringloop._native.quic")]
pub struct Traces {
    pub target: Arc<Kept>,
}

#[derive(Default)]
pub struct Kept(Mutex<Buffers>);

impl Target for Kept {
    fn open(&self, trace: &Trace) -> Option<Box<dyn Write + Send>> {
        let is_client = trace.vantage_point.name() == "client";
        let buffer = Buffer::default();
        locked(&self.0).insert((trace.original_id.clone(), is_client), Arc::clone(&buffer));
        Some(Box::new(Written(buffer)))
    }
}

struct Written(Buffer);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        locked(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[pymethods]
impl Traces {
    #[new]
    fn new() -> Self {
        Self { target: Arc::default() }
    }

    /// The log so far of the connection with this original destination id; empty if there is none.
    fn read<'py>(
        &self,
        py: Python<'py>,
        original_id: &[u8],
        is_client: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let key = (hex(original_id), is_client);
        let buffer = locked(&self.target.0).get(&key).cloned();
        let bytes = buffer.map(|buffer| locked(&buffer).clone());
        ffi::new_bytes(py, &bytes.unwrap_or_default())
    }

    /// Drop that log.
    fn forget(&self, original_id: &[u8], is_client: bool) {
        let forgotten = locked(&self.target.0).remove(&(hex(original_id), is_client));
        drop(forgotten);
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _always_ok = write!(text, "{byte:02x}");
        text
    })
}
