//! End of a stream transport: what is specific to streams in [`super::base`]'s lifecycle.
//!
//! Called by: every part of the transport. The queues belong to `read` and `write`.

use pyo3::prelude::*;
use ringloop::embed::Key;

use super::base::Endpoint;
use super::socket::{self, LoopSocket, SocketTransport};
use super::{Stream, Stream_, create, read, sendfile, write};
use crate::ffi::{self, Argument, Obj, intern};

impl Endpoint for Stream {
    socket::socket_endpoint!();

    fn lost(this: Stream_<'_, '_>) -> PyResult<()> {
        let interrupted = sendfile::lost(this);
        let closed = socket::close_if_lost(this);
        interrupted.and(closed).and(detach(this))
    }

    fn close_unclosed(this: Stream_<'_, '_>) -> PyResult<()> {
        socket::close_unclosed(this).and(detach(this))
    }

    fn is_closing(this: Stream_<'_, '_>) -> PyResult<bool> {
        // If nothing is received any more, only a send detects that the peer has gone; and one in
        // flight may have.
        if this.read.is_paused() || this.read.is_over() || write::has_queued_behind(this) {
            write::send_gathered(this)?;
        }
        Ok(this.base.is_closing())
    }

    fn set_protocol(this: Stream_<'_, '_>, protocol: Argument<'_, '_>) -> PyResult<()> {
        // The old protocol handles what follows.
        if !this.base.is_elsewhere() {
            write::send_gathered(this)?;
        }
        create::set_protocol(this, &protocol)
    }

    fn last_context(this: Stream_<'_, '_>) -> PyResult<Obj> {
        let py = this.py();
        match this.base.context.get(py) {
            Some(own) if !cfg!(Py_3_15) && this.called_by_loop.get() => ffi::context_copy(py, &own),
            _ => create::context_for(this),
        }
    }
}

impl SocketTransport for Stream {
    fn socket(&self) -> &LoopSocket {
        &self.socket
    }

    fn operations(&self) -> [Option<Key>; 2] {
        [self.read.key(), self.write.key()]
    }

    /// It is paused, or the peer has sent EOF and the protocol keeps the connection open.
    fn is_idle(&self) -> bool {
        (self.read.is_over() || self.read.is_held_back()) && self.write.is_empty()
    }

    fn start_reading(this: Stream_<'_, '_>) -> PyResult<()> {
        read::start(this)
    }

    fn stop_reading(this: Stream_<'_, '_>) -> PyResult<()> {
        read::stop(this)
    }

    fn discard(this: Stream_<'_, '_>) -> PyResult<()> {
        write::discard(this)
    }

    fn send_gathered(this: Stream_<'_, '_>) -> PyResult<()> {
        write::send_gathered(this)
    }
}

fn detach(this: Stream_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    match this.server.take() {
        Some(server) => {
            create::call_server(server.bind(py), intern!(py, "_detach"), &this.object())
        }
        None => Ok(()),
    }
}
