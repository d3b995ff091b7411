//! Errors, by whose fault they are.

use crate::codes;
use bytes::Bytes;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer supports none of our QUIC versions.
    VersionMismatch,
    /// The peer violated the protocol, or its certificate was rejected; what it was sent (RFC 9000
    /// §20.1; 0x100 to 0x1ff are TLS alerts).
    Transport {
        /// The code.
        code: u64,
        /// Its error code.
        reason: String,
    },
    /// The peer's protocol stack closed it.
    TransportByPeer {
        /// The code.
        code: u64,
        /// Its reason phrase.
        reason: String,
    },
    /// The peer's application closed it.
    ClosedByPeer {
        /// The application's code.
        code: u64,
        /// Its reason.
        reason: Bytes,
    },
    /// The peer has no state for this connection (stateless reset).
    Reset,
    /// Idle timeout.
    TimedOut,
    /// The handshake took too long (`Transport::handshake_timeout`).
    HandshakeTimedOut {
        /// The peer's address.
        address: SocketAddr,
        /// Whether anything was received from it.
        has_answered: bool,
    },
    /// The first packets could not be delivered: no route, a firewall, a port without a listener.
    Unreachable {
        /// The destination.
        address: SocketAddr,
        /// The errno of sendmsg(2), or of the ICMP error (icmp(7)).
        errno: i32,
    },
    /// Closed locally.
    Closed,
    /// No connection ids left.
    NoConnectionIds,
}

impl ConnectionError {
    /// Its error code, if it has one.
    pub fn code(&self) -> Option<u64> {
        match self {
            Self::Transport { code, .. }
            | Self::TransportByPeer { code, .. }
            | Self::ClosedByPeer { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Same as `Display`, for a `main` that returns it.
impl fmt::Debug for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VersionMismatch => f.write_str("no QUIC version in common with the peer"),
            Self::Transport { code, reason } => {
                write!(f, "the connection failed here with {}", codes::explained(*code, reason))
            }
            Self::TransportByPeer { code, reason } => {
                write!(
                    f,
                    "the peer's protocol stack ended the connection with {}",
                    codes::explained(*code, reason)
                )
            }
            Self::ClosedByPeer { code, reason } => {
                let reason = String::from_utf8_lossy(reason);
                let colon = if reason.is_empty() { "" } else { ": " };
                write!(f, "closed by the peer with code {code}{colon}{reason}")
            }
            Self::Reset => f.write_str("the peer no longer knows the connection (stateless reset)"),
            Self::TimedOut => f.write_str("the peer sent nothing within the idle time-out"),
            Self::HandshakeTimedOut { address, has_answered: false } => {
                write!(f, "no answer from {address} in the handshake's time")
            }
            Self::HandshakeTimedOut { address, .. } => write!(
                f,
                "the handshake with {address} timed out: it has answered, but then sent nothing more or too slowly"
            ),
            Self::Unreachable { address, errno } => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "{address} cannot be reached: {error}")
            }
            Self::Closed => f.write_str("the connection was closed here"),
            Self::NoConnectionIds => f.write_str("no connection ids are left"),
        }
    }
}

impl std::error::Error for ConnectionError {}

impl From<ConnectionError> for io::Error {
    fn from(error: ConnectionError) -> Self {
        let kind = match &error {
            ConnectionError::TimedOut | ConnectionError::HandshakeTimedOut { .. } => {
                io::ErrorKind::TimedOut
            }
            ConnectionError::Reset => io::ErrorKind::ConnectionReset,
            ConnectionError::Closed => io::ErrorKind::NotConnected,
            ConnectionError::Unreachable { errno, .. } => {
                io::Error::from_raw_os_error(*errno).kind()
            }
            ConnectionError::ClosedByPeer { .. } | ConnectionError::TransportByPeer { .. } => {
                io::ErrorKind::ConnectionAborted
            }
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Why a connection could not be started; nothing was sent.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The endpoint is closed.
    EndpointClosed,
    /// Neither the endpoint nor the call has a client configuration.
    NoConfig,
    /// No connection ids left.
    NoConnectionIds,
    /// The name is neither a DNS name nor an address.
    InvalidServerName(String),
    /// Unusable destination: port 0, the unspecified address, or an address family that differs
    /// from the socket's.
    InvalidAddress(SocketAddr),
    /// The endpoint does not support the configuration's version.
    UnsupportedVersion,
    /// TLS or its cryptography panicked: out of memory, or a bug in a component of the application.
    Failed(String),
}

/// Same as `Display`, for a `main` that returns it.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndpointClosed => f.write_str("the endpoint is closed"),
            Self::NoConfig => {
                f.write_str("no client configuration: use Endpoint::client or connect_with")
            }
            Self::NoConnectionIds => f.write_str("no connection ids are left: use longer ones"),
            Self::InvalidServerName(name) => write!(f, "{name:?} is not a valid server name"),
            Self::InvalidAddress(address) => {
                write!(f, "this socket cannot send to {address}")
            }
            Self::UnsupportedVersion => {
                f.write_str("the endpoint does not support this version of QUIC")
            }
            Self::Failed(how) => f.write_str(how),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Why a stream operation failed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer reset the stream, with its application's code.
    Reset(u64),
    /// The peer stopped the stream, with its application's code.
    Stopped(u64),
    /// Finished, reset or stopped locally, or its end was already read.
    Closed,
    /// More data than the requested limit.
    TooLong,
    /// The server rejected early data, so the stream never existed. Open it again.
    EarlyDataRejected,
    /// The connection ended.
    Connection(ConnectionError),
}

/// Same as `Display`, for a `main` that returns it.
impl fmt::Debug for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(code) => write!(f, "the peer reset the stream with code {code}"),
            Self::Stopped(code) => write!(f, "the peer stopped the stream with code {code}"),
            Self::Closed => f.write_str("the stream is closed"),
            Self::TooLong => f.write_str("the stream is longer than the limit"),
            Self::EarlyDataRejected => {
                f.write_str("the server refused early data: open the stream again")
            }
            Self::Connection(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connection(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ConnectionError> for StreamError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Connection(error) => error.into(),
            StreamError::Reset(_) => Self::new(io::ErrorKind::ConnectionReset, error),
            StreamError::Stopped(_) => Self::new(io::ErrorKind::BrokenPipe, error),
            StreamError::Closed => Self::new(io::ErrorKind::NotConnected, error),
            StreamError::TooLong => Self::new(io::ErrorKind::InvalidData, error),
            StreamError::EarlyDataRejected => Self::other(error),
        }
    }
}

/// Why a datagram was not accepted.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// The peer accepts none.
    UnsupportedByPeer,
    /// Disabled in the local configuration.
    Disabled,
    /// Longer than `Connection::max_datagram_len`, or than the send buffer.
    TooLong {
        /// Its length.
        len: usize,
        /// The limit.
        len_max: usize,
    },
    /// No room in the given time.
    Expired,
    /// The connection ended.
    Connection(ConnectionError),
}

/// Same as `Display`, for a `main` that returns it.
impl fmt::Debug for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnsupportedByPeer => f.write_str("the peer accepts no datagrams"),
            Self::Disabled => {
                f.write_str("datagrams are off: see Transport::datagram_receive_buffer")
            }
            Self::TooLong { len, len_max } => write!(
                f,
                "the datagram of {len} bytes is longer than the path carries: at most {len_max} bytes"
            ),
            Self::Expired => f.write_str("there was no room for the datagram in time"),
            Self::Connection(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DatagramError {}

impl From<ConnectionError> for DatagramError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

impl From<DatagramError> for io::Error {
    fn from(error: DatagramError) -> Self {
        match error {
            DatagramError::Connection(error) => error.into(),
            DatagramError::Expired => Self::new(io::ErrorKind::TimedOut, error),
            _ => Self::new(io::ErrorKind::InvalidInput, error),
        }
    }
}

/// An invalid configuration.
#[non_exhaustive]
pub enum ConfigError {
    /// A certificate, key or trust anchor that TLS rejects.
    Tls(rustls::Error),
    /// A file with invalid contents.
    Pem(String),
    /// A file or a directory could not be read.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A source without a path could not be read.
    Io(io::Error),
    /// Protocol names that TLS cannot carry.
    Alpn(String),
    /// A number out of bounds; the text says which.
    OutOfBounds(&'static str),
}

impl ConfigError {
    /// Rejects a number that is out of these bounds.
    pub(crate) fn check(is_good: bool, bounds: &'static str) -> Result<(), Self> {
        is_good.then_some(()).ok_or(Self::OutOfBounds(bounds))
    }
}

/// Same as `Display`, for a `main` that returns it.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => write!(f, "TLS: {error}"),
            Self::Pem(what) => f.write_str(what),
            Self::Alpn(what) => write!(f, "alpn: {what}"),
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Io(error) => error.fmt(f),
            Self::OutOfBounds(what) => write!(f, "out of bounds: {what}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tls(error) => Some(error),
            Self::Io(error) | Self::File { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<rustls::Error> for ConfigError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}

impl From<io::Error> for ConfigError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ConfigError> for io::Error {
    fn from(error: ConfigError) -> Self {
        let kind = match &error {
            ConfigError::File { error, .. } => error.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        match error {
            ConfigError::Io(error) => error,
            error => Self::new(kind, error),
        }
    }
}
