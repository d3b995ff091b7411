//! Connections as futures.
//!
//! Owns: [`Connection`]. Called by: programs. Never does: touch the socket; the endpoint's task does.

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
use std::time::Duration;

/// A connection. Clones are the same one; it is closed with code 0 when the last of them, and of its streams, is
/// dropped.
#[derive(Clone)]
pub struct Connection {
    pub(crate) inner: Rc<Inner>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("remote", &self.remote_address())
            .finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn new(shared: &Rc<Shared>, handle: Handle) -> Self {
        let inner = Inner {
            shared: Rc::clone(shared),
            handle,
        };
        Self {
            inner: Rc::new(inner),
        }
    }

    /// Open a stream that goes both ways, once the peer allows one.
    ///
    /// Cancel safety: safe.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let (id, is_early) = self.open(Direction::Bi).await?;
        Ok(self.both(id, is_early))
    }

    /// Open a stream that goes from here to the peer, once it allows one.
    ///
    /// Cancel safety: safe.
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        let (id, is_early) = self.open(Direction::Uni).await?;
        Ok(SendStream::new(&self.inner, id, is_early))
    }

    /// Open a stream now; `None` where the peer allows none.
    pub fn try_open_bi(&self) -> Result<Option<(SendStream, RecvStream)>, ConnectionError> {
        Ok(self
            .try_open(Direction::Bi)?
            .map(|(id, is_early)| self.both(id, is_early)))
    }

    /// Open a stream now; `None` where the peer allows none.
    pub fn try_open_uni(&self) -> Result<Option<SendStream>, ConnectionError> {
        let opened = self.try_open(Direction::Uni)?;
        Ok(opened.map(|(id, is_early)| SendStream::new(&self.inner, id, is_early)))
    }

    fn try_open(&self, direction: Direction) -> Result<Option<(StreamId, bool)>, ConnectionError> {
        // The peer hears of a stream by its first bytes, and nothing of a wait for one.
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
        (
            SendStream::new(&self.inner, id, is_early),
            RecvStream::new(&self.inner, id, is_early),
        )
    }

    /// The next stream that the peer has opened both ways.
    ///
    /// Cancel safety: safe.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let id = self.accept(Direction::Bi).await?;
        Ok(self.both(id, false))
    }

    /// The next stream that the peer has opened for itself.
    ///
    /// Cancel safety: safe.
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

    /// Close the connection with the program's code and reason, at once: what was not acknowledged may be lost.
    pub fn close(&self, code: u64, reason: &[u8]) {
        let mut woken = Vec::new();
        let Inner { shared, handle } = &*self.inner;
        let reason = Bytes::copy_from_slice(reason);
        shared.state().close(*handle, code, reason, &mut woken);
        shared.wake();
        woken.into_iter().for_each(Waiting::wake);
    }

    /// Wait for the end, and tell why.
    ///
    /// Cancel safety: safe.
    pub async fn closed(&self) -> ConnectionError {
        let ended = |_: &mut core::Connection<'_>, session: &mut Session| session.error().cloned();
        self.inner.until(Wait::Progress, ended).await
    }

    /// Wait until the handshake is confirmed (RFC 9001 §4.1.2): from then on [`Endpoint::rebind`](crate::Endpoint::rebind)
    /// moves the connection.
    ///
    /// Errors: why it is over, if it is by then.
    /// Cancel safety: safe.
    pub async fn confirmed(&self) -> Result<(), ConnectionError> {
        let confirmed = |connection: &mut core::Connection<'_>, session: &mut Session| {
            let lost = session.error().cloned().map(Err);
            lost.or_else(|| connection.is_confirmed().then_some(Ok(())))
        };
        self.inner.until(Wait::Progress, confirmed).await
    }

    /// Why it is over, if it is.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.inner.with(|_, session| session.error().cloned())
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        self.inner.with(|connection, _| connection.stats())
    }

    /// The smoothed round-trip time.
    pub fn rtt(&self) -> Duration {
        self.inner.with(|connection, _| connection.rtt())
    }

    /// The peer's address now.
    pub fn remote_address(&self) -> SocketAddr {
        let address = self.inner.with(|connection, _| connection.remote_address());
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    /// Servers: the address that the client has connected to.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner
            .with(|connection, _| connection.local_ip())
            .map(|ip| ip.to_canonical())
    }

    /// A number that the endpoint's connections do not share while they live.
    pub fn stable_id(&self) -> usize {
        self.inner.handle.index()
    }

    /// What the handshake has agreed on; `None` while it has not.
    pub fn handshake_data(&self) -> Option<Handshake> {
        self.inner.with(|connection, _| connection.handshake())
    }

    /// The peer's certificates, its own first; `None` where it has shown none.
    pub fn peer_identity(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.inner
            .with(|connection, _| connection.peer_certificates())
    }

    /// Fill `output` with bytes that only both ends of this connection can know (RFC 8446 §7.5); `false` where so
    /// many cannot be had, or the handshake is not complete.
    pub fn export_keying_material(&self, output: &mut [u8], label: &[u8], context: &[u8]) -> bool {
        self.inner
            .with(|connection, _| connection.export_keying_material(output, label, context))
    }

    /// Change the keys now; nothing happens while the last change is under way.
    pub fn update_keys(&self) {
        self.inner.act(|connection, _| connection.update_keys());
    }

    /// Have the peer acknowledge something: keeps the connection from idling, measures the round trip.
    pub fn ping(&self) {
        self.inner.act(|connection, _| connection.ping());
    }

    /// How many streams both ways the peer may have open at a time; at most [`crate::limits::STREAMS_LIMIT`].
    pub fn set_bi_streams_max(&self, count: u64) {
        self.inner
            .act(|connection, _| connection.set_streams_max(Direction::Bi, count));
    }

    /// How many streams of its own the peer may have open at a time; at most as many.
    pub fn set_uni_streams_max(&self, count: u64) {
        self.inner
            .act(|connection, _| connection.set_streams_max(Direction::Uni, count));
    }

    /// How many bytes the peer may send ahead of the readers, all streams together.
    pub fn set_receive_window(&self, bytes: u64) {
        self.inner
            .act(|connection, _| connection.set_receive_window(bytes));
    }

    /// How many bytes may be written and not acknowledged, all streams together.
    pub fn set_send_window(&self, bytes: u64) {
        self.inner
            .act(|connection, _| connection.set_send_window(bytes));
    }
}

/// Open a stream, and tell whether it is early data; `None` where the peer allows none.
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
