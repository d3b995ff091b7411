//! Passing descriptors through a Unix socket: the control message that carries them.
//!
//! Owns: the memory of one such message ([`Rights`]). Called by: the operations that pass descriptors.
//!
//! ```text
//!   cmsghdr: len, SOL_SOCKET, SCM_RIGHTS │ int │ int │ …        unix(7), cmsg(3)
//! ```
//!
//! # Invariants
//! - **U1** The descriptors in a message that the kernel wrote are fresh and owned by nothing else;
//!   each is taken once.

use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Descriptors that one message carries (`SCM_MAX_FD`).
pub const DESCRIPTORS_MAX: usize = 253;

const HEADER_LEN: usize = size_of::<libc::cmsghdr>();
const FD_LEN: usize = size_of::<RawFd>();
/// In words, for the kernel's alignment.
const WORDS: usize = (HEADER_LEN + DESCRIPTORS_MAX * FD_LEN).div_ceil(size_of::<u64>());

/// A control message with descriptors, or room for one.
#[derive(Debug)]
pub struct Rights {
    words: Box<[u64; WORDS]>,
    len: usize,
    /// Descriptors of a message to be sent, open until it has been.
    sent: Vec<OwnedFd>,
}

impl Rights {
    /// Room for as many descriptors as can be received.
    pub fn empty() -> Self {
        Self { words: Box::new([0; WORDS]), len: WORDS * size_of::<u64>(), sent: Vec::new() }
    }

    /// A message with `fds`, at most [`DESCRIPTORS_MAX`]; empty without any.
    pub fn carrying(fds: Vec<OwnedFd>) -> Self {
        let mut this = Self::empty();
        let used = &fds[..fds.len().min(DESCRIPTORS_MAX)];
        let len = HEADER_LEN + used.len() * FD_LEN;
        // size_t cmsg_len, int cmsg_level, int cmsg_type.
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(libc::SOL_SOCKET.to_ne_bytes());
        bytes.extend(libc::SCM_RIGHTS.to_ne_bytes());
        bytes.resize(HEADER_LEN, 0);
        bytes.extend(used.iter().flat_map(|fd| fd.as_raw_fd().to_ne_bytes()));
        for (word, chunk) in this.words.iter_mut().zip(bytes.chunks(size_of::<u64>())) {
            let mut whole = [0; size_of::<u64>()];
            whole[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(whole);
        }
        this.len = if used.is_empty() { 0 } else { len };
        this.sent = fds;
        this
    }

    /// Its address, and its length or room in bytes.
    pub fn as_mut_ptr(&mut self) -> (*mut libc::c_void, usize) {
        (self.words.as_mut_ptr().cast(), self.len)
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
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut rest = &bytes[..len.min(bytes.len())];
        let mut taken = Vec::new();
        while let Some((header, _)) = rest.split_at_checked(HEADER_LEN) {
            let (message_len, words) = header.split_at(size_of::<usize>());
            let message_len = message_len.try_into().map_or(0, usize::from_ne_bytes);
            let Some(data) = rest.get(HEADER_LEN..message_len) else {
                break;
            };
            let kind = [libc::SOL_SOCKET.to_ne_bytes(), libc::SCM_RIGHTS.to_ne_bytes()];
            if words[..8] == kind.concat() {
                let numbers = data.chunks_exact(FD_LEN).filter_map(|chunk| chunk.try_into().ok());
                taken.extend(numbers.map(|number| {
                    // SAFETY: U1, by this function's contract.
                    unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(number)) }
                }));
            }
            let next = message_len.next_multiple_of(size_of::<usize>());
            rest = rest.get(next..).unwrap_or(&[]);
        }
        // Taken once.
        self.words.fill(0);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{file, socket};

    fn header(rights: &mut Rights, iovec: &mut libc::iovec) -> libc::msghdr {
        let mut header = crate::sys::socket::empty_message();
        let (at, len) = rights.as_mut_ptr();
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
        let message = header(&mut out, &mut iovec);
        // SAFETY: all that the message names is live for the call.
        unsafe { socket::sendmsg(one.as_raw_fd(), &raw const message, 0) }.unwrap();
        assert_eq!(out.into_sent().len(), 2);
        let mut room = Rights::empty();
        let mut message = header(&mut room, &mut iovec);
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
        for len in [0, 1, HEADER_LEN, HEADER_LEN + 3] {
            // SAFETY: shorter than the message, so that nothing is taken.
            assert!(unsafe { cut.take(len) }.is_empty());
            cut = Rights::carrying(cut.into_sent());
        }
    }
}
