//! Send one datagram, whole: send(2) or sendmsg(2), without SIGPIPE.
//!
//! ```text
//!   ring:  send that does not wait ──EAGAIN──▶ poll for room ──▶ send that does not wait ──▶ …
//! ```
//! The kernel must not retry such a send itself: it continues after the bytes that the first try
//! has taken, and a Unix socket then gets an empty datagram (measured on 6.18, `tests/unix.rs`).

use super::operation::{Need, Operation, Shape, counted};
use super::send::Send;
use super::vector::SendMsg;
use crate::buf::SendBuf;
use crate::sys::address::SockAddr;
use crate::sys::fd::RawFd;
use crate::sys::file;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// `EAGAIN` on a writable sender means a full receiver, after which no readiness comes; both
/// drivers report `EBUSY`.
const RECEIVER_FULL: i32 = libc::EBUSY;

/// The result is the datagram's length.
///
/// # Errors
/// Those of send(2), but `EBUSY` if the receiving Unix socket's queue is full: try again later.
#[derive(Debug)]
pub struct SendDatagram {
    message: Message,
    stage: Stage,
}

#[derive(Debug)]
enum Message {
    /// To the peer.
    Connected(Send),
    To {
        send: SendMsg,
        /// A Unix socket's writability depends only on its own queue, see unix(7).
        is_unix: bool,
    },
}

/// The current step on the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Sending,
    AwaitingRoom,
}

impl SendDatagram {
    /// Sends `buf` to the peer of the socket `fd`.
    pub fn new(fd: RawFd, buf: SendBuf) -> Self {
        Self::with(Message::Connected(Send { fd, buf }))
    }

    /// Sends `buf` to `to`.
    pub fn to(fd: RawFd, buf: SendBuf, to: SockAddr) -> Self {
        let is_unix = to.to_unix().is_some();
        let send = SendMsg::to(fd, vec![buf], to);
        Self::with(Message::To { send, is_unix })
    }

    fn with(message: Message) -> Self {
        Self { message, stage: Stage::Sending }
    }

    /// The datagram that was sent.
    pub fn into_buf(self) -> SendBuf {
        match self.message {
            Message::Connected(send) => send.buf,
            Message::To { send, .. } => send.into_bufs().pop().unwrap_or_default(),
        }
    }

    fn fd(&self) -> RawFd {
        match &self.message {
            Message::Connected(send) => send.fd,
            Message::To { send, .. } => send.fd(),
        }
    }

    /// True if a datagram that would have blocked waits for its receiver, not for room here.
    fn is_receiver_full(&self) -> bool {
        matches!(self.message, Message::To { is_unix: true, .. })
            && file::poll_now(self.fd(), Interest::WRITE).is_ok_and(|ready| ready != Interest::NONE)
    }
}

impl Operation for SendDatagram {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        if self.stage == Stage::AwaitingRoom {
            sqe.opcode = abi::IORING_OP_POLL_ADD;
            sqe.fd = self.fd();
            sqe.op_flags = Interest::WRITE.poll_mask();
            return;
        }
        match &mut self.message {
            Message::Connected(send) => send.prepare(sqe),
            Message::To { send, .. } => send.prepare(sqe),
        }
        sqe.op_flags = (platform::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as u32;
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd(), Interest::WRITE)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let sent = match &mut self.message {
            Message::Connected(send) => send.attempt(),
            Message::To { send, .. } => send.attempt(),
        };
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.is_receiver_full() => {
                Err(io::Error::from_raw_os_error(RECEIVER_FULL))
            }
            sent => sent,
        }
    }

    fn shape(&self) -> Shape {
        Shape::Retried
    }

    fn goes_on(&mut self, result: i32) -> bool {
        let (goes_on, next) = match self.stage {
            Stage::Sending => {
                let waits = result == -libc::EAGAIN && !self.is_receiver_full();
                (waits, Stage::AwaitingRoom)
            }
            Stage::AwaitingRoom => (result >= 0, Stage::Sending),
        };
        if goes_on {
            self.stage = next;
        }
        goes_on
    }

    fn finish(&mut self, result: i32) -> i32 {
        if result == -libc::EAGAIN {
            return -RECEIVER_FULL;
        }
        result
    }
}

counted!(SendDatagram, SendBuf, SendDatagram::into_buf);
