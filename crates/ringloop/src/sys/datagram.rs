//! Datagrams: many in one system call.
//!
//! Owns: the memory that a batch is received into, and its headers. Called by: the datagram
//! transports, synchronously, on a non-blocking socket that is ready. Never does: wait, retry,
//! interpret an error.
//!
//! Byte path: from the kernel's receive queue to a slot of the batch; from the caller's bytes to the
//! kernel.
//!
//! ```text
//!   slots     │ slot 0 ................. │ slot 1 ................. │ …   one mapping, touched as used
//!   headers   │ msghdr 0 │ msghdr 1 │ …     iovecs  │ 0 │ 1 │ …    sources │ 0 │ 1 │ …
//! ```
//! Control messages (GRO segment sizes, ECN, packet info) would be a third array beside `sources`,
//! named by `msg_control` in [`Batch::prepare`]; nothing asks for them yet.
//!
//! # Invariants
//! - **D1** The headers are written anew for each call, and name memory that the batch owns (receive)
//!   or that the caller lends for the call (send); nobody else reads or writes it meanwhile.
//! - **D2** After a receive of *n* messages, the first `min(msg_len, slot)` bytes of each of the first
//!   *n* slots are initialised; a slot is read only so far, and only until the next receive.

use super::address::SockAddr;
use super::check;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// Bytes between the end of one slot and the start of the next: an odd number of cache lines, so that
/// the starts of slots, which are all that small datagrams use, do not fall into one cache set.
const SLOT_GAP: usize = 17 * 64;

/// Messages that [`send_batch`] hands over in one call.
pub const SEND_BATCH_MAX: usize = 32;

/// Memory for several datagrams, used again and again.
pub struct Batch {
    slots: Box<[MaybeUninit<u8>]>,
    slot_len: usize,
    sources: Box<[SockAddr]>,
    iovecs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

impl Batch {
    /// Make room for `count` datagrams of at most `slot_len` bytes each.
    ///
    /// Cost: address space; a page becomes memory when a datagram first reaches it.
    pub fn new(count: usize, slot_len: usize) -> Self {
        Self {
            slots: Box::new_uninit_slice(count * (slot_len + SLOT_GAP)),
            slot_len,
            sources: vec![SockAddr::empty(); count].into(),
            iovecs: Vec::with_capacity(count),
            headers: Vec::with_capacity(count),
        }
    }

    /// Receive what waits, at most `want` datagrams and never more than there are slots; a longer
    /// datagram than a slot is cut, as recvfrom(2) does.
    ///
    /// Errors: `EAGAIN`, and those of recvmsg(2) where they come before the first datagram; later
    /// ones are kept by the socket for the next call.
    /// Source: recvmmsg(2).
    pub fn receive(&mut self, fd: RawFd, want: usize) -> io::Result<usize> {
        self.prepare(want.min(self.sources.len()));
        let (at, count) = (self.headers.as_mut_ptr(), self.headers.len());
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: D1; no time-out is passed. The types of count and flags differ between C libraries.
        let received =
            unsafe { libc::recvmmsg(fd, at, count as _, flags as _, std::ptr::null_mut()) };
        let received = check(received);
        if received.is_err() {
            self.headers.clear();
        }
        let received = received? as usize;
        self.headers.truncate(received);
        for (header, source) in self.headers.iter().zip(&mut self.sources) {
            source.set_len(header.msg_hdr.msg_namelen);
        }
        Ok(received)
    }

    /// The datagrams of the last receive: bytes and source. A source of length 0 is nameless.
    pub fn received(&self) -> impl Iterator<Item = (&[u8], &SockAddr)> {
        let messages = self.headers.iter().zip(&self.sources).enumerate();
        messages.map(|(index, (header, source))| {
            let len = (header.msg_len as usize).min(self.slot_len);
            let slot = &self.slots[index * (self.slot_len + SLOT_GAP)..][..len];
            // SAFETY: D2.
            let bytes = unsafe { &*(std::ptr::from_ref(slot) as *const [u8]) };
            (bytes, source)
        })
    }

    fn prepare(&mut self, count: usize) {
        self.iovecs.clear();
        self.headers.clear();
        let stride = self.slot_len + SLOT_GAP;
        for (slot, source) in self
            .slots
            .chunks_exact_mut(stride)
            .zip(&mut self.sources)
            .take(count)
        {
            *source = SockAddr::empty();
            self.iovecs.push(libc::iovec {
                iov_base: slot.as_mut_ptr().cast(),
                iov_len: self.slot_len,
            });
            let mut header = empty_header();
            header.msg_hdr.msg_name = source.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = source.len();
            self.headers.push(header);
        }
        for (header, iovec) in self.headers.iter_mut().zip(&mut self.iovecs) {
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
        }
    }
}

/// Send one datagram, to `to` or, without it, to the peer the socket is connected to.
///
/// Errors: `EAGAIN`, `EMSGSIZE`, `ECONNREFUSED` of an earlier datagram, and those of sendto(2).
pub fn send_to(fd: RawFd, bytes: &[u8], to: &SockAddr) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL;
    let (name, name_len) = (to.as_ptr(), to.len());
    // SAFETY: D1.
    let sent = unsafe {
        libc::sendto(
            fd,
            bytes.as_ptr().cast(),
            bytes.len(),
            flags,
            name,
            name_len,
        )
    };
    Ok(check(sent)? as usize)
}

/// Send datagrams in order, at most [`SEND_BATCH_MAX`]; returns how many went out. One without an
/// address goes to the peer.
///
/// Errors: as sendto(2), where the first datagram failed.
/// Source: sendmmsg(2).
pub fn send_batch<'a>(
    fd: RawFd,
    datagrams: impl Iterator<Item = (&'a [u8], Option<&'a SockAddr>)>,
) -> io::Result<usize> {
    let mut iovecs = [const {
        libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }
    }; SEND_BATCH_MAX];
    let mut headers: [libc::mmsghdr; SEND_BATCH_MAX] = std::array::from_fn(|_| empty_header());
    let mut count = 0;
    // The kernel only reads through these pointers.
    for ((header, iovec), (bytes, to)) in headers.iter_mut().zip(&mut iovecs).zip(datagrams) {
        iovec.iov_base = bytes.as_ptr().cast_mut().cast();
        iovec.iov_len = bytes.len();
        header.msg_hdr.msg_iov = iovec;
        header.msg_hdr.msg_iovlen = 1;
        if let Some(to) = to {
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.len();
        }
        count += 1;
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: D1.
    let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count, flags as _) };
    Ok(check(sent)? as usize)
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: all-zero is a valid `mmsghdr`: null pointers and zero lengths.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    fn pair() -> (UdpSocket, UdpSocket) {
        let [a, b] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        (a, b)
    }

    #[test]
    fn d2_a_batch_holds_each_datagram_with_its_source_in_order() {
        let (a, b) = pair();
        let to = SockAddr::from(b.local_addr().unwrap());
        let texts: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n; usize::from(n)]).collect();
        let sent = send_batch(
            a.as_raw_fd(),
            texts.iter().map(|t| (t.as_slice(), Some(&to))),
        );
        assert_eq!(sent.unwrap(), SEND_BATCH_MAX);
        let mut batch = Batch::new(20, 64);
        let mut seen = Vec::new();
        while let Ok(count) = batch.receive(b.as_raw_fd(), 100) {
            assert_eq!(batch.received().count(), count);
            for (bytes, source) in batch.received() {
                assert_eq!(source.to_std(), Some(a.local_addr().unwrap()));
                seen.push(bytes.to_vec());
            }
        }
        assert_eq!(seen, texts[..SEND_BATCH_MAX]);
        assert_eq!(batch.received().count(), 0);
    }

    #[test]
    fn d2_a_longer_datagram_is_cut_to_its_slot() {
        let (a, b) = pair();
        let to = SockAddr::from(b.local_addr().unwrap());
        assert_eq!(send_to(a.as_raw_fd(), &[7; 100], &to).unwrap(), 100);
        assert_eq!(send_to(a.as_raw_fd(), &[8; 3], &to).unwrap(), 3);
        let mut batch = Batch::new(2, 10);
        assert_eq!(batch.receive(b.as_raw_fd(), 2).unwrap(), 2);
        let lens: Vec<_> = batch.received().map(|(bytes, _)| bytes.to_vec()).collect();
        assert_eq!(lens, [vec![7; 10], vec![8; 3]]);
    }

    #[test]
    fn errors_are_the_kernels() {
        let (a, b) = pair();
        let mut batch = Batch::new(2, 10);
        let nothing = batch.receive(a.as_raw_fd(), 2).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let unconnected = send_batch(a.as_raw_fd(), std::iter::once((&b"x"[..], None)));
        assert_eq!(
            unconnected.unwrap_err().raw_os_error(),
            Some(libc::EDESTADDRREQ)
        );
        let to = SockAddr::from(b.local_addr().unwrap());
        let long = send_to(a.as_raw_fd(), &vec![0; 70_000], &to).unwrap_err();
        assert_eq!(long.raw_os_error(), Some(libc::EMSGSIZE));
    }
}
