//! End of an endpoint: what is specific to datagrams in [`base`]'s lifecycle.
//!
//! Called by: every part of the endpoint.

use pyo3::prelude::*;
use ringloop::embed::Key;

use super::{Datagram, Datagram_, read, write};
use crate::error;
use crate::transport::base::{self, Endpoint, fatal_error};
use crate::transport::socket::{self, LoopSocket, SocketTransport};

impl Endpoint for Datagram {
    socket::socket_endpoint!();

    fn lost(this: Datagram_<'_, '_>) -> PyResult<()> {
        this.write.discard();
        socket::close_if_lost(this)
    }

    fn close_unclosed(this: Datagram_<'_, '_>) -> PyResult<()> {
        socket::close_unclosed(this)
    }
}

impl SocketTransport for Datagram {
    fn socket(&self) -> &LoopSocket {
        &self.socket
    }

    fn operations(&self) -> [Option<Key>; 2] {
        [self.read.armed(), self.write.armed()].map(|armed| armed.get().key())
    }

    fn is_idle(&self) -> bool {
        self.read.is_paused() && self.write.is_empty()
    }

    fn start_reading(this: Datagram_<'_, '_>) -> PyResult<()> {
        read::start(this)
    }

    fn stop_reading(this: Datagram_<'_, '_>) -> PyResult<()> {
        read::stop(this)
    }

    fn discard(this: Datagram_<'_, '_>) -> PyResult<()> {
        // asyncio has sent it by now.
        let sent = write::send_gathered(this);
        this.write.discard();
        sent.and(socket::disarm(this, this.write.armed()))
    }

    fn send_gathered(this: Datagram_<'_, '_>) -> PyResult<()> {
        write::send_gathered(this)
    }

    fn before_close(this: Datagram_<'_, '_>) {
        read::end_gro(this);
    }
}

/// A failure in the loop's own work for an endpoint, such as an allocation, ends it.
pub(super) fn or_end(this: Datagram_<'_, '_>, done: PyResult<()>) -> PyResult<()> {
    base::or_end(this, done, "Fatal error on datagram transport")
}

/// The descriptor cannot be polled: for example, it was closed under the transport.
pub(super) fn poll_failed(this: Datagram_<'_, '_>, errno: i32) -> PyResult<()> {
    read_failed(this, error::from_errno(errno))
}

/// Nothing can be received any more.
pub(super) fn read_failed(this: Datagram_<'_, '_>, error: PyErr) -> PyResult<()> {
    fatal_error(this, error, "Fatal read error on datagram transport")
}

/// A protocol's exception does not end a datagram endpoint: as in asyncio, where it leaves the
/// reader callback, it goes to the exception handler.
pub(super) fn report_callback(
    this: Datagram_<'_, '_>,
    told: PyResult<()>,
    callback: &str,
) -> PyResult<()> {
    base::report(this, told, || {
        let name = this.object().get_type().name()?;
        Ok(format!("Exception in callback {name}.{callback}()"))
    })
}
