//! Provided buffers that the kernel fills piece by piece, one per completion; see
//! [`super::buffer_ring`].
//!
//! Owns: the holders of a buffer's pieces. Called by: the ring driver. Never offers a buffer of which a
//! piece is still held.
//!
//! ```text
//!   a buffer    │ chunk 7 │ chunk 8    │ chunk 12 │ the kernel's so far           │
//!               └─────────┴────────────┴──────────┴───────────────────────────────┘
//!               a completion without `BUF_MORE` ends its buffer: no more bytes come into it
//!               offered again: ended, and the last of its chunks returned
//! ```
//! A completion counts the bytes it has added, but not their offset: they follow those of the
//! completion before it. So completions must be claimed in the order in which the buffers were
//! filled. Linux 6.13 and 6.14 can report a sequence's last completion late; the driver requires
//! 6.15.
//!
//! # Invariants
//! - **C1** A chunk is a range that a completion has counted: the kernel writes after it, never
//!   into it.
//! - **C2** A buffer is offered again when the kernel has ended it and no chunk of it is held.

use super::abi::{self, Cqe};
use super::buffer_ring::{BufferRing, Detached};
use super::ring::Ring;
use std::io;

/// A group of buffers that are used in pieces.
#[derive(Debug)]
pub struct ChunkRing {
    ring: BufferRing,
    /// By buffer.
    parts: Box<[Part]>,
    chunks: Vec<Chunk>,
    /// Unused chunks, for reuse.
    free: Vec<u32>,
    /// Buffers that the kernel has not ended.
    offered_count: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Part {
    filled: usize,
    chunk_count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    buffer: u16,
    start: usize,
    len: usize,
    holder: Holder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    Ring,
    Detached,
}

impl ChunkRing {
    /// Like [`BufferRing::register`]; `EINVAL` also if the kernel has no such rings (before 6.12).
    pub fn register(ring: &Ring, group: u16, count: u16, buf_len: u32) -> io::Result<Self> {
        let ring = BufferRing::register_with(ring, group, count, buf_len, abi::PBUF_RING_INC)?;
        Ok(Self {
            ring,
            parts: vec![Part::default(); usize::from(count)].into_boxed_slice(),
            chunks: Vec::new(),
            free: Vec::new(),
            offered_count: usize::from(count),
        })
    }

    /// Claims the bytes that a completion has added; returns the id of their chunk, for
    /// [`ChunkRing::recycle`].
    ///
    /// # Safety
    /// As [`BufferRing::claim`], and all completions that name the group are claimed, in the order in
    /// which they were popped.
    pub unsafe fn claim(&mut self, cqe: &Cqe) -> Option<u32> {
        let buffer = cqe.buffer()?;
        let part = self.parts.get_mut(usize::from(buffer))?;
        let room = self.ring.buf_len() as usize - part.filled;
        let len = usize::try_from(cqe.res).unwrap_or(0).min(room);
        let chunk = Chunk {
            buffer,
            start: part.filled,
            len,
            holder: Holder::Ring,
        };
        part.filled += len;
        part.chunk_count += 1;
        if !cqe.buffer_more() {
            // SAFETY: this function's contract; a buffer ends once.
            unsafe { self.ring.claim(cqe) };
            self.offered_count -= 1;
        }
        if let Some(id) = self.free.pop() {
            self.chunks[id as usize] = chunk;
            return Some(id);
        }
        self.chunks.push(chunk);
        Some(self.chunks.len() as u32 - 1)
    }

    /// True if the kernel has a buffer with room.
    pub fn offers_some(&self) -> bool {
        self.offered_count > 0
    }

    /// The bytes of a chunk; empty if it was returned.
    pub fn bytes(&self, id: u32, len: usize) -> &[u8] {
        match self.chunks.get(id as usize) {
            Some(chunk) if chunk.holder == Holder::Ring => {
                let at = self.ring.address(chunk.buffer).wrapping_add(chunk.start);
                // SAFETY: C1; the range is inside its buffer (B1), as `claim` bounds it.
                unsafe { std::slice::from_raw_parts(at, len.min(chunk.len)) }
            }
            _ => &[],
        }
    }

    /// Detaches a chunk; `None` if it is not held, or detached already.
    pub fn detach(&mut self, id: u32) -> Option<Detached> {
        let chunk = self.chunks.get_mut(id as usize)?;
        if chunk.holder != Holder::Ring {
            return None;
        }
        chunk.holder = Holder::Detached;
        self.ring.detached(chunk.buffer, chunk.start, chunk.len, id)
    }

    /// Returns a detached chunk; one of another group is dropped.
    pub fn take_back(&mut self, buffer: &Detached) -> bool {
        let own = self.ring.is_own(buffer);
        if own {
            self.let_go(buffer.id(), Holder::Detached);
        }
        own
    }

    /// Returns a chunk; no effect if it was returned already.
    pub fn recycle(&mut self, id: u32) {
        self.let_go(id, Holder::Ring);
    }

    fn let_go(&mut self, id: u32, by: Holder) {
        let Some(chunk) = self.chunks.get_mut(id as usize) else {
            return;
        };
        if chunk.holder != by {
            return;
        }
        chunk.holder = Holder::Nobody;
        let buffer = chunk.buffer;
        self.free.push(id);
        let part = &mut self.parts[usize::from(buffer)];
        part.chunk_count -= 1;
        // C2.
        if part.chunk_count == 0 && self.ring.is_claimed(buffer) {
            *part = Part::default();
            self.ring.recycle(buffer);
            self.offered_count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::LONG;
    use crate::sys::uring::Config;
    use crate::sys::uring::abi::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    struct Fixture {
        // Dropped in order: the ring's requests end before the buffers are freed.
        ring: Ring,
        buffers: ChunkRing,
        near: UnixStream,
        _far: UnixStream,
    }

    fn fixture(count: u16, buf_len: u32) -> Fixture {
        let mut ring = Ring::new(&Config {
            entries: 8,
            cq_entries: 64,
            polling: None,
        })
        .unwrap();
        ring.enable().unwrap();
        let buffers = ChunkRing::register(&ring, 7, count, buf_len).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let sqe = Sqe {
            opcode: OP_RECV,
            flags: SQE_BUFFER_SELECT,
            ioprio: RECV_MULTISHOT,
            fd: far.as_raw_fd(),
            buf_index: 7,
            ..Sqe::default()
        };
        // SAFETY: the entry names only the group, which lives in the fixture.
        unsafe { ring.push(sqe) }.unwrap();
        ring.enter(0, None).unwrap();
        Fixture {
            ring,
            buffers,
            near,
            _far: far,
        }
    }

    impl Fixture {
        fn receive(&mut self, bytes: &[u8]) -> (i32, Option<u32>) {
            self.near.write_all(bytes).unwrap();
            self.ring.enter(1, Some(LONG)).unwrap();
            let cqe = self.ring.pop().unwrap();
            // SAFETY: each completion of this ring is claimed once, in order.
            (cqe.res, unsafe { self.buffers.claim(&cqe) })
        }
    }

    #[test]
    fn c1_chunks_of_one_buffer_keep_their_bytes_while_it_is_filled() {
        let mut fixture = fixture(2, 64);
        let (_, one) = fixture.receive(b"one");
        let (_, two) = fixture.receive(b"second");
        let (one, two) = (one.unwrap(), two.unwrap());
        let owned = fixture.buffers.detach(one).unwrap();
        assert!(fixture.buffers.detach(one).is_none(), "detached once");
        let (_, three) = fixture.receive(&[b'3'; 30]);
        assert_eq!(owned.bytes(), b"one");
        assert_eq!(fixture.buffers.bytes(two, 99), b"second");
        assert_eq!(fixture.buffers.bytes(three.unwrap(), 99), [b'3'; 30]);
        assert_eq!(
            owned.bytes().as_ptr().wrapping_add(3),
            fixture.buffers.bytes(two, 9).as_ptr()
        );
        assert!(fixture.buffers.take_back(&owned));
        assert_eq!(fixture.buffers.bytes(one, 3), b"", "given back");
    }

    #[test]
    fn c2_a_buffer_is_reused_once_it_has_ended_and_no_chunk_is_held() {
        let mut fixture = fixture(2, 16);
        let (_, first) = fixture.receive(b"0123456789");
        let (count, rest) = fixture.receive(b"abcdef");
        assert_eq!(count, 6, "the buffer is full");
        assert_eq!(fixture.buffers.offered_count, 1);
        fixture.buffers.recycle(rest.unwrap());
        fixture.buffers.recycle(rest.unwrap());
        assert_eq!(fixture.buffers.offered_count, 1, "its first chunk is held");
        let (_, second) = fixture.receive(&[b'x'; 16]);
        assert!(!fixture.buffers.offers_some());
        let (none, _) = fixture.receive(b"y");
        assert_eq!(none, -libc::ENOBUFS);
        assert_eq!(fixture.buffers.bytes(first.unwrap(), 99), b"0123456789");
        fixture.buffers.recycle(first.unwrap());
        assert!(fixture.buffers.offers_some());
        assert_eq!(fixture.buffers.bytes(second.unwrap(), 99), [b'x'; 16]);
    }
}
