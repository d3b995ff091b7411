//! What is kept of a server's TLS when its handshake is over.
//!
//! rustls keeps some 6 KB a connection: buffers of the handshake, and contexts of TLS records, which QUIC has none of.
//! A server reads nothing more and, once its tickets are written, writes nothing more: tickets are all that is left of
//! RFC 8446 §4.6 in QUIC, which forbids certificates asked for late and `KeyUpdate` (RFC 9001 §4.4, §6). A client
//! keeps its rustls: tickets come at any time.
//!
//! Owns: what the engine and the program may still ask for. Called by: `session`. Never does: change.

use super::exporter::Exporter;
use super::session::{Agreed, PeerCertificates};
use rustls::crypto::tls13::OkmBlock;
use rustls::quic::Connection;

/// The end of a handshake.
pub(super) struct Concluded {
    pub agreed: Agreed,
    pub peer: Option<PeerCertificates>,
    /// The client's transport parameters, encoded.
    pub parameters: Option<Box<[u8]>>,
    pub exporter: Exporter,
}

impl Concluded {
    /// Of a connection that has told this exporter's secret.
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
