//! An endpoint: a UDP socket of the engine around a core.
//!
//! Owns: [`Endpoint`], the state that its connections share, and the task that drives it. Called by: programs.
//! Never does: look into packets.
//!
//! One turn of the task, which runs when datagrams have come, a deadline has passed, or a program has written:
//!
//! ```text
//!   receive (trains, up to a bound) ─▶ what is due ─▶ wake who waits ─▶ [their turn] ─▶ transmit ─▶ one timer
//! ```
//! Those that were woken get their turn before anything is sent, so that their answers travel with the
//! acknowledgements.

use crate::config::{ClientConfig, EndpointConfig, ServerConfig};
use crate::connecting::{Connecting, Incoming};
use crate::connection::Connection;
use crate::core::{self, Core, Event, Handle};
use crate::error::{ConnectError, ConnectionError};
use crate::last_reads::LastReads;
use crate::link::{Link, Phase};
use crate::race;
use crate::receive::Receiver;
use crate::stats::EndpointStats;
use crate::transmit::{Progress, Transmitter};
use crate::wakers::{Seat, Wakers};
use crate::workers::{Place, Worker};
use bytes::Bytes;
use ringloop::net::UdpSocket;
use ringloop::time::{Sleep, sleep_until};
use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// What an endpoint's handles, connections and task share.
pub(crate) struct Shared {
    state: RefCell<State>,
    task: RefCell<Option<Waker>>,
    on_failed: RefCell<Option<OnFailed>>,
}

pub(crate) struct State {
    pub core: Core,
    /// By the number of the core's handle.
    pub links: Vec<Option<Box<Link>>>,
    incoming: VecDeque<core::Incoming>,
    accepting: Wakers,
    idling: Wakers,
    socket: Rc<UdpSocket>,
    /// What sockets are asked to keep, each way.
    socket_buffer: usize,
    /// A message that was made waits for the socket, and is not the core's any more.
    has_unsent: bool,
    is_rebound: bool,
    client: Option<ClientConfig>,
    /// Where it is one of several workers.
    place: Option<Place>,
    handle_count: usize,
    last_reads: LastReads,
    /// Clients that a program has taken and not yet decided on: it may refuse them.
    pub undecided_count: usize,
    is_closed: bool,
    /// Clients whose handshake has failed, of which the program has not been told.
    failures: Vec<(SocketAddr, ConnectionError)>,
}

/// Is told of each client whose handshake fails.
type OnFailed = Box<dyn FnMut(SocketAddr, &ConnectionError)>;

impl Shared {
    pub(crate) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Tell the program of handshakes that have failed, with nothing borrowed: what it does may come back here.
    pub(crate) fn tell_failures(&self) {
        let failures = std::mem::take(&mut self.state().failures);
        if failures.is_empty() {
            return;
        }
        let Some(mut told) = self.on_failed.take() else {
            return;
        };
        for (address, error) in &failures {
            told(*address, error);
        }
        // Unless it has put another one there.
        self.on_failed.borrow_mut().get_or_insert(told);
    }

    /// The socket to use from now on; `None`: there is no need of one.
    fn next_socket(&self) -> Option<Rc<UdpSocket>> {
        let mut state = self.state();
        state.is_rebound = false;
        // What the last socket did not take is lost, as on a path.
        state.has_unsent = false;
        state.is_needed().then(|| Rc::clone(&state.socket))
    }

    /// Have the task look: something may have to be sent.
    pub(crate) fn wake(&self) {
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }
}

impl State {
    /// Remember a connection of the core's.
    pub(crate) fn link(&mut self, handle: Handle) {
        let at = handle.index();
        if self.links.len() <= at {
            self.links.resize_with(at + 1, || None);
        }
        self.links[at] = Some(Box::new(Link::new(handle)));
    }

    pub(crate) fn link_mut(&mut self, handle: Handle) -> Option<&mut Link> {
        let link = self.links.get_mut(handle.index())?.as_deref_mut()?;
        (link.handle == handle).then_some(link)
    }

    /// Forget a connection that is drained and that no program has any more. What was its link is handed out to be dropped
    /// once nothing is borrowed: wakers may be in it, whose end may run a program's code, which may come back here.
    #[must_use = "it is to be dropped once nothing is borrowed"]
    pub(crate) fn release(&mut self, handle: Handle) -> Option<Box<Link>> {
        if !self.core.release(handle) {
            return None;
        }
        self.links.get_mut(handle.index())?.take()
    }

    /// Nothing is left to be told to anybody.
    fn is_idle(&self) -> bool {
        self.core.connection_count() == 0
            && !self.core.has_responses()
            && !self.has_unsent
            && self.last_reads.is_over()
    }

    /// Take no more clients; those that wait are refused.
    fn refuse_all(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.last_reads.begin();
        }
        for incoming in self.incoming.drain(..) {
            self.core.refuse(incoming);
        }
    }

    fn is_needed(&self) -> bool {
        self.handle_count > 0 || self.undecided_count > 0 || !self.is_idle()
    }

    fn handles(&self) -> Vec<Handle> {
        let links = self.links.iter().flatten();
        links
            .filter(|link| link.lost.is_none())
            .map(|link| link.handle)
            .collect()
    }

    /// Tell what has happened to whom it concerns; returns those to wake.
    fn dispatch(&mut self, woken: &mut Vec<Waker>) {
        while let Some(event) = self.core.next_event() {
            match event {
                Event::Incoming(incoming) if self.is_closed => self.core.refuse(incoming),
                Event::Incoming(incoming) => {
                    self.incoming.push_back(incoming);
                    self.accepting.drain_into(woken);
                }
                Event::Drained(handle) => {
                    let is_held = self.link_mut(handle).is_some_and(|link| link.is_held);
                    if !is_held && let Some(mut link) = self.release(handle) {
                        link.wake_all(woken);
                    }
                }
                event => self.tell(event, woken),
            }
        }
        if self.is_idle() {
            self.idling.drain_into(woken);
        }
    }

    fn tell(&mut self, event: Event, woken: &mut Vec<Waker>) {
        let Some(handle) = event.handle() else { return };
        let early_rejected = matches!(event, Event::Connected(_))
            && self.core.connection(handle).is_some_and(|connection| {
                connection.is_client()
                    && connection.has_early_data()
                    && !connection.early_data_accepted()
            });
        if let Event::Lost(_, error) = &event
            && self.is_incomplete_client(handle)
            && let Some(connection) = self.core.connection(handle)
        {
            let address = connection.remote_address();
            self.note_failure(address, error.clone());
        }
        if let Some(link) = self.link_mut(handle) {
            link.early_rejected |= early_rejected;
            link.event(event, woken);
        }
    }
}

impl State {
    /// Whether a client's handshake is under way.
    fn is_incomplete_client(&mut self, handle: Handle) -> bool {
        let link = self.link_mut(handle);
        let is_incomplete =
            link.is_some_and(|link| link.phase != Phase::Complete && link.lost.is_none());
        let connection = self.core.connection(handle);
        is_incomplete && connection.is_some_and(|connection| !connection.is_client())
    }

    pub(crate) fn note_failure(&mut self, address: SocketAddr, error: ConnectionError) {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        self.failures.push((address, error));
    }
}

/// A socket that makes connections, takes them, or both. Clones are the same one.
///
/// Belongs to the loop it was made on. It goes on without any clone of it while it has connections; waiting
/// ones are refused then, and hear of it. For several threads make one on each, with [`UdpSocket::bind_reuse_port`].
pub struct Endpoint {
    shared: Rc<Shared>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.local_addr().ok())
            .finish_non_exhaustive()
    }
}

impl Clone for Endpoint {
    fn clone(&self) -> Self {
        self.shared.state().handle_count += 1;
        Self {
            shared: Rc::clone(&self.shared),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.handle_count -= 1;
        if state.handle_count == 0 {
            state.refuse_all();
        }
        drop(state);
        self.shared.wake();
    }
}

impl Endpoint {
    /// An endpoint that makes connections, at `address`; port 0 lets the system choose.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn client(address: SocketAddr, config: ClientConfig) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        Self::with_socket(socket, &EndpointConfig::default(), None, Some(config))
    }

    /// An endpoint that takes connections, at `address`.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn server(address: SocketAddr, config: ServerConfig) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        Self::with_socket(socket, &EndpointConfig::default(), Some(config), None)
    }

    /// An endpoint on a socket of one's own, which nothing else may use.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn with_socket(
        socket: UdpSocket,
        config: &EndpointConfig,
        server: Option<ServerConfig>,
        client: Option<ClientConfig>,
    ) -> io::Result<Self> {
        Self::open(socket, config, server, client, None)
    }

    /// An endpoint that is one of several at an address, on the thread of its own; see [`Worker::bind`]. Give all of them
    /// clones of the same configurations: they share sessions, tickets and the secrets of tokens and resets, so that a
    /// client which comes again may come to any of them.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn worker(
        worker: Worker,
        config: &EndpointConfig,
        server: Option<ServerConfig>,
        client: Option<ClientConfig>,
    ) -> io::Result<Self> {
        let config = config.clone().for_worker(&worker.place);
        let socket = UdpSocket::from(worker.socket);
        Self::open(socket, &config, server, client, Some(worker.place))
    }

    fn open(
        socket: UdpSocket,
        config: &EndpointConfig,
        server: Option<ServerConfig>,
        client: Option<ClientConfig>,
        place: Option<Place>,
    ) -> io::Result<Self> {
        prepare(&socket, config.socket_buffer)?;
        let shared = Rc::new(Shared {
            state: RefCell::new(State {
                core: Core::new(config, server, true),
                links: Vec::new(),
                incoming: VecDeque::new(),
                accepting: Wakers::default(),
                idling: Wakers::default(),
                socket: Rc::new(socket),
                socket_buffer: config.socket_buffer,
                has_unsent: false,
                is_rebound: false,
                client,
                place,
                handle_count: 1,
                last_reads: LastReads::default(),
                undecided_count: 0,
                is_closed: false,
                failures: Vec::new(),
            }),
            task: RefCell::new(None),
            on_failed: RefCell::new(None),
        });
        drop(ringloop::spawn(drive(Rc::clone(&shared))));
        Ok(Self { shared })
    }

    /// Begin a connection, with the endpoint's configuration, to the server of this name at this address.
    pub fn connect(
        &self,
        address: SocketAddr,
        server_name: &str,
    ) -> Result<Connecting, ConnectError> {
        let config = self
            .shared
            .state()
            .client
            .clone()
            .ok_or(ConnectError::NoConfig)?;
        self.connect_with(&config, address, server_name)
    }

    /// Begin a connection with a configuration of its own.
    pub fn connect_with(
        &self,
        config: &ClientConfig,
        address: SocketAddr,
        server_name: &str,
    ) -> Result<Connecting, ConnectError> {
        let mut state = self.shared.state();
        if state.is_closed {
            return Err(ConnectError::EndpointClosed);
        }
        let is_v6 = state
            .socket
            .local_addr()
            .is_ok_and(|address| address.is_ipv6());
        let target = match (address.ip(), is_v6) {
            (IpAddr::V4(v4), true) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
            (IpAddr::V6(_), false) => return Err(ConnectError::InvalidAddress(address)),
            _ => address,
        };
        let handle = state
            .core
            .connect(Instant::now(), config, target, server_name)?;
        state.link(handle);
        drop(state);
        self.shared.wake();
        Ok(Connecting::new(&self.shared, handle))
    }

    /// Connect to the server of this name at whichever of its addresses ([`ringloop::net::lookup_host`]) answers first
    /// (RFC 8305): families in turns, each a quarter of a second after the last or at once when that has failed. The
    /// other connections are closed.
    ///
    /// Errors: the last one's kind, with all addresses in the text; `InvalidInput` without any.
    /// Cancel safety: safe; what was begun is closed.
    pub async fn connect_any(
        &self,
        addresses: &[SocketAddr],
        server_name: &str,
    ) -> io::Result<Connection> {
        race::first_of(self, addresses, server_name).await
    }

    /// The next client; `None` once the endpoint is closed.
    ///
    /// Cancel safety: safe.
    pub async fn accept(&self) -> Option<Incoming> {
        let mut seat = Seat::new(|key| self.shared.state().accepting.remove(key));
        poll_fn(|cx| {
            let mut state = self.shared.state();
            if let Some(incoming) = state.incoming.pop_front() {
                drop(state);
                return Poll::Ready(Some(Incoming::new(&self.shared, incoming)));
            }
            if state.is_closed {
                return Poll::Ready(None);
            }
            let old = seat.take(&mut state.accepting, cx.waker());
            drop(state);
            drop(old);
            Poll::Pending
        })
        .await
    }

    /// How clients that come from now on are taken; `None`: not at all.
    pub fn set_server_config(&self, config: Option<ServerConfig>) {
        self.shared.state().core.set_server(config);
    }

    /// How connections are made from now on.
    pub fn set_client_config(&self, config: ClientConfig) {
        self.shared.state().client = Some(config);
    }

    /// The socket's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.state().socket.local_addr()
    }

    /// Go on with another socket. Connections that were made here move with it; those of clients to this end
    /// are lost, unless it has the address that they know.
    ///
    /// Errors: `InvalidInput` where there are connections that were made here and the socket is of the other family of
    /// addresses; `WouldBlock` while the handshake of one of them is not confirmed
    /// ([`Connection::confirmed`](crate::Connection::confirmed)). Nothing is changed then.
    pub fn rebind(&self, socket: UdpSocket) -> io::Result<()> {
        let mut state = self.shared.state();
        let (from, to) = (state.socket.local_addr()?, socket.local_addr()?);
        state.core.check_move(from, to)?;
        prepare(&socket, state.socket_buffer)?;
        state.socket = Rc::new(socket);
        state.is_rebound = true;
        for handle in state.handles() {
            if let Some(mut connection) = state.core.connection(handle)
                && connection.is_client()
            {
                // One that is closed has nothing to move.
                let _ = connection.local_address_changed();
            }
        }
        drop(state);
        self.shared.wake();
        Ok(())
    }

    /// Close all connections with this code and reason, refuse those that wait, take and make no more.
    pub fn close(&self, code: u64, reason: &[u8]) {
        let mut woken = Vec::new();
        let mut guard = self.shared.state();
        let state = &mut *guard;
        state.refuse_all();
        let reason = Bytes::copy_from_slice(reason);
        for handle in state.handles() {
            if let Some(mut connection) = state.core.connection(handle) {
                connection.close(Instant::now(), code, reason.clone());
            }
            if let Some(link) = state.link_mut(handle) {
                link.event(Event::Lost(handle, ConnectionError::Closed), &mut woken);
            }
        }
        state.accepting.drain_into(&mut woken);
        drop(guard);
        woken.into_iter().for_each(Waker::wake);
        self.shared.wake();
    }

    /// How many datagrams the workers of this address have handed over to the right one of them, all together.
    pub fn handed_over_count(&self) -> u64 {
        let state = self.shared.state();
        state.place.as_ref().map_or(0, Place::handed_count)
    }

    /// What has become of handshakes: how many clients got in, and why others did not.
    pub fn stats(&self) -> EndpointStats {
        self.shared.state().core.stats()
    }

    /// Have `told` called for each client whose handshake fails, also where nobody waits for that; in place of what was called
    /// so far. It runs in the endpoint's task, so that it must not block, and it may be called by whoever can reach the port as
    /// often as they like: a log of it wants a bound.
    pub fn on_handshake_failed(&self, told: impl FnMut(SocketAddr, &ConnectionError) + 'static) {
        let old = self.shared.on_failed.replace(Some(Box::new(told)));
        drop(old);
    }

    /// How many connections there are; those that are closed count until nothing of them may come any more.
    pub fn connection_count(&self) -> usize {
        self.shared.state().core.connection_count()
    }

    /// Wait until there is none: what was closed or refused has been told to the peers. After [`Endpoint::close`] those are
    /// refused, too, whose first packet waits in the socket.
    ///
    /// Cancel safety: safe.
    pub async fn wait_idle(&self) {
        let mut seat = Seat::new(|key| self.shared.state().idling.remove(key));
        poll_fn(|cx| {
            let mut state = self.shared.state();
            if state.is_idle() {
                return Poll::Ready(());
            }
            let old = seat.take(&mut state.idling, cx.waker());
            drop(state);
            drop(old);
            Poll::Pending
        })
        .await;
    }
}

/// Ask of a socket what QUIC wants of it. What an old kernel or a peculiar socket refuses is done without.
fn prepare(socket: &UdpSocket, buffer: usize) -> io::Result<()> {
    drop(socket.set_receive_trains(true));
    drop(socket.set_receive_ecn(true));
    drop(socket.set_receive_local_ip(true));
    drop(socket.set_unfragmented());
    drop(socket.set_receive_buffer(buffer));
    drop(socket.set_send_buffer(buffer));
    socket.local_addr().map(drop)
}

/// The endpoint's task: one socket after the other, until nobody needs it.
async fn drive(shared: Rc<Shared>) {
    while let Some(socket) = shared.next_socket() {
        let mut driver = Driver {
            shared: &shared,
            receiver: Receiver::new(&socket),
            transmitter: Transmitter::new(&socket),
            timer: None,
            woken: Vec::new(),
            has_deferred: false,
        };
        poll_fn(|cx| driver.turn(cx)).await;
    }
}

struct Driver<'a> {
    shared: &'a Shared,
    receiver: Receiver<'a>,
    transmitter: Transmitter<'a>,
    timer: Option<(Instant, Sleep)>,
    woken: Vec<Waker>,
    /// The last turn left sending to this one.
    has_deferred: bool,
}

impl Driver<'_> {
    /// Ready where another socket is to be used, or none.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.register(cx);
        let now = Instant::now();
        let mut guard = self.shared.state();
        let state = &mut *guard;
        if state.is_rebound || !state.is_needed() {
            return Poll::Ready(());
        }
        let (core, place) = (&mut state.core, state.place.as_ref());
        if let Some(place) = place {
            for datagram in place.handed(cx.waker()) {
                core.receive(now, datagram);
            }
        }
        let more_in = self.receiver.receive(cx, now, core, place);
        self.transmitter.hear(now, core);
        state.last_reads.received(cx, &state.socket, more_in);
        state.core.handle_timeouts(now);
        state.dispatch(&mut self.woken);
        drop(guard);
        let has_woken = !self.woken.is_empty();
        self.woken.drain(..).for_each(Waker::wake);
        self.shared.tell_failures();
        if has_woken && !std::mem::replace(&mut self.has_deferred, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_deferred = false;
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let sent = self.transmitter.transmit(cx, now, &mut state.core);
        state.has_unsent = self.transmitter.is_waiting();
        // Sending is what ends connections: they may be drained now.
        state.dispatch(&mut self.woken);
        let deadline = state.core.next_timeout();
        let is_needed = state.is_needed();
        drop(guard);
        self.woken.drain(..).for_each(Waker::wake);
        self.shared.tell_failures();
        if !is_needed {
            return Poll::Ready(());
        }
        if more_in || sent == Progress::More {
            cx.waker().wake_by_ref();
        }
        self.sleep(cx, deadline);
        Poll::Pending
    }

    fn register(&self, cx: &Context<'_>) {
        let mut task = self.shared.task.borrow_mut();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            let old = task.replace(cx.waker().clone());
            drop(task);
            drop(old);
        }
    }

    /// One timer for all deadlines. One that is too early by now is left: it costs a turn, not two operations.
    fn sleep(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) {
        let Some(deadline) = deadline else {
            self.timer = None;
            return;
        };
        let is_soon_enough = |armed: &(Instant, Sleep)| armed.0 <= deadline;
        if !self.timer.as_ref().is_some_and(is_soon_enough) {
            self.timer = Some((deadline, sleep_until(deadline)));
        }
        if let Some((_, sleep)) = &mut self.timer
            && Pin::new(sleep).poll(cx).is_ready()
        {
            self.timer = None;
            cx.waker().wake_by_ref();
        }
    }
}
