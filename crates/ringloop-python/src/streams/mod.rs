//! Fast streams: `asyncio.StreamReader`, `StreamWriter` and `StreamReaderProtocol` with native state.
//!
//! Owns: three classes, true subclasses of asyncio's, each with a native core (`ffi/shell.rs`). Called by: user code,
//! `ringloop/_streams.py`, which has the functions that make them, and the transports of this extension, which pass
//! bytes to a reader without a Python call.
//!
//! | file       | contents                                                                   |
//! |------------|----------------------------------------------------------------------------|
//! | `reader`   | the state of a reader, and what feeds it                                   |
//! | `buffer`   | received bytes                                                             |
//! | `methods`  | the Python surface of a reader                                             |
//! | `reading`  | the coroutines of its methods                                              |
//! | `protocol` | the way from a transport to a reader                                       |
//! | `writer`   | the writer                                                                 |
//! | `inheritance` | making the classes, and calling asyncio's own methods                   |
//!
//! Byte path in: `stream::read`, or `tls::incoming` → [`protocol`] → [`buffer`] → what `read()` returns: the `bytes`
//! that the transport received into, where a read takes all of it.
//! Byte path out: `writer.write` → [`writer`] → `stream::write`, or `tls::outgoing`.
//!
//! Everything that runs rarely is inherited, so that it is each CPython version's own.

mod buffer;
mod inheritance;
mod methods;
mod protocol;
mod reader;
mod reading;
mod writer;

use pyo3::prelude::*;

use crate::ffi::{imported, intern};
use crate::transport;

/// Creates the types.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let abstract_class = imported!(py, PyAny, "collections.abc", "Coroutine")?;
    for class in [reading::create(py)?, writer::create_drained(py)?] {
        // `asyncio.create_task` accepts nothing else.
        abstract_class.call_method1(intern!(py, "register"), (&class,))?;
    }
    module.add("StreamReader", methods::create(py)?)?;
    module.add("StreamWriter", writer::create(py)?)?;
    module.add("StreamReaderProtocol", protocol::create(py)?)?;
    transport::reader::provide(&protocol::FUNCTIONS);
    Ok(())
}
