//! Configuration of endpoints and connections.

mod transport;

use crate::error::ConfigError;
use crate::limits;
use crate::proto::session::{ClientSessions, ServerSessions};
use crate::proto::{self, version};
use crate::qlog::Qlog;
use crate::store::OneConnectionsTokens;
pub use crate::store::TokenStore;
use crate::tls::{self, ClientTls, ServerTls};
use crate::workers::Place;
use bytes::Bytes;
use rustls::client::{ClientSessionStore, Resumption};
use std::fmt;
use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use transport::Kept;
pub use transport::{Congestion, Transport};

/// A version of QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// RFC 9000.
    #[default]
    V1,
    /// RFC 9369.
    V2,
}

impl Version {
    /// Its number on the wire.
    pub fn number(self) -> u32 {
        match self {
            Self::V1 => version::V1,
            Self::V2 => version::V2,
        }
    }
}

struct Tokens(Arc<dyn TokenStore>);

impl proto::TokenStore for Tokens {
    fn insert(&self, server_name: &str, token: Bytes) {
        self.0.insert(server_name, token);
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        self.0.take(server_name)
    }
}

/// Configuration of outgoing connections; a clone shares sessions and tokens with it.
#[derive(Clone)]
pub struct ClientConfig {
    pub(crate) config: proto::ClientConfig,
    /// The session store inside `config`, which has no getter for it.
    sessions: Arc<ClientSessions>,
    transport: Arc<proto::TransportConfig>,
    tokens: Arc<dyn proto::TokenStore>,
    pub(crate) version: u32,
    pub(crate) kept: Kept,
    pub(crate) first_id: Option<proto::ConnectionId>,
    pub(crate) qlog: Option<Qlog>,
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl ClientConfig {
    /// Uses this TLS configuration, and defaults for the rest.
    pub fn new(tls: ClientTls) -> Result<Self, ConfigError> {
        let sessions = Arc::new(ClientSessions {
            config: Arc::new(tls.build()?),
            initial: tls::initial_suite()?,
        });
        let transport = Transport::default().build()?;
        let tokens = Arc::new(proto::TokenMemoryCache::default());
        Ok(Self::of(sessions, transport, tokens, version::V1))
    }

    fn of(
        sessions: Arc<ClientSessions>,
        transport: Arc<proto::TransportConfig>,
        tokens: Arc<dyn proto::TokenStore>,
        version: u32,
    ) -> Self {
        let mut config = proto::ClientConfig::new(Arc::<ClientSessions>::clone(&sessions));
        config.transport_config(Arc::clone(&transport));
        config.token_store(Arc::clone(&tokens));
        config.version(version);
        Self {
            config,
            sessions,
            transport,
            tokens,
            version,
            kept: Kept::from(&Transport::default()),
            first_id: None,
            qlog: None,
        }
    }

    /// The engine's configuration for one connection.
    pub(crate) fn of_one(&self) -> proto::ClientConfig {
        let mut config = self.config.clone();
        config.token_store(Arc::new(OneConnectionsTokens::new(&self.tokens)));
        config
    }

    /// Sets the transport parameters.
    pub fn transport(mut self, transport: &Transport) -> Result<Self, ConfigError> {
        self.transport = transport.build()?;
        self.kept = Kept::from(transport);
        self.config.transport_config(Arc::clone(&self.transport));
        Ok(self)
    }

    /// Sets the first version. No other is tried: if the server does not speak it, the connection
    /// ends with `ConnectionError::VersionMismatch`.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = version.number();
        self.config.version(self.version);
        self
    }

    /// Enables logging of connections; off (`None`) by default.
    #[must_use]
    pub fn qlog(mut self, qlog: Option<Qlog>) -> Self {
        self.qlog = qlog;
        self
    }

    /// Sets the store for address tokens, or none. By default in memory: two per server, for 256
    /// servers.
    #[must_use]
    pub fn tokens(mut self, store: Option<Arc<dyn TokenStore>>) -> Self {
        self.tokens = match store {
            Some(store) => Arc::new(Tokens(store)),
            None => Arc::new(proto::NoneTokenStore),
        };
        self.config.token_store(Arc::clone(&self.tokens));
        self
    }

    /// Returns a copy that uses another session store. The rest, trusted certificates included,
    /// stays shared, so that each may resume the other's sessions.
    #[must_use]
    pub fn with_sessions(&self, store: Arc<dyn ClientSessionStore>) -> Self {
        let mut tls = rustls::ClientConfig::clone(&self.sessions.config);
        tls.resumption = Resumption::store(store);
        let sessions =
            Arc::new(ClientSessions { config: Arc::new(tls), initial: self.sessions.initial });
        let (transport, tokens) = (Arc::clone(&self.transport), Arc::clone(&self.tokens));
        let mut config = Self::of(sessions, transport, tokens, self.version);
        config.qlog.clone_from(&self.qlog);
        config.kept = self.kept;
        config
    }

    /// Sets the destination id of the next connection's first packets, instead of a random one: 8
    /// to 20 unpredictable bytes (RFC 9000 §7.2). Used for one connection.
    pub fn initial_destination(mut self, id: &[u8]) -> Result<Self, ConfigError> {
        ConfigError::check((8..=20).contains(&id.len()), "initial_destination: 8 to 20 bytes")?;
        self.first_id = Some(proto::ConnectionId::new(id));
        Ok(self)
    }
}

/// Configuration of incoming connections; a clone shares sessions with it.
#[derive(Clone)]
pub struct ServerConfig {
    pub(crate) config: proto::ServerConfig,
    pub(crate) kept: Kept,
    pub(crate) qlog: Option<Qlog>,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl ServerConfig {
    /// Uses this TLS configuration, and defaults for the rest.
    pub fn new(tls: ServerTls) -> Result<Self, ConfigError> {
        let sessions = ServerSessions::new(tls.build()?, tls::initial_suite()?)?;
        let mut config = proto::ServerConfig::new(Arc::new(sessions), tls::token_key::random()?);
        config
            .transport_config(Transport::default().build()?)
            .max_incoming(limits::INCOMING_MAX)
            .incoming_buffer_size(limits::INCOMING_BYTES)
            .incoming_buffer_size_total(limits::INCOMING_BYTES_TOTAL);
        Ok(Self { config, kept: Kept::from(&Transport::default()), qlog: None })
    }

    /// Sets the transport parameters.
    pub fn transport(mut self, transport: &Transport) -> Result<Self, ConfigError> {
        self.config.transport_config(transport.build()?);
        self.kept = Kept::from(transport);
        Ok(self)
    }

    /// Enables logging of connections; off (`None`) by default.
    #[must_use]
    pub fn qlog(mut self, qlog: Option<Qlog>) -> Self {
        self.qlog = qlog;
        self
    }

    /// Allows clients to migrate to another address (on by default).
    #[must_use]
    pub fn migration(mut self, allowed: bool) -> Self {
        self.config.migration(allowed);
        self
    }

    /// Sets the addresses that clients may migrate to once the handshake is complete (RFC 9000
    /// §9.6).
    ///
    /// The endpoint keeps sending from the address of the handshake, because the engine fixes the
    /// local address for the lifetime of a connection. Clients that accept packets only from the
    /// address they sent to therefore need a preferred address that something in front of the
    /// endpoint translates to the first one, both ways; a second address of the same socket does
    /// not work.
    #[must_use]
    pub fn preferred_address(mut self, v4: Option<SocketAddrV4>, v6: Option<SocketAddrV6>) -> Self {
        self.config.preferred_address_v4(v4);
        self.config.preferred_address_v6(v6);
        self
    }

    /// Sets the secret that address token keys are derived from: at least 32 random bytes, the same
    /// in all workers and processes that accept each other's tokens. Random by default.
    #[must_use]
    pub fn token_secret(mut self, secret: &[u8]) -> Self {
        self.config.token_key(tls::token_key::from_secret(secret));
        self
    }

    /// Sets the lifetime of a Retry token (15 s by default); at least 1 s, the unit of its
    /// timestamp.
    pub fn retry_lifetime(mut self, lifetime: Duration) -> Result<Self, ConfigError> {
        ConfigError::check(
            (Duration::from_secs(1)..=limits::TIME_MAX).contains(&lifetime),
            "retry_lifetime: 1 s to 10 years",
        )?;
        self.config.retry_token_lifetime(lifetime);
        Ok(self)
    }

    /// Sets how many tokens a client gets for its next connections (2 by default, at most
    /// [`limits::TOKENS_MAX`]) and their lifetime (two weeks by default, at least 1 s). With 0,
    /// clients' tokens are ignored too.
    pub fn tokens(mut self, count: u32, lifetime: Duration) -> Result<Self, ConfigError> {
        ConfigError::check(count <= limits::TOKENS_MAX, "tokens: 0 to 64")?;
        ConfigError::check(
            (Duration::from_secs(1)..=limits::TIME_MAX).contains(&lifetime),
            "lifetime of tokens: 1 s to 10 years",
        )?;
        let mut tokens = proto::ValidationTokenConfig::default();
        tokens.sent(count).lifetime(lifetime);
        if count == 0 {
            tokens.log(Arc::new(proto::NoneTokenLog));
        }
        self.config.validation_token_config(tokens);
        Ok(self)
    }

    /// Sets how many connections may wait to be accepted, from 1 to [`limits::INCOMING_LIMIT`].
    /// Beyond that, new clients get no answer and retransmit until there is room or their handshake
    /// times out.
    pub fn incoming_max(mut self, count: usize) -> Result<Self, ConfigError> {
        ConfigError::check(
            (1..=limits::INCOMING_LIMIT).contains(&count),
            "incoming_max: 1 to 2^20",
        )?;
        self.config.max_incoming(count);
        Ok(self)
    }
}

/// Settings shared by all connections of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    pub(crate) config: proto::EndpointConfig,
    /// Kernel buffer size that the socket requests, for each direction.
    pub socket_buffer: usize,
    /// Key that marks this endpoint's connection ids.
    id_key: Option<u64>,
    /// The application chose the form of connection ids.
    has_chosen_ids: bool,
    /// Log of connection ids, if the application asked for events.
    pub(crate) ids: Option<proto::ids::Log>,
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("socket_buffer", &self.socket_buffer)
            .finish_non_exhaustive()
    }
}

impl Default for EndpointConfig {
    fn default() -> Self {
        let mut config = proto::EndpointConfig::default();
        config.supported_versions(vec![version::V1, version::V2]);
        Self {
            config,
            socket_buffer: limits::SOCKET_BUFFER,
            id_key: None,
            has_chosen_ids: false,
            ids: None,
        }
    }
}

impl EndpointConfig {
    /// Sets the supported versions in order of preference, at least one; both by default.
    pub fn versions(mut self, versions: &[Version]) -> Result<Self, ConfigError> {
        ConfigError::check(!versions.is_empty(), "versions: at least one")?;
        let numbers = versions.iter().map(|version| version.number());
        self.config.supported_versions(numbers.collect());
        Ok(self)
    }

    /// Sets the largest UDP payload that peers may send: 1200 to 65527 bytes; 1472 by default.
    pub fn udp_payload_max(mut self, bytes: u16) -> Result<Self, ConfigError> {
        let result = self.config.max_udp_payload_size(bytes);
        result.map_err(|_| ConfigError::OutOfBounds("udp_payload_max: 1200 to 65527"))?;
        Ok(self)
    }

    /// Sets the secret that stateless reset tokens are derived from: with the same secret, an
    /// endpoint can reset connections of a dead one (RFC 9000 §10.3). Random by default. Does
    /// not change connection ids chosen by other calls, before or after.
    #[must_use]
    pub fn reset_secret(mut self, secret: &[u8]) -> Self {
        self.config.reset_key(tls::token_key::reset_key(secret));
        let key = tls::token_key::connection_id_key(secret);
        self.id_key = Some(key);
        if !self.has_chosen_ids {
            // Send a reset only for a packet whose id may be one of ours.
            self.config
                .cid_generator(move || Box::new(proto::HashedConnectionIdGenerator::from_key(key)));
        }
        self
    }

    /// Reports connection ids by `Event::IdIssued` and `Event::IdRetired`, for applications that
    /// route datagrams to cores with one connection each. `first` is that connection's initial id
    /// (no event reports it); all ids have its length, 4 to 20 bytes.
    pub fn connection_ids(self, first: &[u8]) -> Result<Self, ConfigError> {
        self.reported_ids(first.len(), Some(first))
    }

    /// The same for endpoints with any number of connections, whose first ids are in
    /// [`Connection::ids`](crate::core::Connection::ids); all have `len` bytes, 4 to 20.
    pub fn connection_id_len(self, len: usize) -> Result<Self, ConfigError> {
        self.reported_ids(len, None)
    }

    fn reported_ids(mut self, len: usize, first: Option<&[u8]>) -> Result<Self, ConfigError> {
        ConfigError::check((4..=20).contains(&len), "connection_ids: 4 to 20 bytes")?;
        let log = proto::ids::Log::begin_with(first);
        self.ids = Some(log.clone());
        self.has_chosen_ids = true;
        // Routers use the bit to tell QUIC from other protocols (RFC 9287 §3).
        self.config.grease_quic_bit(false);
        self.config.cid_generator(move || log.generator(len));
        Ok(self)
    }

    /// Puts the number of one of `count` workers (1 to 256) into connection ids, which workers
    /// recognise by `key`: for applications with their own sockets that let the kernel route by
    /// [`steering_program`].
    ///
    /// [`steering_program`]: crate::steering_program
    pub fn worker(mut self, number: usize, count: usize, key: u64) -> Result<Self, ConfigError> {
        ConfigError::check(
            (1..=256).contains(&count) && number < count,
            "worker: 1 to 256, numbered from 0",
        )?;
        self.has_chosen_ids = true;
        self.config
            .cid_generator(move || Box::new(proto::worker::WorkerIds::new(number, count, key)));
        Ok(self)
    }

    /// Puts a worker's number into connection ids.
    pub(crate) fn for_worker(mut self, place: &Place) -> Self {
        let (place, key) = (place.clone(), self.id_key);
        self.config.cid_generator(move || Box::new(place.ids(key)));
        self
    }

    /// Seeds the random numbers that are not secret, for tests.
    #[must_use]
    pub fn seed(mut self, seed: Option<[u8; 32]>) -> Self {
        self.config.rng_seed(seed);
        self
    }
}
