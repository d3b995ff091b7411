//! Events with aioquic's names and fields, as small native objects.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::ffi::{self, Fallible, intern};

/// What all events are.
#[pyclass(frozen, subclass, module = "ringloop._native.quic")]
pub struct QuicEvent;

#[pymethods]
impl QuicEvent {
    #[new]
    fn new() -> Self {
        Self
    }
}

/// Define an event: its fields can be read, matched by position, compared and shown.
macro_rules! event {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[pyclass(frozen, extends = QuicEvent, get_all, module = "ringloop._native.quic")]
        pub struct $name {
            $($field: $type,)*
        }

        impl $name {
            /// Make the object.
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
    ConnectionIdIssued { connection_id: Py<PyAny> }
}
event! {
    /// The peer uses a connection id no longer.
    ConnectionIdRetired { connection_id: Py<PyAny> }
}
event! {
    /// The connection is over.
    ConnectionTerminated { error_code: Fallible<u64>, frame_type: Fallible<Option<u64>>, reason_phrase: Fallible<String> }
}
event! {
    /// A datagram has come.
    DatagramFrameReceived { data: Py<PyAny> }
}
event! {
    /// The handshake is complete.
    HandshakeCompleted { alpn_protocol: Fallible<Option<String>>, early_data_accepted: bool, session_resumed: bool }
}
event! {
    /// The peer has acknowledged a ping.
    PingAcknowledged { uid: Fallible<u64> }
}
event! {
    /// The application's protocol is agreed on.
    ProtocolNegotiated { alpn_protocol: Fallible<Option<String>> }
}
event! {
    /// The peer does not want to receive a stream.
    StopSendingReceived { error_code: Fallible<u64>, stream_id: Fallible<u64> }
}
event! {
    /// Bytes of a stream have come, or its end.
    StreamDataReceived { data: Py<PyAny>, end_stream: bool, stream_id: Fallible<u64> }
}
event! {
    /// The peer gave up sending on a stream.
    StreamReset { error_code: Fallible<u64>, stream_id: Fallible<u64> }
}

/// Add the classes.
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
