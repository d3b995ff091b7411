//! Converts the protocol's errors into the exceptions of `ringloop.quic.errors`.

use pyo3::prelude::*;
use ringloop_quic::error::{
    ConfigError, ConnectError, ConnectionError, DatagramError, StreamError,
};
use ringloop_quic::session::{End, Unfinished};

use super::address;
use super::exception::{configuration, exception};
use crate::error;
use crate::ffi::EmptyTuple;

/// A connection's end, for messages and for code.
pub struct Close {
    pub code: u64,
    pub reason: String,
    /// Whether the code is the application's, not the protocol's.
    pub is_application: bool,
    pub class: &'static str,
}

/// RFC 9000 §20.1: `INTERNAL_ERROR`, which aioquic also uses if there was no code on the wire.
const NO_CODE: u64 = 1;
/// RFC 9001 §4.8: TLS alerts.
const ALERTS: std::ops::Range<u64> = 0x100..0x200;

/// How a connection ended.
pub fn close_of(end: &End) -> Option<Close> {
    let close = |code, reason: &str, class| Close {
        code,
        reason: reason.to_owned(),
        is_application: false,
        class,
    };
    Some(match end.error()? {
        ConnectionError::ClosedByPeer { code, reason } => Close {
            code: *code,
            reason: String::from_utf8_lossy(reason).into_owned(),
            is_application: true,
            class: "ConnectionClosedByPeer",
        },
        ConnectionError::Closed => {
            let (code, reason) = end.closed_with().cloned().unwrap_or_default();
            Close {
                code,
                reason: String::from_utf8_lossy(&reason).into_owned(),
                is_application: true,
                class: "ConnectionClosed",
            }
        }
        ConnectionError::Transport { code, reason }
        | ConnectionError::TransportByPeer { code, reason } => {
            let is_alert = ALERTS.contains(code);
            close(*code, reason, if is_alert { "TlsError" } else { "TransportError" })
        }
        error @ ConnectionError::Unreachable { .. } => {
            close(NO_CODE, &error.to_string(), "Unreachable")
        }
        error @ ConnectionError::HandshakeTimedOut { .. } => {
            close(NO_CODE, &error.to_string(), "HandshakeTimeout")
        }
        ConnectionError::TimedOut => close(NO_CODE, "Idle timeout", "IdleTimeout"),
        ConnectionError::Reset => close(NO_CODE, "Stateless reset", "StatelessReset"),
        ConnectionError::VersionMismatch => {
            close(NO_CODE, "Could not find a common protocol version", "VersionMismatch")
        }
        other => close(NO_CODE, &other.to_string(), "TransportError"),
    })
}

/// The exception of a closed connection.
pub fn connection(py: Python<'_>, end: &End) -> PyErr {
    match close_of(end) {
        Some(close) => {
            if let Some(ConnectionError::Unreachable { address, errno }) = end.error() {
                let made = address::to_python(py, *address);
                return made
                    .map_or_else(|error| error, |to| exception(py, close.class, (*errno, to)));
            }
            let by_peer = matches!(
                end.error(),
                Some(
                    ConnectionError::TransportByPeer { .. } | ConnectionError::ClosedByPeer { .. }
                )
            );
            let unfinished = end.unfinished();
            let reason = match (end.error(), unfinished) {
                // aioquic's events do not include that.
                (Some(ConnectionError::TimedOut), Some(unfinished)) => silence(unfinished),
                _ => close.reason,
            };
            let in_handshake = unfinished.is_some();
            let arguments = (close.code, reason, by_peer, close.is_application, in_handshake);
            exception(py, close.class, arguments)
        }
        None => exception(py, "ConnectionClosed", (0, "", false, true)),
    }
}

/// Describes a handshake that ended with the idle timeout.
fn silence(unfinished: &Unfinished) -> String {
    let address = address::canonical(unfinished.address);
    if unfinished.has_answered {
        format!(
            "{address} has answered, but sent nothing more within the idle time-out: the handshake is not complete"
        )
    } else {
        format!("no answer from {address} within the idle time-out")
    }
}

pub fn stream(py: Python<'_>, end: &End, error: &StreamError) -> PyErr {
    match error {
        StreamError::Reset(code) => exception(py, "StreamResetError", (*code,)),
        StreamError::Stopped(code) => exception(py, "StreamStoppedError", (*code,)),
        StreamError::EarlyDataRejected => exception(py, "EarlyDataRejected", EmptyTuple),
        StreamError::Connection(_) => connection(py, end),
        _ => exception(py, "StreamClosedError", EmptyTuple),
    }
}

pub fn datagram(py: Python<'_>, end: &End, error: &DatagramError) -> PyErr {
    match error {
        DatagramError::Connection(_) => connection(py, end),
        DatagramError::Disabled => {
            let text = "datagrams are off at this end: set datagram_receive_buffer= to a number of bytes \
            (max_datagram_frame_size= in the aioquic API)";
            exception(py, "DatagramError", (text.to_owned(),))
        }
        DatagramError::UnsupportedByPeer => {
            let text = "the peer accepts no datagrams: they are off in its configuration \
                        (datagram_receive_buffer, or max_datagram_frame_size)";
            exception(py, "DatagramError", (text.to_owned(),))
        }
        error => exception(py, "DatagramError", (error.to_string(),)),
    }
}

pub fn connect(py: Python<'_>, error: &ConnectError) -> PyErr {
    let text = match error {
        ConnectError::NoConnectionIds => {
            "no connection ids are left: give Endpoint a larger connection_id_length=".to_owned()
        }
        ConnectError::UnsupportedVersion => {
            "the endpoint does not support this version of QUIC: give it versions= that include the configuration's version"
                .to_owned()
        }
        error => error.to_string(),
    };
    exception(py, "ConnectError", (text,))
}

pub fn config(py: Python<'_>, error: ConfigError) -> PyErr {
    match error {
        ConfigError::Io(error) => error::from_io(&error),
        ConfigError::File { path, error } => error::with_path(py, &error, &path),
        error => exception(py, "ConfigurationError", (error.to_string(),)),
    }
}

/// The same, naming the keyword; an `OSError` has the file name.
pub fn config_of(py: Python<'_>, name: &str, error: ConfigError) -> PyErr {
    match error {
        ConfigError::Io(_) | ConfigError::File { .. } => config(py, error),
        error => configuration(py, format!("{name}: {error}")),
    }
}
