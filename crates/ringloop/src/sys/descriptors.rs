//! Passing descriptors through a Unix socket: the control message that carries them.
//!
//! Owns: the memory of one such message ([`Rights`]). Called by: the operations that pass descriptors.
//!
//! Source: unix(7), `SCM_RIGHTS`.
//!
//! # Invariants
//! - **U1** The descriptors in a message that the kernel wrote are fresh and owned by nothing else;
//!   each is taken once.

use super::control::{Controls, messages, space};
use crate::sys::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use crate::sys::libc;

/// Descriptors that one message carries (`SCM_MAX_FD`).
pub const DESCRIPTORS_MAX: usize = 253;

const FD_LEN: usize = size_of::<RawFd>();
const ROOM: usize = space(DESCRIPTORS_MAX * FD_LEN);

/// A control message with descriptors, or room for one.
#[derive(Debug)]
pub struct Rights {
    controls: Box<Controls<ROOM>>,
    /// Descriptors of a message to be sent, open until it has been.
    sent: Vec<OwnedFd>,
}

impl Rights {
    /// A message with `fds`, at most [`DESCRIPTORS_MAX`]; empty without any.
    pub fn carrying(fds: Vec<OwnedFd>) -> Self {
        let mut controls = Box::new(Controls::empty());
        let used = &fds[..fds.len().min(DESCRIPTORS_MAX)];
        if !used.is_empty() {
            let numbers: Vec<u8> =
                used.iter().flat_map(|fd| fd.as_raw_fd().to_ne_bytes()).collect();
            controls.push(libc::SOL_SOCKET, libc::SCM_RIGHTS, &numbers);
        }
        Self { controls, sent: fds }
    }

    /// Room for as many descriptors as can be received.
    pub fn empty() -> Self {
        Self::carrying(Vec::new())
    }

    /// The address and length of the message.
    pub fn as_mut_ptr(&mut self) -> (*mut libc::c_void, usize) {
        self.controls.as_mut_ptr()
    }

    /// The address and length of the room for a message.
    pub fn room(&mut self) -> (*mut libc::c_void, usize) {
        (self.controls.as_mut_ptr().0, ROOM)
    }

    /// Returns the descriptors that were sent: the receiver has its own.
    pub fn into_sent(self) -> Vec<OwnedFd> {
        self.sent
    }

    /// Takes the descriptors out of a message that the kernel wrote, `len` bytes long.
    ///
    /// # Safety
    /// A successful recvmsg(2) has written the message, and returned this length; each message is taken
    /// once.
    pub unsafe fn take(&mut self, len: usize) -> Vec<OwnedFd> {
        let bytes = self.controls.room();
        let rights = messages(&bytes[..len.min(ROOM)])
            .filter(|(level, kind, _)| (*level, *kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS));
        let numbers = rights.flat_map(|(_, _, data)| data.as_chunks::<FD_LEN>().0);
        let taken = numbers.map(|number| {
            // SAFETY: U1, by this function's contract.
            unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(*number)) }
        });
        let taken = taken.collect();
        // Taken once.
        bytes.fill(0);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{file, socket};

    fn header((at, len): (*mut libc::c_void, usize), iovec: &mut libc::iovec) -> libc::msghdr {
        let mut header = crate::sys::socket::empty_message();
        header.msg_iov = iovec;
        header.msg_iovlen = 1;
        header.msg_control = at;
        header.msg_controllen = len as _;
        header
    }

    #[test]
    fn u1_descriptors_arrive_open_closed_on_exec_and_once() {
        let (one, other) = socket::pair(libc::SOCK_STREAM).unwrap();
        let (reader, writer) = file::pipe().unwrap();
        let mut byte = [7_u8];
        let mut iovec = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut out = Rights::carrying(vec![reader, writer]);
        let message = header(out.as_mut_ptr(), &mut iovec);
        // SAFETY: all that the message names is live for the call.
        unsafe { socket::sendmsg(one.as_raw_fd(), &raw const message, 0) }.unwrap();
        assert_eq!(out.into_sent().len(), 2);
        let mut room = Rights::empty();
        let mut message = header(room.room(), &mut iovec);
        // SAFETY: all that the message names is live for the call.
        unsafe { socket::recvmsg(other.as_raw_fd(), &raw mut message, 0) }.unwrap();
        let len = message.msg_controllen as _;
        // SAFETY: the call above has written it.
        let fds = unsafe { room.take(len) };
        assert_eq!(fds.len(), 2);
        // SAFETY: no pointer is passed.
        let flags = unsafe { libc::fcntl(fds[0].as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        file::write(fds[1].as_raw_fd(), b"through", None).unwrap();
        // SAFETY: what was there has been taken.
        assert!(unsafe { room.take(len) }.is_empty());
    }

    #[test]
    fn no_descriptors_are_no_message_and_a_cut_one_gives_none() {
        assert_eq!(Rights::carrying(Vec::new()).as_mut_ptr().1, 0);
        let (reader, _writer) = file::pipe().unwrap();
        let mut cut = Rights::carrying(vec![reader]);
        for len in [0, 1, space(0), space(0) + 3] {
            // SAFETY: shorter than the message, so that nothing is taken.
            assert!(unsafe { cut.take(len) }.is_empty());
            cut = Rights::carrying(cut.into_sent());
        }
    }
}
