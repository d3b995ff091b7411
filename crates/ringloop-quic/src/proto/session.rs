//! TLS under the engine: rustls' QUIC connections as its sessions, for versions 1 and 2.
//!
//! Owns: the mapping between the two traits ([`keys`](super::keys) maps the keys), and how long
//! rustls' connection lives ([`Tls`]). Called by: the engine. Certificates are verified as the
//! configuration says.

#[cfg(test)]
mod tests;

use super::concluded::{Agreed, Concluded, PeerCertificates, server_name};
use super::exporter::{self, ExporterKeyLog};
use super::keys::{Header, initial_keys, long_keys, packet_key};
use super::logged::{Logged, To};
use super::reset_at::{self, Shared, Translated};
use super::version::{self, V1, V2};
use crate::qlog::{self, Log};
use crate::tls::integrity;
use crate::tls::refusal::{self, Seen};
use quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::AlertDescription;
use rustls::crypto::tls13::OkmBlock;
use rustls::pki_types::ServerName;
use rustls::quic::{Connection, KeyChange, Secrets, Suite, Version};
use std::any::Any;
use std::sync::Arc;

fn known(version: u32) -> Result<Version, UnsupportedVersion> {
    match version {
        V1 => Ok(Version::V1),
        V2 => Ok(Version::V2),
        _ => Err(UnsupportedVersion),
    }
}

/// The client's part of the configuration.
pub(crate) struct ClientSessions {
    pub config: Arc<rustls::ClientConfig>,
    pub initial: Suite,
}

impl crypto::ClientConfig for ClientSessions {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        let version = known(version)?;
        let refused = |_| ConnectError::InvalidServerName(server_name.into());
        let name = ServerName::try_from(server_name).map_err(refused)?.to_owned();
        let config = Arc::clone(&self.config);
        let inner = rustls::quic::ClientConnection::new(config, version, name, encoded(params))
            .map_err(|_| ConnectError::UnsupportedVersion)?;
        Ok(Box::new(Session::new(
            Connection::Client(inner),
            Own::Client(Arc::clone(&self.config)),
            version,
            self.initial,
        )))
    }
}

/// The server's part of the configuration.
pub(crate) struct ServerSessions {
    config: Arc<rustls::ServerConfig>,
    initial: Suite,
}

impl ServerSessions {
    /// Fails if the configuration does not support QUIC.
    pub(crate) fn new(
        mut config: rustls::ServerConfig,
        initial: Suite,
    ) -> Result<Self, rustls::Error> {
        config.key_log = Arc::new(ExporterKeyLog(config.key_log));
        let config = Arc::new(config);
        rustls::quic::ServerConnection::new(Arc::clone(&config), Version::V1, Vec::new())?;
        Ok(Self { config, initial })
    }
}

impl crypto::ServerConfig for ServerSessions {
    fn initial_keys(
        &self,
        number: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        let mut keys = initial_keys(known(number)?, dst_cid, Side::Server, &self.initial);
        keys.packet.remote = Box::new(Logged { key: keys.packet.remote, to: To::Accepted });
        Ok(keys)
    }

    fn retry_tag(&self, number: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        let mut pseudo = pseudo_packet(orig_dst_cid, packet);
        if number == V2 {
            let at = 1 + orig_dst_cid.len();
            pseudo[at] = version::to_v2(pseudo[at]);
        }
        integrity::retry_tag(number == V2, &pseudo)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        // The engine calls `initial_keys` first, which accepts the same versions.
        let version = known(version).unwrap_or(Version::V1);
        let config = Arc::clone(&self.config);
        let inner = rustls::quic::ServerConnection::new(config, version, encoded(params));
        Box::new(Session::new(
            Connection::Server(inner.expect("`new` has made one")),
            Own::Server(Arc::clone(&self.config)),
            version,
            self.initial,
        ))
    }
}

fn encoded(params: &TransportParameters) -> Vec<u8> {
    let mut bytes = Vec::new();
    params.write(&mut bytes);
    if reset_at::current().is_some() {
        reset_at::announce(&mut bytes);
    }
    #[cfg(any(test, fuzzing))]
    let bytes = super::tamper::parameters(bytes);
    if let Some(log) = qlog::current() {
        log.parameters(true, &bytes);
    }
    bytes
}

/// RFC 9001 §5.8: the original connection id, then the packet.
fn pseudo_packet(orig_dst_cid: &ConnectionId, packet: &[u8]) -> Vec<u8> {
    let mut pseudo = Vec::with_capacity(1 + orig_dst_cid.len() + packet.len());
    pseudo.push(orig_dst_cid.len() as u8);
    pseudo.extend_from_slice(orig_dst_cid);
    pseudo.extend_from_slice(packet);
    pseudo
}

fn failed(code: TransportErrorCode, reason: String) -> TransportError {
    TransportError { code, frame: None, reason }
}

/// State of a connection's TLS.
enum Tls {
    Running(Box<Running>),
    /// A server's, which has nothing more to read or write.
    Concluded(Box<Concluded>),
}

struct Running {
    connection: Connection,
    own: Own,
    /// Servers: the exporter secret, once known.
    exporter: Option<OkmBlock>,
}

/// The local configuration.
enum Own {
    Client(Arc<rustls::ClientConfig>),
    Server(Arc<rustls::ServerConfig>),
}

impl Own {
    fn explain(&self, error: &rustls::Error, seen: &Seen) -> String {
        match self {
            Self::Client(own) => refusal::explain(error, Side::Client, seen, &own.alpn_protocols),
            Self::Server(own) => refusal::explain(error, Side::Server, seen, &own.alpn_protocols),
        }
    }
}

/// One connection's TLS.
struct Session {
    version: Version,
    is_reported: bool,
    next: Option<Secrets>,
    tls: Tls,
    suite: Suite,
    log: Option<Arc<Log>>,
    resets: Option<Arc<Shared>>,
}

impl Session {
    fn new(connection: Connection, own: Own, version: Version, suite: Suite) -> Self {
        let exporter = None;
        Self {
            version,
            is_reported: false,
            next: None,
            tls: Tls::Running(Box::new(Running { connection, own, exporter })),
            suite,
            log: qlog::current(),
            resets: reset_at::current(),
        }
    }

    /// A key of 1-RTT or 0-RTT packets.
    fn translated(&self, key: Box<dyn PacketKey>) -> Box<dyn PacketKey> {
        let key = self.logged(key);
        match &self.resets {
            Some(shared) => Box::new(Translated { key, shared: Arc::clone(shared) }),
            None => key,
        }
    }

    fn translated_pair(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        KeyPair { local: self.translated(keys.local), remote: self.translated(keys.remote) }
    }

    fn logged(&self, key: Box<dyn PacketKey>) -> Box<dyn PacketKey> {
        match &self.log {
            Some(log) => Box::new(Logged { key, to: To::Log(Arc::clone(log)) }),
            None => key,
        }
    }

    fn logged_pair(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        KeyPair { local: self.logged(keys.local), remote: self.logged(keys.remote) }
    }

    fn logged_keys(&self, keys: Keys) -> Keys {
        Keys { header: keys.header, packet: self.logged_pair(keys.packet) }
    }

    /// Drops rustls' connection if it is a server's that is finished: the engine has its keys, and
    /// it just had nothing to write.
    fn conclude(&mut self) {
        let Tls::Running(running) = &mut self.tls else {
            return;
        };
        let is_server = matches!(running.connection, Connection::Server(_));
        if !is_server || self.next.is_none() || running.connection.is_handshaking() {
            return;
        }
        let secret = running.exporter.take();
        let concluded = secret.and_then(|secret| Concluded::of(&running.connection, secret));
        if let Some(concluded) = concluded {
            self.tls = Tls::Concluded(Box::new(concluded));
        }
    }
}

/// Error for a message to a concluded server: rustls' answer to any message, even a `KeyUpdate`
/// (RFC 9001 §6).
fn unexpected() -> TransportError {
    failed(
        TransportErrorCode::crypto(AlertDescription::UnexpectedMessage.into()),
        "received a TLS message after the handshake".to_owned(),
    )
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.logged_keys(initial_keys(self.version, dst_cid, side, &self.suite))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        if !self.is_reported {
            return None;
        }
        Some(Box::new(match &self.tls {
            Tls::Running(running) => Agreed::of(&running.connection),
            Tls::Concluded(concluded) => concluded.agreed.clone(),
        }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let chain: PeerCertificates = match &self.tls {
            Tls::Running(running) => running.connection.peer_certificates()?.to_vec(),
            Tls::Concluded(concluded) => concluded.peer.clone()?,
        };
        Some(Box::new(chain))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let Tls::Running(running) = &self.tls else {
            // The engine takes them with the first message.
            return None;
        };
        let keys = running.connection.zero_rtt_keys()?;
        Some((
            Box::new(Header(keys.header)),
            self.translated(packet_key(keys.packet, self.version)),
        ))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        match &self.tls {
            Tls::Running(running) => match &running.connection {
                Connection::Client(client) => Some(client.is_early_data_accepted()),
                Connection::Server(_) => None,
            },
            Tls::Concluded(_) => None,
        }
    }

    fn is_handshaking(&self) -> bool {
        match &self.tls {
            Tls::Running(running) => running.connection.is_handshaking(),
            Tls::Concluded(_) => false,
        }
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let Tls::Running(running) = &mut self.tls else {
            return Err(unexpected());
        };
        let connection = &mut running.connection;
        let ((result, secret), seen) =
            refusal::observe(|| exporter::capture(|| connection.read_hs(bytes)));
        running.exporter = secret.or(running.exporter.take());
        result.map_err(|error| {
            let alert = connection.alert().map(u8::from);
            let code = alert.map(TransportErrorCode::crypto);
            let code = code.unwrap_or(TransportErrorCode::PROTOCOL_VIOLATION);
            failed(code, running.own.explain(&error, &seen))
        })?;
        // rustls has no event for this: a server reads the name in the first message, a client the
        // protocol in the answer.
        let known = connection.alpn_protocol().is_some() || server_name(connection).is_some();
        if !self.is_reported && (known || !connection.is_handshaking()) {
            self.is_reported = true;
            return Ok(true);
        }
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let (side, bytes) = match &self.tls {
            Tls::Running(running) => match &running.connection {
                Connection::Client(client) => (Side::Client, client.quic_transport_parameters()),
                Connection::Server(server) => (Side::Server, server.quic_transport_parameters()),
            },
            Tls::Concluded(concluded) => (Side::Server, concluded.parameters.as_deref()),
        };
        let Some(mut bytes) = bytes else {
            return Ok(None);
        };
        if let Some(log) = &self.log {
            log.parameters(false, bytes);
        }
        if let Some(resets) = &self.resets {
            resets.read_parameters(bytes)?;
        }
        Ok(Some(TransportParameters::read(side, &mut bytes)?))
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let Tls::Running(running) = &mut self.tls else {
            return None;
        };
        let had_len = buf.len();
        let change = running.connection.write_hs(buf);
        if change.is_none() && buf.len() == had_len {
            self.conclude();
        }
        Some(match change? {
            KeyChange::Handshake { keys } => self.logged_keys(long_keys(keys, self.version)),
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                // Short headers are the same in both versions.
                let keys = long_keys(keys, Version::V1);
                Keys { header: keys.header, packet: self.translated_pair(keys.packet) }
            }
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(self.translated_pair(KeyPair {
            local: packet_key(keys.local, Version::V1),
            remote: packet_key(keys.remote, Version::V1),
        }))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some(token_len) = payload.len().checked_sub(16) else {
            return false;
        };
        let (token, tag) = payload.split_at(token_len);
        let mut pseudo = pseudo_packet(orig_dst_cid, header);
        let is_v2 = matches!(self.version, Version::V2);
        if is_v2 {
            let at = 1 + orig_dst_cid.len();
            pseudo[at] = version::to_v2(pseudo[at]);
        }
        pseudo.extend_from_slice(token);
        // Both are public: the tag protects against accidents, not attackers (RFC 9001 §5.8).
        integrity::retry_tag(is_v2, &pseudo) == tag
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        match &self.tls {
            Tls::Running(running) => running
                .connection
                .export_keying_material(output, label, Some(context))
                .map(drop)
                .map_err(|_| ExportKeyingMaterialError),
            Tls::Concluded(concluded) => concluded.exporter.export(output, label, context),
        }
    }
}
