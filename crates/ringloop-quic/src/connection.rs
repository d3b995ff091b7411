//! Connections, as futures.
//!
//! Owns: [`Connection`]. Called by: applications. The socket is left to the endpoint's task.

use crate::core::{self, Handle, Handshake};
use crate::error::ConnectionError;
use crate::session::Wait;
use crate::shared::{Inner, Session, Shared};
use crate::stats::Stats;
use crate::stream::{RecvStream, SendStream};
use crate::wakers::Waiting;
use crate::{Direction, StreamId};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A connection. Clones share it; it is closed with code 0 when the last of them and of its streams
/// is dropped.
#[derive(Clone)]
pub struct Connection {
    pub(crate) inner: Rc<Inner>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("remote", &self.remote_address()).finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn new(shared: &Rc<Shared>, handle: Handle) -> Self {
        let inner = Inner { shared: Rc::clone(shared), handle };
        Self { inner: Rc::new(inner) }
    }

    /// Opens a bidirectional stream once the peer allows one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let (id, is_early) = self.open(Direction::Bi).await?;
        Ok(self.both(id, is_early))
    }

    /// Opens a unidirectional stream once the peer allows one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        let (id, is_early) = self.open(Direction::Uni).await?;
        Ok(SendStream::new(&self.inner, id, is_early))
    }

    /// Opens a stream now; `None` if the peer allows none.
    pub fn try_open_bi(&self) -> Result<Option<(SendStream, RecvStream)>, ConnectionError> {
        Ok(self.try_open(Direction::Bi)?.map(|(id, is_early)| self.both(id, is_early)))
    }

    /// Opens a stream now; `None` if the peer allows none.
    pub fn try_open_uni(&self) -> Result<Option<SendStream>, ConnectionError> {
        let opened = self.try_open(Direction::Uni)?;
        Ok(opened.map(|(id, is_early)| SendStream::new(&self.inner, id, is_early)))
    }

    fn try_open(&self, direction: Direction) -> Result<Option<(StreamId, bool)>, ConnectionError> {
        // The peer learns of a stream by its first bytes, so there is nothing to send for a wait.
        let opened = |connection: &mut core::Connection<'_>, session: &mut Session| {
            open(connection, session, direction)
        };
        self.inner.with(opened)
    }

    async fn open(&self, direction: Direction) -> Result<(StreamId, bool), ConnectionError> {
        let opened = |connection: &mut core::Connection<'_>, session: &mut Session| {
            open(connection, session, direction).transpose()
        };
        self.inner.until(Wait::Open(direction), opened).await
    }

    fn both(&self, id: StreamId, is_early: bool) -> (SendStream, RecvStream) {
        (SendStream::new(&self.inner, id, is_early), RecvStream::new(&self.inner, id, is_early))
    }

    /// The next bidirectional stream that the peer opened.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let id = self.accept(Direction::Bi).await?;
        Ok(self.both(id, false))
    }

    /// The next unidirectional stream that the peer opened.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn accept_uni(&self) -> Result<RecvStream, ConnectionError> {
        let id = self.accept(Direction::Uni).await?;
        Ok(RecvStream::new(&self.inner, id, false))
    }

    async fn accept(&self, direction: Direction) -> Result<StreamId, ConnectionError> {
        let accepted = |connection: &mut core::Connection<'_>, session: &mut Session| {
            let accepted = connection.accept(direction).map(Ok);
            accepted.or_else(|| session.error().cloned().map(Err))
        };
        self.inner.until(Wait::Accept(direction), accepted).await
    }

    /// Closes the connection at once with the application's code and reason; unacknowledged data
    /// may be lost.
    pub fn close(&self, code: u64, reason: &[u8]) {
        let mut woken = Vec::new();
        let Inner { shared, handle } = &*self.inner;
        let reason = Bytes::copy_from_slice(reason);
        shared.state().close(*handle, code, reason, &mut woken);
        shared.wake();
        woken.into_iter().for_each(Waiting::wake);
    }

    /// Waits until the connection is closed, and returns why.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn closed(&self) -> ConnectionError {
        let ended = |_: &mut core::Connection<'_>, session: &mut Session| session.error().cloned();
        self.inner.until(Wait::Progress, ended).await
    }

    /// Waits until the handshake is confirmed (RFC 9001 §4.1.2); from then on
    /// [`Endpoint::rebind`](crate::Endpoint::rebind) migrates the connection.
    ///
    /// # Errors
    /// Why the connection was closed, if it was.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn confirmed(&self) -> Result<(), ConnectionError> {
        let confirmed = |connection: &mut core::Connection<'_>, session: &mut Session| {
            let lost = session.error().cloned().map(Err);
            lost.or_else(|| connection.is_confirmed().then_some(Ok(())))
        };
        self.inner.until(Wait::Progress, confirmed).await
    }

    /// Why it was closed, if it was.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.inner.with(|_, session| session.error().cloned())
    }

    /// Statistics.
    pub fn stats(&self) -> Stats {
        self.inner.with(|connection, _| connection.stats())
    }

    /// The smoothed round-trip time.
    pub fn rtt(&self) -> Duration {
        self.inner.with(|connection, _| connection.rtt())
    }

    /// The idle timeout: the smaller of both ends' limits (RFC 9000 §10.1), but never less than three
    /// probe timeouts. `None`: neither has one, or the handshake is not complete.
    ///
    /// A packet sent close to it may reach the peer after the peer has dropped the connection: start another
    /// one, or ping in time ([`Transport::keep_alive`](crate::config::Transport::keep_alive)).
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.inner.with(|connection, _| connection.idle_timeout())
    }

    /// Time since the peer's last packet.
    pub fn idle_for(&self) -> Duration {
        self.inner.with(|connection, _| connection.idle_for(Instant::now()))
    }

    /// The peer's current address.
    pub fn remote_address(&self) -> SocketAddr {
        let address = self.inner.with(|connection, _| connection.remote_address());
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    /// Servers: the address that the client connected to.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner.with(|connection, _| connection.local_ip()).map(|ip| ip.to_canonical())
    }

    /// An id that is unique among the endpoint's live connections.
    pub fn stable_id(&self) -> usize {
        self.inner.handle.index()
    }

    /// What the handshake agreed on; `None` before that.
    pub fn handshake_data(&self) -> Option<Handshake> {
        self.inner.with(|connection, _| connection.handshake())
    }

    /// The peer's certificates, leaf first; `None` if it presented none.
    pub fn peer_identity(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.inner.with(|connection, _| connection.peer_certificates())
    }

    /// Fills `output` with keying material of this connection (RFC 8446 §7.5); `false` if that many
    /// bytes are not available or the handshake is not complete.
    pub fn export_keying_material(&self, output: &mut [u8], label: &[u8], context: &[u8]) -> bool {
        self.inner.with(|connection, _| connection.export_keying_material(output, label, context))
    }

    /// Updates the keys now; no effect while the last update is in progress.
    pub fn update_keys(&self) {
        self.inner.act(|connection, _| connection.update_keys());
    }

    /// Sends a ping: keeps the connection from idling, measures the round trip.
    pub fn ping(&self) {
        self.inner.act(|connection, _| connection.ping());
    }

    /// Sets how many bidirectional streams the peer may have open; at most
    /// [`crate::limits::STREAMS_LIMIT`].
    pub fn set_bi_streams_max(&self, count: u64) {
        self.inner.act(|connection, _| connection.set_streams_max(Direction::Bi, count));
    }

    /// Sets how many unidirectional streams the peer may have open; same maximum.
    pub fn set_uni_streams_max(&self, count: u64) {
        self.inner.act(|connection, _| connection.set_streams_max(Direction::Uni, count));
    }

    /// Sets how many bytes the peer may send ahead of the readers, for all streams together.
    pub fn set_receive_window(&self, bytes: u64) {
        self.inner.act(|connection, _| connection.set_receive_window(bytes));
    }

    /// Sets how many bytes may be written but not acknowledged, for all streams together.
    pub fn set_send_window(&self, bytes: u64) {
        self.inner.act(|connection, _| connection.set_send_window(bytes));
    }
}

/// Opens a stream, and returns whether it is early data; `None` if the peer allows none.
fn open(
    connection: &mut core::Connection<'_>,
    session: &mut Session,
    direction: Direction,
) -> Result<Option<(StreamId, bool)>, ConnectionError> {
    if let Some(error) = session.error() {
        return Err(error.clone());
    }
    let is_early = connection.is_client() && connection.is_handshaking();
    Ok(connection.open(direction).map(|id| (id, is_early)))
}
