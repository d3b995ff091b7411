//! Connect a socket: connect(2). The readiness form starts it, waits until the socket is writable,
//! and reads `SO_ERROR`.

use super::operation::{Need, Operation};
use crate::sys::address::SockAddr;
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::socket;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// `EAGAIN` means a full backlog here, after which no readiness comes; both drivers report `EBUSY`.
const BACKLOG_FULL: i32 = libc::EBUSY;

/// Connects `fd` to `addr`.
///
/// # Errors
/// Those of connect(2), but `EBUSY` if a Unix listener's backlog is full: try again later.
#[derive(Debug)]
pub struct Connect {
    fd: RawFd,
    addr: Box<SockAddr>,
    started: bool,
}

impl Connect {
    /// Connects the socket `fd` to `addr`.
    pub fn new(fd: RawFd, addr: SockAddr) -> Self {
        Self { fd, addr: Box::new(addr), started: false }
    }
}

impl Operation for Connect {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_CONNECT;
        sqe.fd = self.fd;
        sqe.addr = self.addr.as_ptr() as u64;
        sqe.off = u64::from(self.addr.len());
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::WRITE)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        if self.started {
            return match socket::take_error(self.fd)? {
                Some(error) => Err(error),
                // Writable without an error can still be left over from the unconnected state.
                None => match socket::peer_addr(self.fd) {
                    Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    Err(error) => Err(error),
                    Ok(_) => Ok(0),
                },
            };
        }
        match socket::connect(self.fd, &self.addr) {
            Ok(()) => Ok(0),
            Err(error) => match error.raw_os_error() {
                // An interrupted connect continues in the background, like one in progress.
                Some(libc::EINPROGRESS | libc::EINTR) => {
                    self.started = true;
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Some(libc::EAGAIN) => Err(io::Error::from_raw_os_error(BACKLOG_FULL)),
                _ => Err(error),
            },
        }
    }

    fn finish(&mut self, result: i32) -> i32 {
        if result == -libc::EAGAIN {
            return -BACKLOG_FULL;
        }
        result
    }
}
