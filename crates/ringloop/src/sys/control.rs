//! Control messages in memory: what goes with the bytes of a message.
//!
//! Called by: datagrams, and the passing of descriptors. Trusts no length of what it reads.
//!
//! ```text
//!   cmsg_len │ int cmsg_level │ int cmsg_type │ data … │ padding      cmsg(3)
//! ```

use crate::sys::libc;
use std::mem::offset_of;

const HEADER_LEN: usize = size_of::<libc::cmsghdr>();
/// Length of a message's first field, to which messages are aligned: 8 bytes, 4 on Apple's systems. musl's
/// is half as long, before zeros.
const WORD: usize = offset_of!(libc::cmsghdr, cmsg_level);

/// Bytes that a message with `len` bytes of data takes.
pub(super) const fn space(len: usize) -> usize {
    (HEADER_LEN + len).next_multiple_of(WORD)
}

/// Control messages one after the other, aligned for the kernel.
#[derive(Clone, Debug)]
#[repr(align(8))]
pub(super) struct Controls<const ROOM: usize> {
    bytes: [u8; ROOM],
    len: usize,
}

impl<const ROOM: usize> Controls<ROOM> {
    pub const fn empty() -> Self {
        Self { bytes: [0; ROOM], len: 0 }
    }

    /// Adds a message.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let len = HEADER_LEN + data.len();
        let place = &mut self.bytes[self.len..][..len];
        place[..WORD].copy_from_slice(&len.to_ne_bytes()[..WORD]);
        place[HEADER_LEN - 8..HEADER_LEN - 4].copy_from_slice(&level.to_ne_bytes());
        place[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&kind.to_ne_bytes());
        place[HEADER_LEN..].copy_from_slice(data);
        self.len += space(data.len());
    }

    /// Its address, and the length of its messages.
    pub fn as_mut_ptr(&mut self) -> (*mut libc::c_void, usize) {
        (self.bytes.as_mut_ptr().cast(), self.len)
    }

    /// Room for the kernel to write into, `len` bytes of it.
    pub fn room(&mut self) -> &mut [u8; ROOM] {
        &mut self.bytes
    }

    /// The messages that were pushed.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The messages in control data: level, type and data of each, up to one that does not fit.
pub(super) fn messages(mut rest: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    std::iter::from_fn(move || {
        let (len, words) = rest.split_first_chunk::<WORD>()?;
        let mut word = [0; size_of::<usize>()];
        word[..WORD].copy_from_slice(len);
        let len = usize::from_ne_bytes(word);
        let (level, words) = words.split_first_chunk()?;
        let (kind, _) = words.split_first_chunk()?;
        let data = rest.get(HEADER_LEN..len)?;
        rest = rest.get(len.next_multiple_of(WORD)..).unwrap_or(&[]);
        Some((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), data))
    })
}
