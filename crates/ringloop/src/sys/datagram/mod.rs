//! Datagrams: many in one system call, and many in one message.
//!
//! Owns: how a received message lies in memory ([`Message`]), the memory that a batch is received into
//! ([`Batch`]), and the headers of a batch on its way out ([`Outgoing`]). Called by: the datagram
//! transports, synchronously, on a non-blocking socket; the receive operation of both drivers. Never
//! does: wait, retry, interpret an error.
//!
//! | file      | the one thing it is about                                                       |
//! |-----------|---------------------------------------------------------------------------------|
//! | `errors`  | what the network answered to datagrams that were sent: the socket's error queue         |
//! | `message` | what the kernel left in a buffer: source, control data, payload, its segments   |
//! | `receive` | recvmmsg(2) into buffers, in the form that the ring's multishot receive has too |
//! | `send`    | sendmmsg(2), with runs of equal datagrams joined into one message               |
//! | `train`   | one such message with its source address and congestion bits; socket options     |
//!
//! # Invariants
//! - **D1** Headers are written anew for each call, and name memory that the caller lends for the call;
//!   nobody else reads or writes it meanwhile.

mod errors;
mod message;
mod receive;
mod send;
mod train;

use super::socket;
use std::io;
use std::os::fd::RawFd;

pub use errors::{NetworkError, next_error, set_receive_errors};
pub use message::{CONTROL_ROOM, Control, HEAD_LEN, Message, NAME_ROOM};
pub use receive::{Batch, Receiver, head_of};
pub use send::{Outgoing, SendError, send_to};
pub use train::{Train, send_train, set_receive_ecn, set_receive_local_ip, set_unfragmented};

/// Have the kernel hand over trains of equal datagrams of one sender as one message
/// ([`Message::datagrams`] takes them apart), or stop it.
///
/// Errors: `ENOPROTOOPT` before Linux 5.0, `EOPNOTSUPP` on what is no UDP socket.
/// Source: udp(7), `UDP_GRO`.
pub fn set_receive_trains(fd: RawFd, on: bool) -> io::Result<()> {
    socket::set_option_int(fd, libc::SOL_UDP, libc::UDP_GRO, i32::from(on))
}

#[cfg(test)]
mod tests;
