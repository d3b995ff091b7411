//! recvmmsg(2) into buffers in the form of [`super::Message`]; if that is refused, recvmsg(2), one
//! message per call.
//!
//! Byte path: from the kernel's receive queue to a buffer.
//!
//! ```text
//!   Batch::slots  │ head │ payload …… │gap│ head │ payload …… │gap│ …   one mapping, touched as used
//! ```
//!
//! # Invariants
//! - **D2** A header points into its own buffer only: name and control room inside the head, the
//!   payload from [`HEAD_LEN`] to the end. Shorter buffers are refused.
//! - **D3** A batch's slots are one zeroed block of the global allocator, of the length that its
//!   `Vec` frees.

use super::message::{CONTROL_AT, Control, HEAD_LEN, Message, NAME_AT};
use crate::sys::address::SockAddr;
use crate::sys::fd::RawFd;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::socket::{self, empty_message};
use crate::sys::{check, is_refused};
use std::alloc::{self, Layout};
use std::fmt;
use std::io;
use std::ptr;

/// Bytes between slots: an odd number of cache lines, so that the starts of slots, all that small
/// datagrams use, do not fall into one cache set.
const SLOT_GAP: usize = 17 * 64;

/// The headers of a receive, reused.
#[derive(Default)]
pub struct Receiver {
    iovecs: Vec<libc::iovec>,
    headers: Vec<platform::mmsghdr>,
    /// recvmmsg(2) is refused here.
    singly: bool,
}

// SAFETY: D1: between two calls the headers' pointers are never followed.
unsafe impl Send for Receiver {}

impl fmt::Debug for Receiver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.headers.len();
        formatter.debug_tuple("Receiver").field(&count).finish()
    }
}

impl Receiver {
    /// Receives what is queued, one message per buffer; returns the length in each buffer, in
    /// order. A datagram longer than its buffer is truncated. A buffer too short for a head, and
    /// all after it, are ignored. If recvmmsg(2) is refused, receives one message per call. See
    /// recvmmsg(2), recvmsg(2).
    ///
    /// # Errors
    /// `EAGAIN`, and those of recvmsg(2) before the first datagram; the socket keeps later ones for
    /// the next call.
    pub fn receive<'b>(
        &mut self,
        fd: RawFd,
        control: Control,
        buffers: impl Iterator<Item = &'b mut [u8]>,
    ) -> io::Result<impl Iterator<Item = usize>> {
        self.prepare(control, buffers);
        let received = if self.singly {
            self.receive_first(fd)?
        } else {
            match receive_many(fd, &mut self.headers) {
                Err(error) if is_refused(&error, || receive_many(-1, &mut [])) => {
                    self.singly = true;
                    self.receive_first(fd)?
                }
                received => received?,
            }
        };
        for header in &self.headers[..received] {
            write_head(header);
        }
        let headers = self.headers[..received].iter();
        Ok(headers.map(|header| HEAD_LEN + header.msg_len as usize))
    }

    /// Fills only the first buffer: an error after a datagram would have to be kept for the next
    /// call.
    fn receive_first(&mut self, fd: RawFd) -> io::Result<usize> {
        let Some(header) = self.headers.first_mut() else {
            return Ok(0);
        };
        // SAFETY: D1, D2.
        let count = unsafe { socket::recvmsg(fd, &raw mut header.msg_hdr, libc::MSG_DONTWAIT) }?;
        header.msg_len = count as _;
        Ok(1)
    }

    fn prepare<'b>(&mut self, control: Control, buffers: impl Iterator<Item = &'b mut [u8]>) {
        let (name_room, control_room) = control.rooms();
        self.iovecs.clear();
        self.headers.clear();
        for buffer in buffers.take_while(|buffer| buffer.len() >= HEAD_LEN) {
            let (head, payload) = buffer.split_at_mut(HEAD_LEN);
            self.iovecs.push(libc::iovec {
                iov_base: payload.as_mut_ptr().cast(),
                iov_len: payload.len(),
            });
            let mut header = empty_header();
            let message = &mut header.msg_hdr;
            let head = head.as_mut_ptr();
            message.msg_name = head.wrapping_add(NAME_AT).cast();
            message.msg_namelen = name_room as libc::socklen_t;
            if control_room > 0 {
                message.msg_control = head.wrapping_add(CONTROL_AT).cast();
                message.msg_controllen = control_room as _;
            }
            self.headers.push(header);
        }
        for (header, iovec) in self.headers.iter_mut().zip(&mut self.iovecs) {
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
        }
    }
}

/// Receives an address and control data; returns the length of the control data.
pub(super) fn receive_control(
    fd: RawFd,
    name: &mut SockAddr,
    control: &mut [u64],
    flags: i32,
) -> io::Result<usize> {
    // Room for a byte: without any, qemu's emulation of a process returns 0 and receives nothing.
    let mut byte = 0_u8;
    let mut room = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut message = empty_message();
    message.msg_iov = &raw mut room;
    message.msg_iovlen = 1;
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(control) as _;
    // SAFETY: D1: everything that the header names is borrowed for the call.
    unsafe { socket::recvmsg(fd, &raw mut message, flags) }?;
    name.set_len(message.msg_namelen);
    // C libraries differ in its type.
    Ok(message.msg_controllen as _)
}

fn receive_many(fd: RawFd, headers: &mut [platform::mmsghdr]) -> io::Result<usize> {
    let (at, count) = (headers.as_mut_ptr(), headers.len());
    let flags = libc::MSG_DONTWAIT | platform::MSG_CMSG_CLOEXEC;
    // SAFETY: D1, D2; no time-out is passed. The types of count and flags differ between C libraries.
    let received = unsafe { platform::recvmmsg(fd, at, count as _, flags as _, ptr::null_mut()) };
    Ok(check(received)? as usize)
}

/// Writes the lengths before a message, as the ring does.
fn write_head(header: &platform::mmsghdr) {
    let message = &header.msg_hdr;
    let head = head_of(
        message.msg_namelen as usize,
        message.msg_controllen as _,
        header.msg_len as usize,
        message.msg_flags,
    );
    let at = message.msg_name.cast::<u8>().wrapping_sub(NAME_AT);
    // SAFETY: D2: the head is `HEAD_LEN` bytes before the payload; the buffer is borrowed for the
    // call.
    unsafe { ptr::copy_nonoverlapping(head.as_ptr(), at, head.len()) };
}

/// The first bytes of a message: `struct io_uring_recvmsg_out`.
pub fn head_of(name_len: usize, control_len: usize, payload_len: usize, flags: i32) -> [u8; 16] {
    let mut head = [0; 16];
    let fields = [name_len as u32, control_len as u32, payload_len as u32, flags as u32];
    for (to, field) in head.chunks_exact_mut(4).zip(fields) {
        to.copy_from_slice(&field.to_ne_bytes());
    }
    head
}

/// Zeroed pages, not touched yet; unlike `vec![0; len]` it does not abort without memory.
fn zeroed(len: usize) -> io::Result<Vec<u8>> {
    let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
    let layout = Layout::array::<u8>(len).map_err(|_| no_memory())?;
    if len == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the length is not 0.
    let block = unsafe { alloc::alloc_zeroed(layout) };
    if block.is_null() {
        return Err(no_memory());
    }
    let bytes = ptr::slice_from_raw_parts_mut(block, len);
    // SAFETY: D3: a block of the global allocator with this layout, all of whose bytes are 0.
    Ok(unsafe { Box::from_raw(bytes) }.into_vec())
}

/// Memory for several messages, reused.
pub struct Batch {
    slots: Vec<u8>,
    slot_len: usize,
    stride: usize,
    receiver: Receiver,
    /// Length in the slot of each message of the last receive.
    filled: Vec<usize>,
}

impl Batch {
    /// Creates room for `count` messages with payloads of at most `payload_len` bytes each.
    ///
    /// Costs address space; a page becomes memory when a datagram first reaches it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(count: usize, payload_len: usize) -> io::Result<Self> {
        let slot_len = HEAD_LEN + payload_len;
        let stride = slot_len + SLOT_GAP;
        let mut receiver = Receiver::default();
        let mut filled = Vec::new();
        receiver
            .iovecs
            .try_reserve(count)
            .and_then(|()| receiver.headers.try_reserve(count))
            .and_then(|()| filled.try_reserve(count))
            .map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { slots: zeroed(count * stride)?, slot_len, stride, receiver, filled })
    }

    /// Receives what is queued, at most `want` messages and as many as there are slots; see
    /// [`Receiver::receive`].
    pub fn receive(&mut self, fd: RawFd, control: Control, want: usize) -> io::Result<usize> {
        self.filled.clear();
        let slot_len = self.slot_len;
        let slots = self.slots.chunks_exact_mut(self.stride);
        let buffers = slots.map(|slot| &mut slot[..slot_len]).take(want);
        self.filled.extend(self.receiver.receive(fd, control, buffers)?);
        Ok(self.filled.len())
    }

    /// The messages of the last receive.
    pub fn received(&self) -> impl Iterator<Item = Message<'_>> {
        let slots = self.slots.chunks_exact(self.stride);
        let filled = slots.zip(&self.filled);
        filled.filter_map(|(slot, &len)| Message::parse(&slot[..len.min(self.slot_len)]))
    }
}

pub(super) fn empty_header() -> platform::mmsghdr {
    platform::mmsghdr { msg_hdr: empty_message(), msg_len: 0 }
}
