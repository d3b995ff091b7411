//! Where received bytes are, behind one pointer.
//!
//! Owns: [`Holder`], and [`Holders`], the loop's spare ones, each with its small or medium buffer where it had one. Called
//! by: `received`, `local`. Never does: I/O.
//!
//! An allocator gives the block that was freed last, too, but by a longer way: with dozens of messages between two turns
//! it leaves its shortest one.

use super::Home;
use super::large::{self, PAGE};
use super::loan::Lent;
use crate::driver::Lease;
use crate::limits;
use std::rc::Rc;

/// Where received bytes are, and the loop that their memory goes back to.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    pub home: Home,
    pub memory: Memory,
}

/// A buffer of the loop's.
#[derive(Debug, Default)]
pub(crate) enum Memory {
    #[default]
    None,
    /// One of the receive pool.
    Pool(Lease),
    /// Another, behind whose bytes there were more: what comes in bulk is sent on before those are taken.
    Followed(Lease),
    /// One of the pool that an operation sends from.
    Lent(Rc<Lent>),
    /// One of the few large ones. Empty while an operation sends it, or where it was lost to one.
    Large(Vec<u8>),
    /// A small one: received into, or copied into to be sent. Empty as a large one.
    Small(Vec<u8>),
    /// A medium one, whose room begins on a page: received into. Empty as a large one.
    Medium(Vec<u8>),
}

/// What a medium buffer is allocated with.
const MEDIUM_CAPACITY: usize = limits::MEDIUM_BUFFER_BYTES + PAGE;

impl Holder {
    /// The whole of its buffer.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Small(bytes) | Memory::Medium(bytes) | Memory::Large(bytes) => bytes,
            Memory::Pool(lease) | Memory::Followed(lease) => lease.bytes(),
            Memory::Lent(_) | Memory::None => &[],
        }
    }

    /// Take its pool buffer out.
    #[inline]
    pub fn take_lease(&mut self) -> Option<Lease> {
        match std::mem::take(&mut self.memory) {
            Memory::Pool(lease) | Memory::Followed(lease) => Some(lease),
            other => {
                self.memory = other;
                None
            }
        }
    }

    /// More bytes follow those of its pool buffer.
    pub fn follow(&mut self) {
        if let Some(lease) = self.take_lease() {
            self.memory = Memory::Followed(lease);
        }
    }

    /// Put its small or medium buffer back; returns where its room begins.
    #[inline]
    pub fn put_own(&mut self, buffer: Vec<u8>) -> usize {
        match &mut self.memory {
            Memory::Small(place) => {
                *place = buffer;
                0
            }
            Memory::Medium(place) => {
                *place = buffer;
                large::lead_len(place)
            }
            other => {
                *other = Memory::Small(buffer);
                0
            }
        }
    }

    /// Take its small or medium buffer out, filled up to its room, to be received into.
    #[inline]
    pub fn take_own(&mut self) -> Vec<u8> {
        match &mut self.memory {
            Memory::Small(bytes) | Memory::Medium(bytes) => std::mem::take(bytes),
            _ => Vec::new(),
        }
    }
}

/// Spare holders, made when they are needed; the last one back on top.
// They are handed out as they are.
#[allow(clippy::vec_box)]
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// With a small buffer, which is empty.
    small: Vec<Box<Holder>>,
    /// With a medium buffer, which is filled up to its room.
    medium: Vec<Box<Holder>>,
    empty: Vec<Box<Holder>>,
}

impl Holders {
    /// One with an empty small buffer ([`limits::SMALL_BUFFER_BYTES`]).
    #[inline]
    #[allow(clippy::unnecessary_box_returns)] // As above.
    pub fn take_small(&mut self, home: impl FnOnce() -> Home) -> Box<Holder> {
        match self.small.pop() {
            Some(holder) => holder,
            None => Box::new(Holder {
                home: home(),
                memory: Memory::Small(Vec::with_capacity(limits::SMALL_BUFFER_BYTES)),
            }),
        }
    }

    /// One with a medium buffer, filled up to its room ([`limits::MEDIUM_BUFFER_BYTES`]).
    #[allow(clippy::unnecessary_box_returns)] // As above.
    pub fn take_medium(&mut self, home: impl FnOnce() -> Home) -> Box<Holder> {
        match self.medium.pop() {
            Some(holder) => holder,
            None => Box::new(Holder {
                home: home(),
                memory: Memory::Medium(large::on_a_page(MEDIUM_CAPACITY)),
            }),
        }
    }

    /// One without a buffer.
    #[inline]
    #[allow(clippy::unnecessary_box_returns)] // As above.
    pub fn take_empty(&mut self, home: impl FnOnce() -> Home) -> Box<Holder> {
        match self.empty.pop() {
            Some(holder) => holder,
            None => Box::new(Holder {
                home: home(),
                memory: Memory::None,
            }),
        }
    }

    /// Take one back that has a small or medium buffer or none; one of another size, and one too many, is freed.
    #[inline]
    pub fn keep(&mut self, mut holder: Box<Holder>) {
        let (spare, max) = match &mut holder.memory {
            Memory::Small(bytes) if bytes.capacity() == limits::SMALL_BUFFER_BYTES => {
                bytes.clear();
                (&mut self.small, limits::SMALL_BUFFERS)
            }
            Memory::Medium(bytes) if bytes.capacity() == MEDIUM_CAPACITY => {
                bytes.truncate(large::lead_len(bytes));
                (&mut self.medium, limits::MEDIUM_BUFFERS)
            }
            _ => {
                holder.memory = Memory::None;
                (&mut self.empty, limits::SMALL_BUFFERS)
            }
        };
        if spare.len() < max {
            spare.push(holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(holder: &Holder) -> *const u8 {
        match &holder.memory {
            Memory::Small(bytes) => bytes.as_ptr(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_one_back_is_the_next_one_and_its_bytes_are_forgotten() {
        let mut holders = Holders::default();
        let mut first = holders.take_small(Home::default);
        let second = holders.take_small(Home::default);
        let mut bytes = first.take_own();
        bytes.push(1);
        first.memory = Memory::Small(bytes);
        let place = at(&first);
        holders.keep(second);
        holders.keep(first);
        let again = holders.take_small(Home::default);
        assert_eq!((at(&again), again.bytes()), (place, &[][..]));
    }

    #[test]
    fn only_so_many_are_kept_and_no_small_buffer_of_another_size() {
        let mut holders = Holders::default();
        let mut long = holders.take_small(Home::default);
        long.memory = Memory::Small(Vec::with_capacity(limits::SMALL_BUFFER_BYTES + 1));
        holders.keep(long);
        assert_eq!((holders.small.len(), holders.empty.len()), (0, 1));
        let taken: Vec<_> = (0..=limits::SMALL_BUFFERS)
            .map(|_| holders.take_small(Home::default))
            .collect();
        for holder in taken {
            holders.keep(holder);
        }
        assert_eq!(holders.small.len(), limits::SMALL_BUFFERS);
    }
}
