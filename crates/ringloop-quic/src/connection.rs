//! Connections as futures.
//!
//! Owns: [`Connection`], and how its handles find it in the endpoint ([`Inner`]). Called by: programs. Never does:
//! touch the socket; the endpoint's task does.

use crate::core::{self, Event, Handle, Handshake};
use crate::endpoint::Shared;
use crate::error::ConnectionError;
use crate::link::{Link, at};
use crate::stats::Stats;
use crate::stream::{RecvStream, SendStream};
use crate::wakers::Seat;
use crate::{Direction, StreamId};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

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

/// What all clones of a connection share. Invariants, by which both of its parts are found until it is dropped:
/// 1. There is one a handle: it is made with the handle that the core has just given, behind `State::link`.
/// 2. `Link::is_held` is true from then on, until it is dropped.
/// 3. Nothing but `State::release` forgets a link and the core's connection, and it is called for a drained connection that
///    nobody holds, and here, by the drop.
pub(crate) struct Inner {
    pub shared: Rc<Shared>,
    pub handle: Handle,
}

impl Inner {
    /// Look at the connection; nothing is sent for it.
    pub fn with<T>(&self, look: impl FnOnce(&mut core::Connection<'_>, &mut Link) -> T) -> T {
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let link = state.links[self.handle.index()].as_deref_mut();
        let both = link.zip(state.core.connection(self.handle));
        let (link, mut connection) = both.expect("a held connection is not released");
        look(&mut connection, link)
    }

    /// Do something with the connection that may have to be sent.
    pub fn act<T>(&self, act: impl FnOnce(&mut core::Connection<'_>, &mut Link) -> T) -> T {
        let result = self.with(act);
        self.shared.wake();
        result
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let mut was_open = false;
        if let Some(link) = state.link_mut(self.handle) {
            link.is_held = false;
            was_open = link.lost.is_none();
        }
        if was_open && let Some(mut connection) = state.core.connection(self.handle) {
            connection.close(Instant::now(), 0, Bytes::new());
        }
        let link = state.release(self.handle);
        drop(guard);
        drop(link);
        self.shared.wake();
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
        self.inner.with(|connection, link| {
            if let Some(error) = &link.lost {
                return Err(error.clone());
            }
            let is_early = connection.is_client() && connection.is_handshaking();
            Ok(connection.open(direction).map(|id| (id, is_early)))
        })
    }

    async fn open(&self, direction: Direction) -> Result<(StreamId, bool), ConnectionError> {
        let leave = |key| {
            self.inner
                .with(|_, link| link.opening[at(direction)].remove(key))
        };
        let mut seat = Seat::new(leave);
        poll_fn(|cx| match self.try_open(direction) {
            Ok(Some(opened)) => Poll::Ready(Ok(opened)),
            Ok(None) => {
                let old = self
                    .inner
                    .with(|_, link| seat.take(&mut link.opening[at(direction)], cx.waker()));
                drop(old);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
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
        let leave = |key| {
            self.inner
                .with(|_, link| link.accepting[at(direction)].remove(key))
        };
        let mut seat = Seat::new(leave);
        poll_fn(|cx| {
            let mut old = None;
            let polled = self.inner.with(|connection, link| {
                if let Some(id) = connection.accept(direction) {
                    return Poll::Ready(Ok(id));
                }
                if let Some(error) = &link.lost {
                    return Poll::Ready(Err(error.clone()));
                }
                old = seat.take(&mut link.accepting[at(direction)], cx.waker());
                Poll::Pending
            });
            drop(old);
            polled
        })
        .await
    }

    /// Close the connection with the program's code and reason, at once: what was not acknowledged may be lost.
    pub fn close(&self, code: u64, reason: &[u8]) {
        let mut woken = Vec::new();
        let handle = self.inner.handle;
        self.inner.act(|connection, link| {
            if link.lost.is_none() {
                connection.close(Instant::now(), code, Bytes::copy_from_slice(reason));
                link.event(Event::Lost(handle, ConnectionError::Closed), &mut woken);
            }
        });
        woken.into_iter().for_each(Waker::wake);
    }

    /// Wait for the end, and tell why.
    ///
    /// Cancel safety: safe.
    pub async fn closed(&self) -> ConnectionError {
        let mut seat = Seat::new(|key| self.inner.with(|_, link| link.watching.remove(key)));
        poll_fn(|cx| {
            let mut old = None;
            let polled = self.inner.with(|_, link| {
                if let Some(error) = &link.lost {
                    return Poll::Ready(error.clone());
                }
                old = seat.take(&mut link.watching, cx.waker());
                Poll::Pending
            });
            drop(old);
            polled
        })
        .await
    }

    /// Wait until the handshake is confirmed (RFC 9001 §4.1.2): from then on [`Endpoint::rebind`](crate::Endpoint::rebind)
    /// moves the connection.
    ///
    /// Errors: why it is over, if it is by then.
    /// Cancel safety: safe.
    pub async fn confirmed(&self) -> Result<(), ConnectionError> {
        let mut seat = Seat::new(|key| self.inner.with(|_, link| link.watching.remove(key)));
        poll_fn(|cx| {
            let mut old = None;
            let polled = self.inner.with(|connection, link| {
                if let Some(error) = &link.lost {
                    return Poll::Ready(Err(error.clone()));
                }
                if connection.is_confirmed() {
                    return Poll::Ready(Ok(()));
                }
                old = seat.take(&mut link.watching, cx.waker());
                Poll::Pending
            });
            drop(old);
            polled
        })
        .await
    }

    /// Why it is over, if it is.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.inner.with(|_, link| link.lost.clone())
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
