#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod capsule;
mod config;
mod connection;
mod error;
mod event;
mod fields;
mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[allow(clippy::missing_panics_doc, clippy::unwrap_used)]
pub mod fuzz;
pub mod limits;
mod priority;
pub mod qpack;
pub mod settings;
mod stream_id;
pub mod varint;
pub mod webtransport;

pub use config::{Config, LocalStreams};
pub use connection::Connection;
pub use error::{Code, ConnectionError, StreamError};
pub use event::{Event, Transmit};
pub use fields::Protocol;
pub use priority::Priority;
pub use settings::Settings;
pub use stream_id::{Role, StreamHasher, StreamId, StreamMap};
