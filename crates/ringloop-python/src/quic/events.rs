//! Events with aioquic's names and fields, as small native objects.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::ffi::{self, Fallible, intern};

/// Base of all events.
#[pyclass(frozen, subclass, module = "ringloop._native.quic")]
pub struct QuicEvent;

#[pymethods]
impl QuicEvent {
    #[new]
    fn new() -> Self {
        Self
    }
}

/// Defines an event: its fields can be read, matched by position, compared and shown.
macro_rules! event {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[pyclass(frozen, extends = QuicEvent, get_all, module = "ringloop._native.quic")]
        pub struct $name {
            $($(#[$field_doc])* $field: $type,)*
        }

        impl $name {
            /// Makes the object.
            pub fn object(py: Python<'_>, $($field: impl Into<$type>),*) -> PyResult<Bound<'_, PyAny>> {
                let event = Self { $($field: $field.into()),* };
                let initializer = PyClassInitializer::from(QuicEvent).add_subclass(event);
                Ok(Bound::new(py, initializer)?.into_any())
            }
        }

        #[pymethods]
        impl $name {
            #[classattr]
            #[allow(non_upper_case_globals, reason = "the name that PEP 634 gives")]
            const __match_args__: ($(event!(@text $field),)*) = ($(stringify!($field),)*);

            #[new]
            fn new($($field: $type),*) -> PyClassInitializer<Self> {
                PyClassInitializer::from(QuicEvent).add_subclass(Self { $($field),* })
            }

            fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyString>> {
                let fields = [$(slf.getattr(intern!(slf.py(), stringify!($field)))?),*];
                let template = [
                    concat!(stringify!($name), "("),
                    $(concat!(stringify!($field), "=%r"), ", "),*
                ];
                let template = format!("{})", template.concat().trim_end_matches(", "));
                ffi::fill_template(&ffi::new_str(slf.py(), &template)?, &fields.each_ref())
            }

            fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
                if !other.get_type().is(slf.get_type()) {
                    return Ok(false);
                }
                $(
                    if !slf.getattr(intern!(slf.py(), stringify!($field)))?.eq(other.getattr(intern!(slf.py(), stringify!($field)))?)? {
                        return Ok(false);
                    }
                )*
                Ok(true)
            }
        }
    };
    (@text $field:ident) => { &'static str };
}

event! {
    /// A connection id was given to the peer.
    ConnectionIdIssued {
        /// The id: 1 to 20 bytes (RFC 9000 §5.1).
        connection_id: Py<PyAny>,
    }
}
event! {
    /// The peer has retired a connection id.
    ConnectionIdRetired {
        /// The id: 1 to 20 bytes (RFC 9000 §5.1.2).
        connection_id: Py<PyAny>,
    }
}
event! {
    /// The connection has ended.
    ConnectionTerminated {
        /// QUIC's code (RFC 9000 §20.1), or the application's: 0 to 2^62 - 1.
        error_code: Fallible<u64>,
        /// The type of the offending frame (RFC 9000 §19); None: the application closed it, or no frame caused it.
        frame_type: Fallible<Option<u64>>,
        /// The reason given by the end that closed it; may be empty.
        reason_phrase: Fallible<String>,
    }
}
event! {
    /// A datagram has arrived.
    DatagramFrameReceived {
        /// The payload (RFC 9221).
        data: Py<PyAny>,
    }
}
event! {
    /// The handshake is complete.
    HandshakeCompleted {
        /// The negotiated application protocol (RFC 7301); None: none was requested.
        alpn_protocol: Fallible<Option<String>>,
        /// Clients: whether the server accepted early data (RFC 9001 §4.6.2).
        early_data_accepted: bool,
        /// Whether an earlier session was resumed (RFC 8446 §2.2).
        session_resumed: bool,
    }
}
event! {
    /// The peer has acknowledged a ping.
    PingAcknowledged {
        /// The number that the ping was sent with.
        uid: Fallible<u64>,
    }
}
event! {
    /// The application protocol was negotiated.
    ProtocolNegotiated {
        /// The protocol (RFC 7301); None: none was requested.
        alpn_protocol: Fallible<Option<String>>,
    }
}
event! {
    /// The peer stopped receiving a stream.
    StopSendingReceived {
        /// The application's code (RFC 9000 §19.5): 0 to 2^62 - 1.
        error_code: Fallible<u64>,
        /// The stream's number (RFC 9000 §2.1).
        stream_id: Fallible<u64>,
    }
}
event! {
    /// Bytes of a stream, or its end, have arrived.
    StreamDataReceived {
        /// The next bytes of the stream, in order; may be empty at its end.
        data: Py<PyAny>,
        /// Whether the stream ends with them.
        end_stream: bool,
        /// The stream's number (RFC 9000 §2.1).
        stream_id: Fallible<u64>,
    }
}
event! {
    /// The peer reset a stream.
    StreamReset {
        /// The application's code (RFC 9000 §19.4): 0 to 2^62 - 1.
        error_code: Fallible<u64>,
        /// The stream's number (RFC 9000 §2.1).
        stream_id: Fallible<u64>,
    }
}

/// Adds the classes.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<QuicEvent>()?;
    module.add_class::<ConnectionIdIssued>()?;
    module.add_class::<ConnectionIdRetired>()?;
    module.add_class::<ConnectionTerminated>()?;
    module.add_class::<DatagramFrameReceived>()?;
    module.add_class::<HandshakeCompleted>()?;
    module.add_class::<PingAcknowledged>()?;
    module.add_class::<ProtocolNegotiated>()?;
    module.add_class::<StopSendingReceived>()?;
    module.add_class::<StreamDataReceived>()?;
    module.add_class::<StreamReset>()
}
