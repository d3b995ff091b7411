//! What is kept of a server's TLS session after its handshake.
//!
//! rustls keeps some 6 KB per connection: handshake buffers, and contexts of TLS records, which
//! QUIC does not use. A server reads nothing more and, once its tickets are written, writes nothing
//! more: tickets are all that is left of RFC 8446 §4.6 in QUIC, which forbids post-handshake
//! authentication and `KeyUpdate` (RFC 9001 §4.4, §6). A client keeps its rustls connection,
//! because tickets may arrive at any time.
//!
//! Owns: what the engine and the application may still ask for; immutable. Called by: `session`.

use super::exporter::Exporter;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::tls13::OkmBlock;
use rustls::pki_types::CertificateDer;
use rustls::quic::Connection;
use rustls::{CipherSuite, HandshakeKind, NamedGroup};

/// What a handshake agreed on, in the type that the engine passes through.
#[derive(Debug, Clone)]
pub(crate) struct Agreed {
    pub protocol: Option<Vec<u8>>,
    pub server_name: Option<String>,
    pub cipher_suite: Option<CipherSuite>,
    pub key_exchange: Option<NamedGroup>,
    pub resumed: bool,
}

impl Agreed {
    pub(super) fn of(connection: &Connection) -> Self {
        let suite = connection.negotiated_cipher_suite();
        let group = connection.negotiated_key_exchange_group();
        Self {
            protocol: connection.alpn_protocol().map(<[u8]>::to_vec),
            server_name: server_name(connection).map(str::to_owned),
            cipher_suite: suite.map(|suite| suite.suite()),
            key_exchange: group.map(SupportedKxGroup::name),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }
}

/// Servers: the name that the client requested.
pub(super) fn server_name(connection: &Connection) -> Option<&str> {
    match connection {
        Connection::Client(_) => None,
        Connection::Server(server) => server.server_name(),
    }
}

pub(crate) type PeerCertificates = Vec<CertificateDer<'static>>;

/// A concluded handshake.
pub(super) struct Concluded {
    pub agreed: Agreed,
    pub peer: Option<PeerCertificates>,
    /// The client's transport parameters, encoded.
    pub parameters: Option<Box<[u8]>>,
    pub exporter: Exporter,
}

impl Concluded {
    /// For a connection that reported this exporter secret.
    pub(super) fn of(connection: &Connection, secret: OkmBlock) -> Option<Self> {
        let suite = connection.negotiated_cipher_suite()?.tls13()?;
        Some(Self {
            agreed: Agreed::of(connection),
            peer: connection.peer_certificates().map(<[_]>::to_vec),
            parameters: connection.quic_transport_parameters().map(Box::from),
            exporter: Exporter::new(secret, suite),
        })
    }
}
