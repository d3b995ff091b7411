//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3-16), client and server, without I/O.
//!
//! Owns: [`Sessions`], one per [`Connection`](crate::Connection): sessions, the association of streams and datagrams
//! with them, and their flow control. It owns no stream data: once it has reported a stream's session, the data passes
//! directly between QUIC and the application. Called by: the driver of the connection, with every
//! [`Event`](crate::Event) of it.
//!
//! ```
//! use ringloop_h3::{Config, Connection, LocalStreams, Role, StreamId, webtransport};
//!
//! let wanted = webtransport::Config::default();
//! let mut config = Config::default();
//! wanted.enable(Role::Server, &mut config);
//! let streams = LocalStreams {
//!     control: StreamId(3),
//!     encoder: StreamId(7),
//!     decoder: StreamId(11),
//! };
//! let mut connection = Connection::new(Role::Server, config, streams);
//! let mut sessions = webtransport::Sessions::new(Role::Server, wanted);
//!
//! // After each `connection.receive`:
//! while let Some(event) = connection.poll_event() {
//!     if let Some(event) = sessions.handle(&mut connection, event)? {
//!         // Not of WebTransport: a plain request.
//!         drop(event);
//!     }
//! }
//! while let Some(event) = sessions.poll_event() {
//!     if let webtransport::Event::Request { session, .. } = event {
//!         sessions.accept(&mut connection, session, http::HeaderMap::new(), None)?;
//!     }
//! }
//! // Then send what `connection.poll_transmit` and `sessions.poll_transmit` return.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Dialects
//! Each draft has its own setting; both ends send the settings of all drafts that they support, and the newest common one
//! is used. [`Config::enable`] sends:
//!
//! | setting | value | for whom |
//! |---|---|---|
//! | `ENABLE_CONNECT_PROTOCOL` 0x8 (a server) | 1 | all: sessions are extended CONNECTs |
//! | `H3_DATAGRAM` 0x33 | 1 | all |
//! | `H3_DATAGRAM` of a draft, 0xffd277 | 1 | old Chromium |
//! | `ENABLE_WEBTRANSPORT` 0x2b603742 | 1 | draft 02: Chromium and Firefox know no other |
//! | `WEBTRANSPORT_MAX_SESSIONS` 0xc671706a | 1, or [`Config::sessions_max`] with flow control | draft 07: enough for Safari |
//! | `WT_MAX_SESSIONS` 0x14e9cd29 | the same | drafts 13 and 14. Safari refuses more than 1 (it was seen with 2^62 − 1) unless initial limits are sent too, so the value is 1 without them |
//! | `WT_INITIAL_MAX_DATA` 0x2b61, `…_STREAMS_UNI` 0x2b64, `…_BIDI` 0x2b65 | [`Config::flow_control`] | drafts 13 and later; not sent by default: QUIC's own flow control is there in any case |
//! | `WT_ENABLED` 0x2c7cf000 | 1, only with [`Config::has_reset_stream_at`] | drafts 15 and later, which require the QUIC extension `RESET_STREAM_AT`: announcing the setting without it breaks the handshake of those peers, while all deployed ones fall back to an older dialect |
//!
//! A server is lenient: it treats a client without any of these settings as draft 02, and accepts both upgrade tokens
//! (`webtransport`, `webtransport-h3`). From draft 13 on there is one session per connection unless both ends have flow
//! control; before, up to [`Config::sessions_max`].
//!
//! # Life of a session
//! ```text
//!  client: connect ──▶ pending ──2xx──▶ open ──▶ ended (closed here, or by the peer: waits for the end of its side)
//!  server: request ──▶ pending ─accept─▶ open ──▶ ended                                       └──▶ forgotten
//!            (held until SETTINGS)  └─reject, reset, FIN─▶ forgotten
//! ```
//! Draining is a request, not a state: everything still works (§4.7). A session ends by `WT_CLOSE_SESSION` with code and
//! reason, by FIN (code 0, no reason), or by a reset. Its streams are then reset with `WT_SESSION_GONE`.
//!
//! # Bounds
//! [`Config`] and [`crate::limits`] bound the sessions, pending or open; streams, datagrams and capsules that arrive
//! before their session; and ended sessions that the peer does not end. A stream costs one entry in its session until
//! [`Sessions::stream_ended`]; QUIC limits their number, if data after a stream's header is left to QUIC until the
//! application reads it ([`Connection::header_bytes_missing`](crate::Connection::header_bytes_missing)). There is no
//! clock here: a server that limits how long sessions stay pending, or how long clients take to send SETTINGS, sets its
//! own timer and calls [`Sessions::abort`].
//!
//! # Resets
//! A stream that is reset before its first bytes are acknowledged may never reach its session at the peer. With
//! `RESET_STREAM_AT` the caller makes QUIC deliver the bytes that [`Sessions::open`] returns; without it, delaying the
//! reset until they are acknowledged helps only peers that have read them by then.

mod capsules;
pub mod codes;
mod config;
mod dialect;
mod early;
mod error;
mod event;
mod flow;
mod protocols;
mod session;
mod sessions;

use crate::StreamId;

pub use config::{Config, Direction, Limits};
pub use dialect::Dialect;
pub use error::Error;
pub use event::{Ending, Event};
pub use sessions::Sessions;

/// The context of a session's TLS exporter, whose label is `EXPORTER-WebTransport` (draft-ietf-webtrans-http3-16 §4.8).
///
/// `None` if `label` or `context` has more than 255 bytes.
pub fn exporter_context(session: StreamId, label: &[u8], context: &[u8]) -> Option<Vec<u8>> {
    let mut out = session.0.to_be_bytes().to_vec();
    for part in [label, context] {
        out.push(u8::try_from(part.len()).ok()?);
        out.extend_from_slice(part);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn an_exporters_context_is_laid_out_as_in_the_draft() {
        let context = exporter_context(StreamId(0x104), b"ab", b"c");
        let expected = [&[0, 0, 0, 0, 0, 0, 1, 4][..], b"\x02ab\x01c"].concat();
        assert_eq!(context, Some(expected));
        assert_eq!(exporter_context(StreamId(0), &[0; 256], b""), None);
    }

    #[test]
    fn enabling_keeps_what_else_is_announced() {
        let mut config = crate::Config::default();
        config.settings.others.push((0x21, 7));
        config.settings.extended_connect = true;
        Config::default().enable(Role::Client, &mut config);
        assert!(
            config.raw_streams && config.settings.datagrams && config.settings.extended_connect
        );
        assert_eq!(config.settings.other(0x21), Some(7));
        assert_eq!(config.settings.other(0x2b60_3742), Some(1));
    }
}
