//! Error codes, and the two kinds of errors: the peer's fault and the application's.

use crate::qpack;
use std::fmt;

/// An HTTP/3 error code, carried by QUIC's `CONNECTION_CLOSE`, `RESET_STREAM` and `STOP_SENDING`.
///
/// Any 62-bit number may arrive; an unknown one counts as [`Code::H3_NO_ERROR`] (RFC 9114 §9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Its name in the RFCs, such as `H3_NO_ERROR`; `None` if no RFC defines it.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// A datagram or capsule cannot be parsed (RFC 9297 §5.2).
    H3_DATAGRAM_ERROR = 0x33;
    /// Closed without an error (RFC 9114 §8.1, like all that follow).
    H3_NO_ERROR = 0x100;
    /// The peer violated the protocol in a way without a more specific code.
    H3_GENERAL_PROTOCOL_ERROR = 0x101;
    /// This end has failed.
    H3_INTERNAL_ERROR = 0x102;
    /// A stream that must not be opened, or only once.
    H3_STREAM_CREATION_ERROR = 0x103;
    /// A control or QPACK stream was closed.
    H3_CLOSED_CRITICAL_STREAM = 0x104;
    /// A frame that is not permitted on its stream, or not at this point.
    H3_FRAME_UNEXPECTED = 0x105;
    /// A frame with a wrong length or layout.
    H3_FRAME_ERROR = 0x106;
    /// The peer causes too much load.
    H3_EXCESSIVE_LOAD = 0x107;
    /// A stream or push id that is out of range, or was raised or reduced illegally.
    H3_ID_ERROR = 0x108;
    /// An error in the payload of SETTINGS.
    H3_SETTINGS_ERROR = 0x109;
    /// The control stream did not begin with SETTINGS.
    H3_MISSING_SETTINGS = 0x10a;
    /// The request was not processed, and may be sent again.
    H3_REQUEST_REJECTED = 0x10b;
    /// The request or its response is no longer needed.
    H3_REQUEST_CANCELLED = 0x10c;
    /// A request stream ended before the request was complete.
    H3_REQUEST_INCOMPLETE = 0x10d;
    /// A malformed message (RFC 9114 §4.1.2).
    H3_MESSAGE_ERROR = 0x10e;
    /// The connection of a CONNECT request was reset or closed.
    H3_CONNECT_ERROR = 0x10f;
    /// The request must be made over another version of HTTP.
    H3_VERSION_FALLBACK = 0x110;
    /// A field section cannot be decoded (RFC 9204 §6).
    QPACK_DECOMPRESSION_FAILED = 0x200;
    /// An error on the peer's encoder stream (RFC 9204 §6).
    QPACK_ENCODER_STREAM_ERROR = 0x201;
    /// An error on the peer's decoder stream (RFC 9204 §6).
    QPACK_DECODER_STREAM_ERROR = 0x202;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A violation by the peer that ends the connection: close QUIC with this code and reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionError {
    /// The application error code of `CONNECTION_CLOSE`.
    pub code: Code,
    /// Its reason phrase.
    pub reason: &'static str,
}

impl ConnectionError {
    /// An error with this code and reason.
    pub const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl std::error::Error for ConnectionError {}

impl From<qpack::Error> for ConnectionError {
    fn from(error: qpack::Error) -> Self {
        match error {
            qpack::Error::DecompressionFailed(reason) => {
                Self::new(Code::QPACK_DECOMPRESSION_FAILED, reason)
            }
            qpack::Error::EncoderStream(reason) => {
                Self::new(Code::QPACK_ENCODER_STREAM_ERROR, reason)
            }
            qpack::Error::DecoderStream(reason) => {
                Self::new(Code::QPACK_DECODER_STREAM_ERROR, reason)
            }
            qpack::Error::SectionTooLong => {
                Self::new(Code::H3_EXCESSIVE_LOAD, "a field section is too long")
            }
        }
    }
}

/// A call of the application failed, without effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// There is no such request stream, or it has ended.
    Unknown,
    /// The sending side has ended: by `end`, by a reset, or because the peer stopped it.
    Closed,
    /// Not permitted at this point; says why.
    Unexpected(&'static str),
    /// A message that cannot be expressed in HTTP/3; says why.
    Invalid(&'static str),
    /// The fields are longer than the peer's `SETTINGS_MAX_FIELD_SECTION_SIZE`.
    SectionTooLong,
    /// The body would be longer than the `content-length` that was sent (RFC 9114 §4.1.2).
    BodyTooLong {
        /// The declared length in bytes.
        declared: u64,
        /// Bytes of the body up to and with the refused ones.
        given: u64,
    },
    /// The message would end before the `content-length` that was sent, or is sent with these fields.
    BodyTooShort {
        /// The declared length in bytes.
        declared: u64,
        /// Bytes of the body up to its end.
        given: u64,
    },
    /// The peer accepts no more requests (GOAWAY): use another connection.
    GoingAway,
    /// The peer's SETTINGS do not allow it, or have not arrived; says what.
    NotSupported(&'static str),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no such request stream"),
            Self::Closed => f.write_str("the sending side of the stream has ended"),
            Self::Unexpected(what) | Self::Invalid(what) => f.write_str(what),
            Self::SectionTooLong => f.write_str("the fields are longer than the peer accepts"),
            Self::BodyTooLong { declared, given } => {
                write!(f, "the body is longer than its content-length: {given} of {declared} bytes")
            }
            Self::BodyTooShort { declared, given } => {
                write!(f, "the body ends before its content-length: {given} of {declared} bytes")
            }
            Self::GoingAway => f.write_str("the peer accepts no more requests on this connection"),
            Self::NotSupported(what) => write!(f, "the peer does not support {what}"),
        }
    }
}

impl std::error::Error for StreamError {}
