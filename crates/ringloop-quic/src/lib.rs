//! QUIC on ringloop: endpoints, connections, streams and datagrams as futures, and a core without
//! I/O.
//!
//! Read the modules in this order; each starts with what it owns and who calls it:
//!
//! 1. [`core`] – the protocol without sockets, clocks or tasks: datagrams in, datagrams out,
//!    events, a deadline.
//! 2. [`session`] – the state of each connection above that, and its waiters: for the futures of
//!    this crate, and for embedders with their own futures.
//! 3. [`Endpoint`] – a UDP socket of ringloop around a core: `receive` (multishot, GRO), `transmit`
//!    (GSO, ECN, source addresses), one timer. [`sender`] is for embedders too. Several endpoints
//!    at one address: [`Worker`].
//! 4. [`Connection`], [`SendStream`], [`RecvStream`], datagrams – thin futures over the sessions.
//! 5. [`config`], [`tls`], [`limits`], [`stats`], [`qlog`], [`error`], [`codes`].
//!
//! The protocol engine is `quinn-proto`, named in one module (`proto`). QUIC versions 1 and 2.
//!
//! ```no_run
//! use ringloop_quic::config::{ClientConfig, ServerConfig};
//! use ringloop_quic::tls::{Certificate, ClientTls, ServerTls};
//! use ringloop_quic::Endpoint;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let certificate = Certificate::from_pem(&std::fs::read("cert.pem")?, &std::fs::read("key.pem")?)?;
//! ringloop::Runtime::new()?.block_on(async {
//!     let tls = ServerTls::new(certificate).alpn(["echo"]);
//!     let server = Endpoint::server(([0, 0, 0, 0], 4433).into(), ServerConfig::new(tls)?)?;
//!     // Failed handshakes do not end the server; `stats` counts them by reason.
//!     server.on_handshake_failed(|client, error| eprintln!("{client}: {error}"));
//!     while let Some(incoming) = server.accept().await {
//!         ringloop::spawn(async move {
//!             let connection = incoming.accept()?.await?;
//!             while let Ok((mut send, mut recv)) = connection.accept_bi().await {
//!                 let request = recv.read_to_end(64 * 1024).await?;
//!                 send.write_all(&request).await?;
//!                 send.finish()?;
//!             }
//!             Ok::<(), ringloop_quic::error::StreamError>(())
//!         });
//!     }
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })??;
//! # Ok(())
//! # }
//! ```

pub mod codes;
pub mod config;
mod connecting;
mod connection;
pub mod core;
mod datagram;
mod driver;
mod endpoint;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[allow(clippy::unwrap_used)]
pub mod fuzz;
pub mod limits;
mod message;
mod proto;
pub mod qlog;
mod race;
mod receive;
pub mod sender;
pub mod session;
mod shared;
mod socket_drain;
pub mod stats;
pub mod store;
mod stream;
pub mod tls;
mod wakers;
mod workers;

pub use bytes::{Bytes, BytesMut};
pub use connecting::{Connecting, Incoming, ZeroRtt};
pub use connection::Connection;
pub use datagram::Policy;
pub use endpoint::Endpoint;
pub use rustls;
pub use stream::{RecvStream, SendStream};
pub use workers::{Steering, Worker, steering_program};

/// Direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Bidirectional.
    Bi,
    /// Unidirectional, from the end that opened it.
    Uni,
}

/// A stream's id in its connection (RFC 9000 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

impl StreamId {
    /// Its direction.
    pub fn direction(self) -> Direction {
        if self.0 & 2 == 0 { Direction::Bi } else { Direction::Uni }
    }

    /// Whether the client opened it.
    pub fn is_by_client(self) -> bool {
        self.0 & 1 == 0
    }
}
