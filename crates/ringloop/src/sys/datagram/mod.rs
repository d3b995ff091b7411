//! Datagrams: many in one system call, and many in one message.
//!
//! Owns: the layout of a received message ([`Message`]), the memory that a batch is received into
//! ([`Batch`]), and the headers of a batch to be sent ([`Outgoing`]). Called by: the datagram
//! transports, synchronously, on a non-blocking socket; the receive operation of both drivers.
//! Never waits, retries or interprets an error.
//!
//! # Invariants
//! - **D1** Headers are written anew for each call, and point to memory that the caller borrows
//!   exclusively for the call.

mod errors;
mod gso;
mod message;
mod receive;
mod send;

use super::socket;
use crate::sys::fd::RawFd;
use crate::sys::platform;
use std::io;

pub use errors::{NetworkError, next_error, set_receive_errors};
pub use gso::{GsoBatch, send_gso, set_receive_ecn, set_receive_local_ip, set_unfragmented};
pub use message::{CONTROL_ROOM, Control, HEAD_LEN, Message, NAME_ROOM};
pub use receive::{Batch, Receiver, head_of};
pub use send::{Outgoing, SendError, send_to};

/// Enables or disables receiving GSO batches as one message ([`Message::datagrams`] splits them).
/// See udp(7), `UDP_GRO`.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.0, `EOPNOTSUPP` if it is no UDP socket.
pub fn set_gro(fd: RawFd, on: bool) -> io::Result<()> {
    socket::set_option_int(fd, platform::SOL_UDP, platform::UDP_GRO, i32::from(on))
}

#[cfg(test)]
mod tests;
