//! The part of a server's TLS session that is kept after its handshake.
//!
//! rustls keeps some 6 KB per connection: handshake buffers, and contexts of TLS records, which
//! QUIC does not use. A server reads nothing more and, once its tickets are written, writes nothing
//! more: tickets are all that is left of RFC 8446 §4.6 in QUIC, which forbids post-handshake
//! authentication and `KeyUpdate` (RFC 9001 §4.4, §6). A client keeps its rustls connection,
//! because tickets may arrive at any time.
//!
//! Owns: what the engine and the application may still ask for; immutable. Called by: `session`.

use super::exporter::Exporter;
use super::reader::Reader;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::tls13::OkmBlock;
use rustls::pki_types::CertificateDer;
use rustls::quic::Connection;
use rustls::{CipherSuite, HandshakeKind, NamedGroup};
use std::time::Duration;

const MAX_IDLE_TIMEOUT: u64 = 0x01;

/// What a handshake agreed on, in the type that the engine passes through.
#[derive(Debug, Clone)]
pub(crate) struct Agreed {
    pub protocol: Option<Vec<u8>>,
    pub server_name: Option<String>,
    pub cipher_suite: Option<CipherSuite>,
    pub key_exchange: Option<NamedGroup>,
    pub resumed: bool,
    /// The peer's limit, if it has one.
    pub idle_timeout: Option<Duration>,
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
            idle_timeout: connection.quic_transport_parameters().and_then(idle_timeout),
        }
    }
}

/// `max_idle_timeout` of encoded transport parameters (RFC 9000 §18.2): milliseconds, 0 for none.
fn idle_timeout(parameters: &[u8]) -> Option<Duration> {
    let mut reader = Reader(parameters);
    while let Some(number) = reader.number()
        && let Some(value) = reader.take_counted()
    {
        if number == MAX_IDLE_TIMEOUT {
            let milliseconds = Reader(value).number().filter(|milliseconds| *milliseconds > 0);
            return milliseconds.map(Duration::from_millis);
        }
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_timeout_is_read_among_other_parameters() {
        let seconds = |count| Some(Duration::from_secs(count));
        assert_eq!(idle_timeout(&[0x01, 0x02, 0x43, 0xe8]), seconds(1));
        // After an unknown one, and in eight bytes.
        let long = [0x40, 0x99, 0x01, 0xff, 0x01, 0x08, 0xc0, 0, 0, 0, 0, 0, 0x75, 0x30];
        assert_eq!(idle_timeout(&long), seconds(30));
        for none in [&[][..], &[0x03, 0x02, 0x45, 0xc0], &[0x01, 0x01, 0x00], &[0x01, 0x02, 0x43]] {
            assert_eq!(idle_timeout(none), None);
        }
    }
}
