//! An endpoint: a UDP socket of ringloop around a core.
//!
//! Owns: [`Endpoint`]. Called by: applications. The task that drives it is in `driver`, the state
//! of both in `shared`.

use crate::config::{ClientConfig, EndpointConfig, ServerConfig};
use crate::connecting::{Connecting, Incoming};
use crate::connection::Connection;
use crate::core::Core;
use crate::driver::drive;
use crate::error::{ConnectError, ConnectionError};
use crate::race;
use crate::session::{Sessions, Waiters};
use crate::shared::{EndpointWait, Futures, Shared, State};
use crate::socket_drain::SocketDrain;
use crate::stats::EndpointStats;
use crate::wakers::Waiting;
use crate::workers::{Place, Worker};
use bytes::Bytes;
use ringloop::net::UdpSocket;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

/// A socket that makes connections, accepts them, or both. Clones share it.
///
/// Belongs to the loop it was created on. If all clones are dropped, it stays alive while it has
/// connections, and refuses clients that wait for accept. For several threads create one on each,
/// with [`UdpSocket::bind_reuse_port`].
pub struct Endpoint {
    shared: Rc<Shared>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("address", &self.local_addr().ok()).finish_non_exhaustive()
    }
}

impl Clone for Endpoint {
    fn clone(&self) -> Self {
        self.shared.state().handle_count += 1;
        Self { shared: Rc::clone(&self.shared) }
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
    /// Creates an endpoint for outgoing connections at `address`; port 0 lets the kernel choose.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn client(address: SocketAddr, config: ClientConfig) -> io::Result<Self> {
        let socket = UdpSocket::bind_addr(address)?;
        Self::with_socket(socket, &EndpointConfig::default(), None, Some(config))
    }

    /// Creates an endpoint for incoming connections at `address`.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn server(address: SocketAddr, config: ServerConfig) -> io::Result<Self> {
        let socket = UdpSocket::bind_addr(address)?;
        Self::with_socket(socket, &EndpointConfig::default(), Some(config), None)
    }

    /// Creates an endpoint on an existing socket, which nothing else may use.
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

    /// Creates an endpoint for one of several workers at an address, on the worker's thread; see
    /// [`Worker::bind`]. Give all of them clones of the same configurations: they share sessions,
    /// tickets, and the secrets of tokens and resets, so that a returning client may reach any of
    /// them.
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
        let shared = Rc::new(Shared::new(State {
            sessions: Sessions::new(Core::new(config, server, true)),
            incoming: VecDeque::new(),
            waiters: Waiters::default(),
            socket: Rc::new(socket),
            socket_buffer: config.socket_buffer,
            has_unsent: false,
            is_rebound: false,
            client,
            place,
            handle_count: 1,
            socket_drain: SocketDrain::default(),
            undecided_count: 0,
            is_closed: false,
        }));
        drop(ringloop::spawn(drive(Rc::clone(&shared))));
        Ok(Self { shared })
    }

    /// Starts a connection to the server of this name and address, with the endpoint's
    /// configuration.
    pub fn connect(
        &self,
        address: SocketAddr,
        server_name: &str,
    ) -> Result<Connecting, ConnectError> {
        let config = self.shared.state().client.clone().ok_or(ConnectError::NoConfig)?;
        self.connect_with(&config, address, server_name)
    }

    /// Starts a connection with another configuration.
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
        let is_v6 = state.socket.local_addr().is_ok_and(|address| address.is_ipv6());
        let handle = state.sessions.connect(
            Instant::now(),
            config,
            (address, Some(is_v6)),
            server_name,
            Futures::new(),
        )?;
        drop(state);
        self.shared.wake();
        Ok(Connecting::new(&self.shared, handle))
    }

    /// Connects to the server of this name at whichever of its addresses
    /// ([`ringloop::net::lookup_host`]) answers first (RFC 8305): alternating families, each a
    /// quarter of a second after the last one or as soon as that fails. The other connections are
    /// closed.
    ///
    /// # Errors
    /// The last one's kind, with all addresses in the text; `InvalidInput` without addresses.
    ///
    /// # Cancel safety
    /// Cancel safe: attempts in progress are closed.
    pub async fn connect_any(
        &self,
        addresses: &[SocketAddr],
        server_name: &str,
    ) -> io::Result<Connection> {
        race::first_of(addresses, |address| self.connect(address, server_name)).await
    }

    /// The next client; `None` once the endpoint is closed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn accept(&self) -> Option<Incoming> {
        let next = |state: &mut State| {
            let incoming = state.incoming.pop_front().map(Some);
            incoming.or_else(|| state.is_closed.then_some(None))
        };
        let incoming = self.shared.until(EndpointWait::Incoming, next).await?;
        Some(Incoming::new(&self.shared, incoming))
    }

    /// Sets how new clients are accepted; `None`: not at all.
    pub fn set_server_config(&self, config: Option<ServerConfig>) {
        self.shared.state().sessions.core.set_server(config);
    }

    /// Sets the configuration of later connections.
    pub fn set_client_config(&self, config: ClientConfig) {
        self.shared.state().client = Some(config);
    }

    /// The socket's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.state().socket.local_addr()
    }

    /// Replaces the socket. Outgoing connections migrate to it; incoming ones are lost unless it
    /// has the address that their clients know.
    ///
    /// # Errors
    /// `InvalidInput` if there are outgoing connections and the socket is of another address
    /// family; `WouldBlock` while one of their handshakes is not confirmed
    /// ([`Connection::confirmed`](crate::Connection::confirmed)). Nothing changes then.
    pub fn rebind(&self, socket: UdpSocket) -> io::Result<()> {
        let mut state = self.shared.state();
        let (from, to) = (state.socket.local_addr()?, socket.local_addr()?);
        state.sessions.check_move(from, to)?;
        prepare(&socket, state.socket_buffer)?;
        state.socket = Rc::new(socket);
        state.is_rebound = true;
        state.sessions.moved();
        drop(state);
        self.shared.wake();
        Ok(())
    }

    /// Closes all connections with this code and reason, refuses waiting clients, and accepts and
    /// makes no more connections.
    pub fn close(&self, code: u64, reason: &[u8]) {
        let mut woken = Vec::new();
        let mut state = self.shared.state();
        state.refuse_all();
        let reason = Bytes::copy_from_slice(reason);
        for handle in state.sessions.handles() {
            state.close(handle, code, reason.clone(), &mut woken);
        }
        let mut accepting = Vec::new();
        state.waiters.take(&EndpointWait::Incoming, &mut accepting);
        drop(state);
        woken.into_iter().chain(accepting).for_each(Waiting::wake);
        self.shared.wake();
    }

    /// Total number of datagrams that the workers of this address have passed to each other.
    pub fn handed_over_count(&self) -> u64 {
        let state = self.shared.state();
        state.place.as_ref().map_or(0, Place::handed_count)
    }

    /// Statistics of handshakes: how many clients connected, and why others did not.
    pub fn stats(&self) -> EndpointStats {
        self.shared.state().sessions.core.stats()
    }

    /// Sets the callback for clients whose handshake fails, replacing the previous one; it runs
    /// whether or not the handshake is awaited. It runs in the endpoint's task and must not block.
    /// Anyone who can reach the port can trigger it at any rate: rate-limit what it logs.
    pub fn on_handshake_failed(
        &self,
        callback: impl FnMut(SocketAddr, &ConnectionError) + 'static,
    ) {
        let old = self.shared.on_failed.replace(Some(Box::new(callback)));
        drop(old);
    }

    /// The number of connections; closed ones count until they are drained.
    pub fn connection_count(&self) -> usize {
        self.shared.state().sessions.core.connection_count()
    }

    /// Waits until there are no connections, and all closes and refusals are sent. After
    /// [`Endpoint::close`] this includes refusals of clients whose first packet is still in the
    /// socket.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_idle(&self) {
        let is_idle = |state: &mut State| state.is_idle().then_some(());
        self.shared.until(EndpointWait::Idle, is_idle).await;
    }
}

/// Sets socket options for QUIC; options that the kernel or the socket rejects are skipped.
fn prepare(socket: &UdpSocket, buffer: usize) -> io::Result<()> {
    drop(socket.set_gro(true));
    drop(socket.set_receive_local_ip(true));
    drop(socket.set_unfragmented());
    drop(socket.set_receive_buffer(buffer));
    drop(socket.set_send_buffer(buffer));
    socket.local_addr().map(drop)
}
