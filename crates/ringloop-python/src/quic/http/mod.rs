//! HTTP/3 on a connection: a [`Driver`] between the QUIC core and `ringloop_h3`'s state machine.
//!
//! Owns: the connection's HTTP/3 state, the received part of each exchange, requests that the
//! application has not taken. Called by: the endpoint's dispatch with QUIC events, and exchange
//! objects, both under the endpoint's lock. Calls no Python, and owns no Python objects.
//!
//! Byte path, in: core → `Bytes` → frames → the body's queue (`received`), slices of what was
//! received. Out: the application's `Bytes` after a frame header → core or the stream's queue.
//!
//! Back-pressure: a stream whose body's queue is full is not read, so that the peer runs out of
//! credit; the application's reads resume it. Written bytes without credit wait in the
//! stream's queue, as in plain streams.

mod driver;
mod limited;
mod received;
mod route;
mod sessions;
mod transfer;
mod webtransport;

pub use driver::Driver;
pub use received::{Ending, Section, SharedReceived, Taken, lock};
pub use sessions::OpenError;
pub use webtransport::{SessionEnd, SessionPhase, SharedSession, lock_session};
