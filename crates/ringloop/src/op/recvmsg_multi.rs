//! Receive messages with their source and control data, again and again, into buffers of the loop's
//! pool for datagrams: the ring's multishot recvmsg (kernel 6.0), or recvmmsg(2) in batches.
//!
//! Byte path: from `driver::uring` (a completion with a pool buffer) or `driver::readiness` (a ready
//! descriptor) to the sink's [`crate::driver::Event`], whose buffer [`Message::parse`] reads.

use super::operation::{Need, Operation, Shape};
use crate::buf::PoolKind;
use crate::limits::DATAGRAMS_PER_RECEIVE;
#[cfg(doc)]
use crate::sys::datagram::Message;
use crate::sys::datagram::{Control, Receiver};
use crate::sys::interest::Interest;
use crate::sys::socket::empty_message;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// Receives until it fails or is cancelled; an error that waited at the socket (`ECONNREFUSED`) ends it,
/// and it may be submitted again. The result counts the bytes of the buffer that are written, which
/// hold one [`Message`].
#[derive(Debug)]
pub struct RecvMsgMulti {
    fd: RawFd,
    parts: Box<Parts>,
}

#[derive(Debug)]
struct Parts {
    control: Control,
    /// What the ring is shown: only the rooms for name and control data are read from it.
    header: libc::msghdr,
    receiver: Receiver,
    /// How many datagrams the next call asks for.
    want: usize,
}

impl RecvMsgMulti {
    /// Receive from `fd`.
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

    /// Readiness form: receive what waits; returns how long each buffer is filled. Asks for twice as many
    /// after a full batch and for half after a poor one, so that who answers one datagram at a time
    /// pays for one.
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
    fn prepare(&mut self, sqe: &mut Sqe) {
        let (name_room, control_room) = self.parts.control.rooms();
        let header = &mut self.parts.header;
        header.msg_namelen = name_room as libc::socklen_t;
        header.msg_controllen = control_room as _;
        sqe.opcode = abi::OP_RECVMSG;
        sqe.fd = self.fd;
        sqe.addr = (&raw mut *header) as u64;
        sqe.len = 1;
        sqe.op_flags = libc::MSG_CMSG_CLOEXEC as u32;
        sqe.flags = abi::SQE_BUFFER_SELECT;
        sqe.ioprio = abi::RECV_MULTISHOT;
        sqe.buf_index = PoolKind::Datagrams.group();
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    /// The readiness driver owns the pool, so it makes the call by [`RecvMsgMulti::receive`].
    fn attempt(&mut self) -> io::Result<u32> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn shape(&self) -> Shape {
        Shape::MultiBuffer(PoolKind::Datagrams)
    }

    fn exposes_memory(&self) -> bool {
        true
    }
}
