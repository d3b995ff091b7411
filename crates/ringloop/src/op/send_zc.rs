//! Send without copying: the ring's zero-copy sends (kernel 6.0 for one buffer, 6.1 for several), or plain
//! send(2) and sendmsg(2) where there are none.
//!
//! ```text
//!   submitted ──▶ completion with `more`: the count ──▶ last completion: the network has let go of the bytes
//! ```
//! Between the two the bytes must not change: the network card, or a retransmission, may still read them.
//! A send that copied after all (loopback always does) says so in its last completion. The readiness form
//! has one completion, which is both.

use super::operation::{Need, Operation};
use super::send::Send;
use super::sendmsg::SendMsg;
use crate::buf::SendBuf;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Send one buffer. The result is the number of bytes that went out; it may be less than all.
#[derive(Debug)]
pub struct SendZc {
    send: Send,
    report: Report,
}

/// Send several buffers in one call. The result is the number of bytes that went out; it may be less than
/// all.
#[derive(Debug)]
pub struct SendMsgZc {
    send: SendMsg,
    report: Report,
}

/// What the kernel has said of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    /// Nothing.
    None,
    /// How many bytes went out.
    Count,
    /// That it is done with them, and whether it had to copy.
    Done(Transfer),
}

impl Report {
    /// Take the next result; the second one is of the notification.
    fn next(&mut self, result: i32) -> i32 {
        match self {
            Self::None => {
                *self = Self::Count;
                result
            }
            Self::Count | Self::Done(_) => {
                // `IORING_NOTIF_USAGE_ZC_COPIED` is the sign bit.
                *self = Self::Done(if result < 0 {
                    Transfer::Copied
                } else {
                    Transfer::ZeroCopy
                });
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

/// How the bytes got to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// From where they are.
    ZeroCopy,
    /// By a copy, as in a plain send: the device takes none (loopback does not), the kernel lacks the
    /// operation, or the driver is epoll.
    Copied,
}

impl SendZc {
    /// Send what is left of `send`'s buffer.
    pub fn new(send: Send) -> Self {
        Self {
            send,
            report: Report::None,
        }
    }

    /// The buffer, and how it went.
    pub fn into_parts(self) -> (Vec<SendBuf>, Transfer) {
        (vec![self.send.buf], self.report.transfer())
    }
}

impl SendMsgZc {
    /// Send what `send` would.
    pub fn new(send: SendMsg) -> Self {
        Self {
            send,
            report: Report::None,
        }
    }

    /// The buffers, and how they went.
    pub fn into_parts(self) -> (Vec<SendBuf>, Transfer) {
        (self.send.into_bufs(), self.report.transfer())
    }
}

impl Operation for SendZc {
    fn prepare(&mut self, sqe: &mut Sqe) {
        self.send.prepare(sqe);
        sqe.opcode = abi::OP_SEND_ZC;
        sqe.ioprio = abi::SEND_ZC_REPORT_USAGE;
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

    fn exposes_memory(&self) -> bool {
        true
    }
}

impl Operation for SendMsgZc {
    fn prepare(&mut self, sqe: &mut Sqe) {
        self.send.prepare(sqe);
        sqe.opcode = abi::OP_SENDMSG_ZC;
        sqe.ioprio = abi::SEND_ZC_REPORT_USAGE;
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

    fn exposes_memory(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_result_tells_how_and_the_first_how_much() {
        let send = || {
            SendZc::new(Send {
                fd: 0,
                buf: vec![1, 2, 3].into(),
            })
        };
        let mut copied = send();
        assert_eq!((copied.finish(3), copied.finish(i32::MIN)), (3, 0));
        assert_eq!(copied.into_parts().1, Transfer::Copied);
        let mut lent = send();
        assert_eq!(
            (lent.finish(-libc::EPIPE), lent.finish(0)),
            (-libc::EPIPE, 0)
        );
        assert_eq!(lent.into_parts().1, Transfer::ZeroCopy);
    }
}
