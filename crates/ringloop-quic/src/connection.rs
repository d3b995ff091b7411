//! Connections as futures.
//!
//! Owns: [`Incoming`] (a client that waits for a decision), [`Connecting`] (a handshake), [`Connection`], and who
//! waits for what of each ([`Link`]). Called by: programs. Never does: touch the socket; the endpoint's task does.

use crate::config::ServerConfig;
use crate::core::{self, Event, Handle, Handshake};
use crate::endpoint::{Shared, Wakers};
use crate::error::{ConnectionError, StreamError};
use crate::stats::Stats;
use crate::stream::{RecvStream, SendStream};
use crate::{Direction, StreamId};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Who waits for what of a connection, and how it stands.
pub(crate) struct Link {
    pub handle: Handle,
    /// A program has it.
    pub is_held: bool,
    pub lost: Option<ConnectionError>,
    /// The server refused early data: the streams that were opened for it are not there.
    pub early_rejected: bool,
    phase: Phase,
    /// For the handshake's steps and the end.
    watching: Wakers,
    opening: [Wakers; 2],
    accepting: [Wakers; 2],
    pub reading: HashMap<StreamId, Waker>,
    pub writing: HashMap<StreamId, Waker>,
    pub stopping: HashMap<StreamId, Waker>,
    pub datagrams_in: Wakers,
    pub datagrams_out: Wakers,
}

/// How far a handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Begun,
    /// What it agrees on is known.
    Agreed,
    Complete,
}

fn at(direction: Direction) -> usize {
    match direction {
        Direction::Bi => 0,
        Direction::Uni => 1,
    }
}

impl Link {
    pub(crate) fn new(handle: Handle) -> Self {
        Self {
            handle,
            is_held: true,
            lost: None,
            early_rejected: false,
            phase: Phase::Begun,
            watching: Wakers::default(),
            opening: Default::default(),
            accepting: Default::default(),
            reading: HashMap::new(),
            writing: HashMap::new(),
            stopping: HashMap::new(),
            datagrams_in: Wakers::default(),
            datagrams_out: Wakers::default(),
        }
    }

    pub(crate) fn event(&mut self, event: Event, woken: &mut Vec<Waker>) {
        match event {
            Event::HandshakeData(_) => {
                self.phase = self.phase.max(Phase::Agreed);
                self.watching.drain_into(woken);
            }
            Event::Connected(_) => {
                self.phase = Phase::Complete;
                if self.early_rejected {
                    // Their streams are gone, and say so.
                    self.wake_streams(woken);
                }
                self.watching.drain_into(woken);
                self.datagrams_out.drain_into(woken);
            }
            Event::Lost(_, error) => {
                self.lost.get_or_insert(error);
                self.wake_all(woken);
            }
            Event::Opened(_, direction) => self.accepting[at(direction)].drain_into(woken),
            Event::Available(_, direction) => self.opening[at(direction)].drain_into(woken),
            Event::Readable(_, id) => woken.extend(self.reading.remove(&id)),
            Event::Writable(_, id) => woken.extend(self.writing.remove(&id)),
            Event::Finished(_, id) => woken.extend(self.stopping.remove(&id)),
            Event::Stopped(_, id, _) => {
                woken.extend(self.stopping.remove(&id));
                woken.extend(self.writing.remove(&id));
            }
            Event::DatagramReceived(_) => self.datagrams_in.drain_into(woken),
            Event::DatagramsUnblocked(_) => self.datagrams_out.drain_into(woken),
            Event::Incoming(_) | Event::Drained(_) => {}
        }
    }

    fn wake_streams(&mut self, woken: &mut Vec<Waker>) {
        for waiting in [&mut self.reading, &mut self.writing, &mut self.stopping] {
            woken.extend(waiting.drain().map(|(_, waker)| waker));
        }
    }

    fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        self.wake_streams(woken);
        for waiting in self.opening.iter_mut().chain(&mut self.accepting) {
            waiting.drain_into(woken);
        }
        for waiting in [
            &mut self.watching,
            &mut self.datagrams_in,
            &mut self.datagrams_out,
        ] {
            waiting.drain_into(woken);
        }
    }
}

/// A client that waits to be accepted. Dropping it refuses the client.
#[must_use = "dropping it refuses the client"]
pub struct Incoming {
    shared: Rc<Shared>,
    inner: Option<core::Incoming>,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("remote", &self.remote_address())
            .finish_non_exhaustive()
    }
}

impl Incoming {
    pub(crate) fn new(shared: &Rc<Shared>, inner: core::Incoming) -> Self {
        Self {
            shared: Rc::clone(shared),
            inner: Some(inner),
        }
    }

    /// Begin the handshake.
    ///
    /// Errors: what was wrong with the client's first packet.
    pub fn accept(self) -> Result<Connecting, ConnectionError> {
        self.accept_as(None)
    }

    /// Begin the handshake with a configuration of its own.
    pub fn accept_with(self, config: ServerConfig) -> Result<Connecting, ConnectionError> {
        self.accept_as(Some(config))
    }

    fn accept_as(mut self, config: Option<ServerConfig>) -> Result<Connecting, ConnectionError> {
        let Some(inner) = self.inner.take() else {
            return Err(ConnectionError::Closed);
        };
        let mut state = self.shared.state();
        let accepted = state.core.accept(Instant::now(), inner, config);
        if let Ok(handle) = &accepted {
            state.link(*handle);
        }
        drop(state);
        self.shared.wake();
        accepted.map(|handle| Connecting::new(&self.shared, handle))
    }

    /// Tell the client that it is refused.
    pub fn refuse(self) {}

    /// Have the client prove its address first: it comes again, with `is_validated()`.
    ///
    /// Errors: itself, where it has been told so already.
    pub fn retry(mut self) -> Result<(), Self> {
        let Some(inner) = self.inner.take() else {
            return Ok(());
        };
        let result = self.shared.state().core.retry(inner);
        self.shared.wake();
        match result {
            Ok(()) => Ok(()),
            Err(inner) => Err(Self::new(&self.shared, inner)),
        }
    }

    /// Do not answer: for the client, nobody is there.
    pub fn ignore(mut self) {
        if let Some(inner) = self.inner.take() {
            self.shared.state().core.ignore(inner);
        }
    }

    /// The client's address, which it has not proved unless `is_validated()`.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.inner.as_ref().map(core::Incoming::remote_address)
    }

    /// The address that the client has sent to.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner.as_ref().and_then(core::Incoming::local_ip)
    }

    /// Whether the client has proved its address, by a Retry or a token of an earlier connection.
    pub fn is_validated(&self) -> bool {
        self.inner
            .as_ref()
            .is_some_and(core::Incoming::is_validated)
    }

    /// Whether [`Incoming::retry`] may be asked of it.
    pub fn may_retry(&self) -> bool {
        self.inner.as_ref().is_some_and(core::Incoming::may_retry)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            self.shared.state().core.refuse(inner);
            self.shared.wake();
        }
    }
}

/// A connection whose handshake is under way; awaiting it gives the connection. Dropping it closes it.
#[must_use = "dropping it closes the connection"]
#[derive(Debug)]
pub struct Connecting {
    connection: Option<Connection>,
}

impl Connecting {
    pub(crate) fn new(shared: &Rc<Shared>, handle: Handle) -> Self {
        let inner = Inner {
            shared: Rc::clone(shared),
            handle,
        };
        Self {
            connection: Some(Connection {
                inner: Rc::new(inner),
            }),
        }
    }

    fn connection(&self) -> &Connection {
        self.connection
            .as_ref()
            .expect("it is there until the handshake's result was taken")
    }

    /// Use the connection before the handshake is complete: a client whose session is resumed may send early
    /// data, which others may send again; a server may answer a client that it has not yet verified.
    /// [`ZeroRtt`] tells how it ended.
    ///
    /// Errors: itself, where no early data can be sent; waiting for it is what is left.
    pub fn into_0rtt(mut self) -> Result<(Connection, ZeroRtt), Self> {
        let connection = self.connection().clone();
        let is_possible = connection
            .inner
            .with(|connection, _| !connection.is_client() || connection.has_early_data());
        if !is_possible {
            return Err(self);
        }
        self.connection = None;
        Ok((connection.clone(), ZeroRtt { connection }))
    }

    /// What the handshake has agreed on so far, once that is known: for a server the name that the client asks for.
    ///
    /// Cancel safety: safe.
    pub async fn handshake_data(&self) -> Result<Handshake, ConnectionError> {
        let inner = &self.connection().inner;
        poll_fn(|cx| {
            inner.with(|connection, link| {
                if let Some(error) = &link.lost {
                    return Poll::Ready(Err(error.clone()));
                }
                if link.phase >= Phase::Agreed {
                    return Poll::Ready(Ok(connection.handshake().unwrap_or_default()));
                }
                link.watching.add(cx.waker());
                Poll::Pending
            })
        })
        .await
    }

    /// The peer's address.
    pub fn remote_address(&self) -> SocketAddr {
        self.connection().remote_address()
    }
}

impl Future for Connecting {
    type Output = Result<Connection, ConnectionError>;

    /// # Panics
    /// After it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = &self.connection().inner;
        let state = inner.with(|_, link| match &link.lost {
            Some(error) => Poll::Ready(Err(error.clone())),
            None if link.phase == Phase::Complete => Poll::Ready(Ok(())),
            None => {
                link.watching.add(cx.waker());
                Poll::Pending
            }
        });
        match state {
            Poll::Pending => Poll::Pending,
            Poll::Ready(result) => {
                let connection = self.connection.take();
                Poll::Ready(result.map(|()| connection.expect("it was looked at above")))
            }
        }
    }
}

/// How early data ends: awaiting it gives whether the server took it. `false` also where the connection failed.
#[derive(Debug)]
#[must_use = "whether early data arrived is known when it is awaited"]
pub struct ZeroRtt {
    connection: Connection,
}

impl Future for ZeroRtt {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        self.connection.inner.with(|connection, link| {
            if link.lost.is_some() {
                return Poll::Ready(false);
            }
            if link.phase == Phase::Complete {
                return Poll::Ready(!connection.is_client() || connection.early_data_accepted());
            }
            link.watching.add(cx.waker());
            Poll::Pending
        })
    }
}

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
        let link = link.expect("a held connection has its link");
        let connection = state.core.connection(self.handle);
        let mut connection = connection.expect("a held connection is not released");
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
        state.release(self.handle);
        drop(guard);
        self.shared.wake();
    }
}

impl Connection {
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
        self.inner.act(|connection, link| {
            if let Some(error) = &link.lost {
                return Err(error.clone());
            }
            let is_early = connection.is_client() && connection.is_handshaking();
            Ok(connection.open(direction).map(|id| (id, is_early)))
        })
    }

    async fn open(&self, direction: Direction) -> Result<(StreamId, bool), ConnectionError> {
        poll_fn(|cx| match self.try_open(direction) {
            Ok(Some(opened)) => Poll::Ready(Ok(opened)),
            Ok(None) => {
                self.inner
                    .with(|_, link| link.opening[at(direction)].add(cx.waker()));
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
        poll_fn(|cx| {
            self.inner.with(|connection, link| {
                if let Some(id) = connection.accept(direction) {
                    return Poll::Ready(Ok(id));
                }
                if let Some(error) = &link.lost {
                    return Poll::Ready(Err(error.clone()));
                }
                link.accepting[at(direction)].add(cx.waker());
                Poll::Pending
            })
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
        poll_fn(|cx| {
            self.inner.with(|_, link| {
                if let Some(error) = &link.lost {
                    return Poll::Ready(error.clone());
                }
                link.watching.add(cx.waker());
                Poll::Pending
            })
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

    /// How many streams both ways the peer may have open at a time.
    pub fn set_bi_streams_max(&self, count: u64) {
        self.inner
            .act(|connection, _| connection.set_streams_max(Direction::Bi, count));
    }

    /// How many streams of its own the peer may have open at a time.
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

/// Why a stream of this connection does not move, if the connection is the reason.
pub(crate) fn barrier(link: &Link, is_early: bool) -> Result<(), StreamError> {
    if is_early && link.early_rejected {
        return Err(StreamError::EarlyDataRejected);
    }
    match &link.lost {
        Some(error) => Err(StreamError::Connection(error.clone())),
        None => Ok(()),
    }
}
