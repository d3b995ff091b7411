//! HTTP/3 on a connection: a [`Driver`] between the QUIC core and `ringloop_h3`'s state machine.
//!
//! Owns: the connection's HTTP/3 state, what has arrived of each exchange, requests that the
//! application has not taken. Called by: the endpoint's dispatch with events of QUIC, and the
//! objects of exchanges, both under the endpoint's lock. Calls no Python, and owns none of its
//! objects.
//!
//! Byte path, in: core → `Bytes` → frames → the body's queue (`received`), slices of what was
//! received. Out: `Bytes` of the application behind a frame's head → core or the stream's queue.
//!
//! Back-pressure: a stream whose body's queue is full is not read, so that the peer runs out of
//! credit; the application's reads resume it. Written bytes without credit wait in the
//! stream's queue, as those of plain streams do.

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
