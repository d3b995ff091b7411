//! Sends datagrams: one at a time, or many in one system call.
//!
//! Byte path: from the caller's bytes to the kernel.
//!
//! ```text
//!   datagrams   a 100 │ a 100 │ a 60 │ b 100 │ c 0 │ …        to a, b, c; bytes
//!   messages    └── UDP_SEGMENT 100 ─┘ └─ 1 ─┘ └ 1 ┘          one sendmmsg(2)
//! ```
//! A run of datagrams to one peer, all of one length but the last, which may be shorter, passes
//! through the network stack as one message and is segmented at its end, by the network card if it
//! can. Not every route and device supports that; see [`SendError::segmented`].

use super::receive::empty_header;
use crate::sys::address::SockAddr;
use crate::sys::control::{Controls, space};
use crate::sys::fd::RawFd;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::socket::{self, empty_message};
use crate::sys::{check, is_refused};
use std::io;
use std::net::IpAddr;

/// Messages per call.
const MESSAGES_MAX: usize = 32;
/// Datagrams per message: the limit of every kernel with `UDP_SEGMENT` (`UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 64;
/// Bytes per message: the payload of the longest IPv4 packet.
const MESSAGE_BYTES_MAX: usize = 65_507;

/// Sends one datagram.
///
/// # Errors
/// `EAGAIN`, `EMSGSIZE`, `ECONNREFUSED` of an earlier datagram, and those of sendto(2).
pub fn send_to(fd: RawFd, bytes: &[u8], to: &SockAddr) -> io::Result<usize> {
    let flags = platform::MSG_NOSIGNAL;
    let (name, name_len) = (to.as_ptr(), to.len());
    // SAFETY: D1.
    let sent =
        unsafe { libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, name, name_len) };
    Ok(check(sent)? as usize)
}

/// Why the first message of a batch was not sent; none of the batch was.
#[derive(Debug)]
pub struct SendError {
    /// The kernel's error.
    pub error: io::Error,
    /// The message was a run of several datagrams. If the error [`SendError::is_of_segmentation`],
    /// they may be sendable one by one.
    pub segmented: bool,
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        Self { error, segmented: false }
    }
}

impl SendError {
    /// True if the error may only mean that this socket, its route or its device does not support
    /// segmentation: the option is unknown, datagrams are longer than the route's MTU, checksums
    /// are off, the route encrypts.
    pub fn is_of_segmentation(&self) -> bool {
        let errno = self.error.raw_os_error().unwrap_or(0);
        let refusals =
            [libc::EIO, libc::EINVAL, libc::EMSGSIZE, libc::EOPNOTSUPP, libc::ENOPROTOOPT];
        self.segmented && refusals.contains(&errno)
    }
}

/// The control message with a run's segment size.
type SegmentControl = Controls<{ space(2) }>;

/// The headers of a batch, reused.
#[derive(Default)]
pub struct Outgoing {
    iovecs: Vec<libc::iovec>,
    runs: Vec<Run>,
    controls: Vec<SegmentControl>,
    headers: Vec<platform::mmsghdr>,
    /// sendmmsg(2) is refused here.
    singly: bool,
}

// SAFETY: D1: between two calls the headers' pointers are never followed.
unsafe impl Send for Outgoing {}

/// Datagrams that form one message.
struct Run {
    to: *const SockAddr,
    count: usize,
    bytes: usize,
    segment_len: usize,
    last_len: usize,
}

impl Run {
    fn of(bytes: &[u8], to: *const SockAddr) -> Self {
        let len = bytes.len();
        Self { to, count: 1, bytes: len, segment_len: len, last_len: len }
    }

    /// Adds a datagram; `false` if it does not belong to this run.
    fn take(&mut self, bytes: &[u8], is_same_peer: bool) -> bool {
        let len = bytes.len();
        let fits = is_same_peer
            && (1..=self.segment_len).contains(&len)
            && self.last_len == self.segment_len
            && self.count < SEGMENTS_MAX
            && self.bytes + len <= MESSAGE_BYTES_MAX;
        if fits {
            self.count += 1;
            self.bytes += len;
            self.last_len = len;
        }
        fits
    }
}

impl Outgoing {
    /// Sends datagrams in order, as many as one call takes; returns how many were sent. One without
    /// an address goes to the peer. With `segmented`, runs are joined. See sendmmsg(2), sendmsg(2)
    /// if that is refused, udp(7).
    ///
    /// # Errors
    /// As sendto(2), if the first message failed; later ones are for the next call.
    pub fn send<'a>(
        &mut self,
        fd: RawFd,
        datagrams: impl Iterator<Item = (&'a [u8], Option<&'a SockAddr>)>,
        segmented: bool,
    ) -> Result<usize, SendError> {
        self.gather(datagrams, segmented && platform::HAS_SEGMENTATION);
        self.write_headers();
        let sent = if self.singly {
            self.send_singly(fd)
        } else {
            match send_many(fd, &mut self.headers) {
                Err(error) if is_refused(&error, || send_many(-1, &mut [])) => {
                    self.singly = true;
                    self.send_singly(fd)
                }
                sent => sent,
            }
        };
        let segmented = self.runs.first().is_some_and(|run| run.count > 1);
        let sent = sent.map_err(|error| SendError { error, segmented })?;
        let sent = self.runs.iter().take(sent);
        Ok(sent.map(|run| run.count).sum())
    }

    /// One sendmsg(2) per message, up to the first that fails; returns the number sent.
    fn send_singly(&self, fd: RawFd) -> io::Result<usize> {
        for (index, header) in self.headers.iter().enumerate() {
            // SAFETY: D1.
            match unsafe { socket::sendmsg(fd, &raw const header.msg_hdr, libc::MSG_DONTWAIT) } {
                Ok(_) => {}
                Err(error) if index == 0 => return Err(error),
                Err(_) => return Ok(index),
            }
        }
        Ok(self.headers.len())
    }

    /// Splits the datagrams into runs.
    fn gather<'a>(
        &mut self,
        datagrams: impl Iterator<Item = (&'a [u8], Option<&'a SockAddr>)>,
        segmented: bool,
    ) {
        self.iovecs.clear();
        self.runs.clear();
        let mut last_to = None;
        for (bytes, to) in datagrams {
            let joined = segmented
                && self.runs.last_mut().is_some_and(|run| {
                    let is_same_peer = to == last_to && !to.is_some_and(is_multicast);
                    run.take(bytes, is_same_peer)
                });
            if !joined {
                if self.runs.len() == MESSAGES_MAX {
                    return;
                }
                let at = to.map_or(std::ptr::null(), std::ptr::from_ref);
                self.runs.push(Run::of(bytes, at));
                last_to = to;
            }
            // The kernel only reads through this pointer.
            self.iovecs.push(libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            });
        }
    }

    fn write_headers(&mut self) {
        self.controls.clear();
        self.controls.extend(self.runs.iter().map(segment_control));
        self.headers.clear();
        let mut iovecs = self.iovecs.as_mut_slice();
        for (run, control) in self.runs.iter().zip(&mut self.controls) {
            let (own, rest) = iovecs.split_at_mut(run.count);
            iovecs = rest;
            let mut header = empty_header();
            let message = &mut header.msg_hdr;
            message.msg_iov = own.as_mut_ptr();
            message.msg_iovlen = own.len() as _;
            // SAFETY: D1: the address is borrowed for the call that this is a part of.
            if let Some(to) = unsafe { run.to.as_ref() } {
                message.msg_name = to.as_ptr().cast_mut().cast();
                message.msg_namelen = to.len();
            }
            if run.count > 1 {
                let (at, len) = control.as_mut_ptr();
                message.msg_control = at;
                message.msg_controllen = len as _;
            }
            self.headers.push(header);
        }
    }
}

/// Sends bytes as one message, with control data or without.
pub(super) fn send_with_control(
    fd: RawFd,
    bytes: &[u8],
    to: &SockAddr,
    control: &[u8],
) -> io::Result<usize> {
    // The kernel only reads through these pointers.
    let mut iovec =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = empty_message();
    message.msg_name = to.as_ptr().cast_mut().cast();
    message.msg_namelen = to.len();
    message.msg_iov = &raw mut iovec;
    message.msg_iovlen = 1;
    if !control.is_empty() {
        message.msg_control = control.as_ptr().cast_mut().cast();
        message.msg_controllen = control.len() as _;
    }
    // SAFETY: D1: all that the header names is borrowed for the call.
    unsafe { socket::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT) }
}

fn send_many(fd: RawFd, headers: &mut [platform::mmsghdr]) -> io::Result<usize> {
    let (at, count) = (headers.as_mut_ptr(), headers.len());
    let flags = platform::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: D1. The types of count and flags differ between C libraries.
    let sent = unsafe { platform::sendmmsg(fd, at, count as _, flags as _) };
    Ok(check(sent)? as usize)
}

fn segment_control(run: &Run) -> SegmentControl {
    let mut control = Controls::empty();
    control.push(platform::SOL_UDP, platform::UDP_SEGMENT, &(run.segment_len as u16).to_ne_bytes());
    control
}

/// Receivers of a multicast may segment differently; each gets single datagrams.
fn is_multicast(to: &SockAddr) -> bool {
    match to.to_std().map(|address| address.ip()) {
        Some(IpAddr::V4(v4)) => v4.is_multicast() || v4.is_broadcast(),
        Some(IpAddr::V6(v6)) => v6.is_multicast(),
        None => false,
    }
}
