//! Layer 4: sockets as `async fn`s over operations.
//!
//! Owns: TCP ([`TcpListener`], [`TcpStream`]), UDP ([`UdpSocket`]), Unix ([`UnixListener`], [`UnixStream`],
//! [`UnixDatagram`]), multishot sequences ([`Incoming`], [`Receive`], [`Datagrams`], [`Readiness`]).
//! Called by: applications. No call blocks.

mod addresses;
mod incoming;
mod lookup;
mod macros;
mod options;
mod polled;
mod readiness;
mod receive;
mod send_all;
mod shared;
mod socket;
mod split;
#[cfg(feature = "futures-core")]
mod stream;
mod tcp;
mod udp;
mod unix;

pub use crate::executor::{Received, Returned, ZeroCopyBufs};
pub use crate::op::Transfer;
pub use crate::sys::address::{SockAddr, UnixName};
pub use crate::sys::datagram::Message;
pub use crate::sys::interest::Interest;
pub use addresses::ToSocketAddrs;
pub use incoming::Incoming;
pub use lookup::lookup_host;
pub use options::Keepalive;
pub use polled::{Polled, Stream};
pub use readiness::Readiness;
pub use receive::{Datagram, Datagrams, Receive};
pub use shared::ServeHandles;
pub(crate) use socket::Socket;
pub use split::{ReadHalf, Whole, WriteHalf};
pub use tcp::{ListenOptions, TcpListener, TcpStream};
pub use udp::{Instruction, UdpSocket};
pub use unix::{UnixDatagram, UnixListener, UnixStream};
