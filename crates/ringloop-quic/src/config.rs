//! How endpoints and connections are set up.

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

/// What outgoing connections are made with; a clone shares sessions and tokens with it.
#[derive(Clone)]
pub struct ClientConfig {
    pub(crate) config: proto::ClientConfig,
    /// What `config` was made of, and does not show.
    sessions: Arc<ClientSessions>,
    transport: Arc<proto::TransportConfig>,
    tokens: Arc<dyn proto::TokenStore>,
    version: u32,
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
    /// With this TLS, and the rest at its defaults.
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

    /// What the engine is told for one connection.
    pub(crate) fn of_one(&self) -> proto::ClientConfig {
        let mut config = self.config.clone();
        config.token_store(Arc::new(OneConnectionsTokens::new(&self.tokens)));
        config
    }

    /// What connections do and keep.
    pub fn transport(mut self, transport: &Transport) -> Result<Self, ConfigError> {
        self.transport = transport.build()?;
        self.kept = Kept::from(transport);
        self.config.transport_config(Arc::clone(&self.transport));
        Ok(self)
    }

    /// The version to begin with. Nothing else is tried: a server that does not speak it answers, and the
    /// connection ends with `ConnectionError::VersionMismatch`.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = version.number();
        self.config.version(self.version);
        self
    }

    /// Log connections; `None`, by default: do not.
    #[must_use]
    pub fn qlog(mut self, qlog: Option<Qlog>) -> Self {
        self.qlog = qlog;
        self
    }

    /// Keep address tokens here; `None`: nowhere. By default in memory, two a server, of 256 servers.
    #[must_use]
    pub fn tokens(mut self, store: Option<Arc<dyn TokenStore>>) -> Self {
        self.tokens = match store {
            Some(store) => Arc::new(Tokens(store)),
            None => Arc::new(proto::NoneTokenStore),
        };
        self.config.token_store(Arc::clone(&self.tokens));
        self
    }

    /// Keep sessions here; all else, whose certificates are trusted too, stays shared with this configuration, so
    /// that a session that one has got may be resumed by the other.
    #[must_use]
    pub fn with_sessions(&self, store: Arc<dyn ClientSessionStore>) -> Self {
        let mut tls = rustls::ClientConfig::clone(&self.sessions.config);
        tls.resumption = Resumption::store(store);
        let sessions = Arc::new(ClientSessions {
            config: Arc::new(tls),
            initial: self.sessions.initial,
        });
        let (transport, tokens) = (Arc::clone(&self.transport), Arc::clone(&self.tokens));
        let mut config = Self::of(sessions, transport, tokens, self.version);
        config.qlog.clone_from(&self.qlog);
        config.kept = self.kept;
        config
    }

    /// The id that the first packets of the next connection are addressed to, in place of a random one: 8 to 20
    /// bytes that nobody can guess (RFC 9000 §7.2). For one connection.
    pub fn initial_destination(mut self, id: &[u8]) -> Result<Self, ConfigError> {
        if !(8..=20).contains(&id.len()) {
            return Err(ConfigError::OutOfBounds(
                "initial_destination: 8 to 20 bytes",
            ));
        }
        self.first_id = Some(proto::ConnectionId::new(id));
        Ok(self)
    }
}

/// What incoming connections are made with; a clone shares sessions with it.
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
    /// With this TLS, and the rest at its defaults.
    pub fn new(tls: ServerTls) -> Result<Self, ConfigError> {
        let sessions = ServerSessions::new(tls.build()?, tls::initial_suite()?);
        let mut config = proto::ServerConfig::new(Arc::new(sessions), tls::token_key::random()?);
        config
            .transport_config(Transport::default().build()?)
            .max_incoming(limits::INCOMING_MAX)
            .incoming_buffer_size(limits::INCOMING_BYTES)
            .incoming_buffer_size_total(limits::INCOMING_BYTES_TOTAL);
        Ok(Self {
            config,
            kept: Kept::from(&Transport::default()),
            qlog: None,
        })
    }

    /// What connections do and keep.
    pub fn transport(mut self, transport: &Transport) -> Result<Self, ConfigError> {
        self.config.transport_config(transport.build()?);
        self.kept = Kept::from(transport);
        Ok(self)
    }

    /// Log connections; `None`, by default: do not.
    #[must_use]
    pub fn qlog(mut self, qlog: Option<Qlog>) -> Self {
        self.qlog = qlog;
        self
    }

    /// Whether clients may go on from another address (on by default).
    #[must_use]
    pub fn migration(mut self, allowed: bool) -> Self {
        self.config.migration(allowed);
        self
    }

    /// Where clients may go on to once the handshake is complete (RFC 9000 §9.6).
    ///
    /// What the endpoint sends on a connection leaves from the address of its handshake, also to a client that has gone
    /// on: the engine keeps that for the connection's time. So a socket's second address will not do, where clients take
    /// answers of the address alone that they have sent to. One that something in front of the endpoint translates to the
    /// first will, both ways.
    #[must_use]
    pub fn preferred_address(mut self, v4: Option<SocketAddrV4>, v6: Option<SocketAddrV6>) -> Self {
        self.config.preferred_address_v4(v4);
        self.config.preferred_address_v6(v6);
        self
    }

    /// The secret from which the keys of address tokens come: 32 random bytes or more, the same in all workers
    /// and processes that shall know each other's. By default a fresh one.
    #[must_use]
    pub fn token_secret(mut self, secret: &[u8]) -> Self {
        self.config.token_key(tls::token_key::from_secret(secret));
        self
    }

    /// How long the token of a Retry may be used (15 s by default); 1 s or more, the unit of its time.
    pub fn retry_lifetime(mut self, lifetime: Duration) -> Result<Self, ConfigError> {
        if !(Duration::from_secs(1)..=limits::TIME_MAX).contains(&lifetime) {
            return Err(ConfigError::OutOfBounds("retry_lifetime: 1 s to 10 years"));
        }
        self.config.retry_token_lifetime(lifetime);
        Ok(self)
    }

    /// How many tokens a client gets for its next connections (2 by default, at most [`limits::TOKENS_MAX`]), and how long
    /// they may be used (two weeks; 1 s or more). With 0, those of clients are not looked at either.
    pub fn tokens(mut self, count: u32, lifetime: Duration) -> Result<Self, ConfigError> {
        if count > limits::TOKENS_MAX {
            return Err(ConfigError::OutOfBounds("tokens: 0 to 64"));
        }
        if !(Duration::from_secs(1)..=limits::TIME_MAX).contains(&lifetime) {
            return Err(ConfigError::OutOfBounds(
                "lifetime of tokens: 1 s to 10 years",
            ));
        }
        let mut tokens = proto::ValidationTokenConfig::default();
        tokens.sent(count).lifetime(lifetime);
        if count == 0 {
            tokens.log(Arc::new(proto::NoneTokenLog));
        }
        self.config.validation_token_config(tokens);
        Ok(self)
    }

    /// How many connections may wait to be accepted; past it new clients get no answer, and try again until there is room
    /// or their handshake's time is over. From 1 to [`limits::INCOMING_LIMIT`].
    pub fn incoming_max(mut self, count: usize) -> Result<Self, ConfigError> {
        if !(1..=limits::INCOMING_LIMIT).contains(&count) {
            return Err(ConfigError::OutOfBounds("incoming_max: 1 to 2^20"));
        }
        self.config.max_incoming(count);
        Ok(self)
    }
}

/// What is the same for all connections of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    pub(crate) config: proto::EndpointConfig,
    /// Bytes that the socket asks the kernel to keep, each way.
    pub socket_buffer: usize,
    /// What connection ids are known by.
    id_key: Option<u64>,
    /// The program has said what connection ids are like.
    has_chosen_ids: bool,
    /// Where the program wants to hear of connection ids.
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
    /// The versions to speak, the best first, at least one; both by default.
    pub fn versions(mut self, versions: &[Version]) -> Result<Self, ConfigError> {
        if versions.is_empty() {
            return Err(ConfigError::OutOfBounds("versions: one at least"));
        }
        let numbers = versions.iter().map(|version| version.number());
        self.config.supported_versions(numbers.collect());
        Ok(self)
    }

    /// The largest payload of UDP that peers may send here: 1200 to 65527 bytes; 1472 by default.
    pub fn udp_payload_max(mut self, bytes: u16) -> Result<Self, ConfigError> {
        let result = self.config.max_udp_payload_size(bytes);
        result.map_err(|_| ConfigError::OutOfBounds("udp_payload_max: 1200 to 65527"))?;
        Ok(self)
    }

    /// The secret from which stateless resets come: with the same one, an endpoint can end connections of
    /// another that is gone (RFC 9000 §10.3). By default a fresh one. Connection ids that were chosen, in whichever order,
    /// stay as they were chosen.
    #[must_use]
    pub fn reset_secret(mut self, secret: &[u8]) -> Self {
        self.config.reset_key(tls::token_key::reset_key(secret));
        let key = tls::token_key::connection_id_key(secret);
        self.id_key = Some(key);
        if !self.has_chosen_ids {
            // Only what may be one of its connection ids is answered by a reset.
            self.config
                .cid_generator(move || Box::new(proto::HashedConnectionIdGenerator::from_key(key)));
        }
        self
    }

    /// Tell of connection ids by `Event::IdIssued` and `Event::IdRetired`, for programs that route datagrams to
    /// cores of one connection each. `first` is what that connection has to begin with (no event tells it); all
    /// have its length, 4 to 20 bytes.
    pub fn connection_ids(self, first: &[u8]) -> Result<Self, ConfigError> {
        self.told_ids(first.len(), Some(first))
    }

    /// The same for endpoints with any number of connections, whose first ids
    /// [`Connection::ids`](crate::core::Connection::ids) tells; all have `len` bytes, 4 to 20.
    pub fn connection_id_len(self, len: usize) -> Result<Self, ConfigError> {
        self.told_ids(len, None)
    }

    fn told_ids(mut self, len: usize, first: Option<&[u8]>) -> Result<Self, ConfigError> {
        if !(4..=20).contains(&len) {
            return Err(ConfigError::OutOfBounds("connection_ids: 4 to 20 bytes"));
        }
        let log = proto::ids::Log::begin_with(first);
        self.ids = Some(log.clone());
        self.has_chosen_ids = true;
        // Programs that route look at the bit to tell QUIC from other protocols (RFC 9287 §3).
        self.config.grease_quic_bit(false);
        self.config.cid_generator(move || log.generator(len));
        Ok(self)
    }

    /// Have connection ids carry the number of one of `count` workers, 1 to 256, which are known to each other by `key`:
    /// for programs with sockets of their own, which have the kernel route by [`steering_program`].
    ///
    /// [`steering_program`]: crate::steering_program
    pub fn worker(mut self, number: usize, count: usize, key: u64) -> Result<Self, ConfigError> {
        if !(1..=256).contains(&count) || number >= count {
            return Err(ConfigError::OutOfBounds(
                "worker: 1 to 256, numbered from 0",
            ));
        }
        self.has_chosen_ids = true;
        self.config
            .cid_generator(move || Box::new(proto::worker::WorkerIds::new(number, count, key)));
        Ok(self)
    }

    /// Have connection ids carry the place of a worker.
    pub(crate) fn for_worker(mut self, place: &Place) -> Self {
        let (place, key) = (place.clone(), self.id_key);
        self.config.cid_generator(move || Box::new(place.ids(key)));
        self
    }

    /// Seed the random numbers that are no secrets, for tests.
    #[must_use]
    pub fn seed(mut self, seed: Option<[u8; 32]>) -> Self {
        self.config.rng_seed(seed);
        self
    }
}
