//! Receive messages with their source and control data, multishot, into buffers of the loop's pool
//! for datagrams: the ring's multishot recvmsg (kernel 6.0), or recvmmsg(2) in batches.
//!
//! Byte path: from `driver::uring` (a completion with a pool buffer) or `driver::readiness` (a ready
//! descriptor) to the sink's [`crate::driver::Event`], whose buffer [`Message::parse`] reads.

use super::operation::{Need, Operation, Shape};
use crate::buf::PoolKind;
use crate::limits::DATAGRAMS_PER_RECEIVE;
#[cfg(doc)]
use crate::sys::datagram::Message;
use crate::sys::datagram::{Control, Receiver};
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::socket::empty_message;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Receives until it fails or is cancelled. A pending socket error (`ECONNREFUSED`) ends it, and it
/// may be submitted again. The result is the number of bytes written to the buffer, which hold one
/// [`Message`].
#[derive(Debug)]
pub struct RecvMsgMulti {
    fd: RawFd,
    parts: Box<Parts>,
}

#[derive(Debug)]
struct Parts {
    control: Control,
    /// The header for the ring, which reads only the sizes of name and control data.
    header: libc::msghdr,
    receiver: Receiver,
    /// Datagrams to ask for in the next call.
    want: usize,
}

impl RecvMsgMulti {
    /// Receives from `fd`.
    pub fn new(fd: RawFd, control: Control) -> Self {
        Self {
            fd,
            parts: Box::new(Parts {
                control,
                header: empty_message(),
                receiver: Receiver::default(),
                want: 1,
            }),
        }
    }

    /// Readiness form: how many buffers the next receive can use.
    pub(crate) fn want(&self) -> usize {
        self.parts.want
    }

    /// Readiness form: receives what is queued; returns the length in each buffer. Asks for twice
    /// as many after a full batch and for half after a small one, so that a request-response
    /// exchange uses one buffer.
    pub(crate) fn receive<'b>(
        &mut self,
        buffers: impl Iterator<Item = &'b mut [u8]>,
    ) -> io::Result<Vec<usize>> {
        let parts = &mut *self.parts;
        let filled = parts.receiver.receive(self.fd, parts.control, buffers)?;
        let filled: Vec<usize> = filled.collect();
        parts.want = if filled.len() >= parts.want {
            (parts.want * 2).min(DATAGRAMS_PER_RECEIVE)
        } else if filled.len() * 2 <= parts.want {
            (parts.want / 2).max(1)
        } else {
            parts.want
        };
        Ok(filled)
    }
}

impl Operation for RecvMsgMulti {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        let (name_room, control_room) = self.parts.control.rooms();
        let header = &mut self.parts.header;
        header.msg_namelen = name_room as libc::socklen_t;
        header.msg_controllen = control_room as _;
        sqe.opcode = abi::IORING_OP_RECVMSG;
        sqe.fd = self.fd;
        sqe.addr = (&raw mut *header) as u64;
        sqe.len = 1;
        sqe.op_flags = platform::MSG_CMSG_CLOEXEC as u32;
        sqe.flags = abi::IOSQE_BUFFER_SELECT;
        sqe.ioprio = abi::IORING_RECV_MULTISHOT;
        sqe.buf_index = PoolKind::Datagrams.group();
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn shape(&self) -> Shape {
        Shape::MultiBuffer(PoolKind::Datagrams)
    }
}
