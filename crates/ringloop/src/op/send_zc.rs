//! Send without copying: the ring's zero-copy sends (kernel 6.0 for one buffer, 6.1 for several),
//! or plain send(2) and sendmsg(2) without them.
//!
//! ```text
//!   submitted ──▶ completion with `more`: the count ──▶ last completion: the bytes are released
//! ```
//! Between the two the bytes must not change: the network card, or a retransmission, may still read
//! them. The last completion reports if the kernel copied after all (loopback always does). The
//! readiness form has one completion, which is both.

use super::operation::{Need, Operation};
use super::send::Send;
use super::vector::SendMsg;
use crate::buf::SendBuf;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Sends without copying. The result is the number of bytes sent, possibly not all.
#[derive(Debug)]
pub struct ZeroCopy<S> {
    send: S,
    report: Report,
}

/// Sends one buffer.
pub type SendZc = ZeroCopy<Send>;

/// Sends several buffers in one call.
pub type SendMsgZc = ZeroCopy<SendMsg>;

/// What the completions of a send have reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    /// Nothing.
    None,
    /// The number of bytes sent.
    Count,
    /// The bytes are released; and if they were copied.
    Done(Transfer),
}

impl Report {
    /// Handles the next result; the second one is the notification.
    fn next(&mut self, result: i32) -> i32 {
        match self {
            Self::None => {
                *self = Self::Count;
                result
            }
            Self::Count | Self::Done(_) => {
                // `IORING_NOTIF_USAGE_ZC_COPIED` is the sign bit.
                *self = Self::Done(if result < 0 { Transfer::Copied } else { Transfer::ZeroCopy });
                0
            }
        }
    }

    fn transfer(self) -> Transfer {
        match self {
            Self::Done(transfer) => transfer,
            Self::None | Self::Count => Transfer::Copied,
        }
    }
}

/// How the bytes were transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// Without a copy.
    ZeroCopy,
    /// By a copy, as in a plain send: the device cannot send without (loopback), the kernel lacks
    /// the operation, or the driver is epoll.
    Copied,
}

impl<S> ZeroCopy<S> {
    /// Sends what `send` would.
    pub fn new(send: S) -> Self {
        Self { send, report: Report::None }
    }
}

impl SendZc {
    /// The buffer, and how it was sent.
    pub fn into_parts(self) -> (Vec<SendBuf>, Transfer) {
        (vec![self.send.buf], self.report.transfer())
    }
}

impl SendMsgZc {
    /// The buffers, and how they were sent.
    pub fn into_parts(self) -> (Vec<SendBuf>, Transfer) {
        (self.send.into_bufs(), self.report.transfer())
    }
}

impl<S: Operation> Operation for ZeroCopy<S> {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        self.send.prepare(sqe);
        sqe.opcode = match sqe.opcode {
            abi::IORING_OP_SEND => abi::IORING_OP_SEND_ZC,
            _ => abi::IORING_OP_SENDMSG_ZC,
        };
        sqe.ioprio = abi::IORING_SEND_ZC_REPORT_USAGE;
    }

    fn need(&self) -> Need {
        self.send.need()
    }

    fn attempt(&mut self) -> io::Result<u32> {
        self.send.attempt()
    }

    fn finish(&mut self, result: i32) -> i32 {
        self.report.next(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_result_is_the_count_and_the_second_the_transfer() {
        let send = || SendZc::new(Send { fd: 0, buf: vec![1, 2, 3].into() });
        let mut copied = send();
        assert_eq!((copied.finish(3), copied.finish(i32::MIN)), (3, 0));
        assert_eq!(copied.into_parts().1, Transfer::Copied);
        let mut failed = send();
        assert_eq!((failed.finish(-libc::EPIPE), failed.finish(0)), (-libc::EPIPE, 0));
        assert_eq!(failed.into_parts().1, Transfer::ZeroCopy);
    }
}
