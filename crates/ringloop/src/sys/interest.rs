//! Directions in which a descriptor is watched.
//!
//! Owns: the translation between our two bits and the kernel's masks. Called by: epoll, poll and
//! the poll operation of the ring. `POLLRDHUP` and `POLLPRI` are not supported: asyncio has no
//! equivalent.
//!
//! An error or a hang-up counts as *both* readable and writable, because only the next read or
//! write can fetch the reason (`SO_ERROR`, end of file, `EPIPE`). `selectors` does the same.

use crate::sys::libc;
use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign};

/// Directions in which a descriptor is watched.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Interest(u8);

impl Interest {
    /// Neither direction.
    pub const NONE: Self = Self(0);
    /// A read, or an accept, would not block.
    pub const READ: Self = Self(1);
    /// A write would not block, or a connect has ended.
    pub const WRITE: Self = Self(2);
    /// Both directions.
    pub const BOTH: Self = Self(3);

    /// True if every direction of `other` is in `self`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True for neither direction.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Removes the directions of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The mask for poll(2) and for the ring's poll operation; also for `epoll_ctl(2)`: Linux promises
    /// that `EPOLLIN` is `POLLIN` and so on for these bits (`include/uapi/linux/eventpoll.h`).
    pub const fn poll_mask(self) -> u32 {
        let mut mask = 0;
        if self.contains(Self::READ) {
            mask |= libc::POLLIN as u32;
        }
        if self.contains(Self::WRITE) {
            mask |= libc::POLLOUT as u32;
        }
        mask
    }

    /// Converts a result of poll(2) or of the ring's poll operation.
    pub const fn from_poll_mask(mask: u32) -> Self {
        let broken = mask & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as u32 != 0;
        let mut bits = 0;
        if broken || mask & libc::POLLIN as u32 != 0 {
            bits |= Self::READ.0;
        }
        if broken || mask & libc::POLLOUT as u32 != 0 {
            bits |= Self::WRITE.0;
        }
        Self(bits)
    }
}

impl BitOr for Interest {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Interest {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Interest {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "NONE",
            1 => "READ",
            2 => "WRITE",
            _ => "READ|WRITE",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_round_trip_for_every_set() {
        for set in [Interest::NONE, Interest::READ, Interest::WRITE, Interest::BOTH] {
            assert_eq!(Interest::from_poll_mask(set.poll_mask()), set);
        }
    }

    #[test]
    fn errors_and_hang_ups_wake_both_directions() {
        for mask in [libc::POLLERR, libc::POLLHUP, libc::POLLNVAL] {
            assert_eq!(Interest::from_poll_mask(mask as u32), Interest::BOTH);
        }
    }

    #[test]
    fn epoll_and_poll_bits_are_the_same_numbers() {
        assert_eq!(Interest::READ.poll_mask(), libc::EPOLLIN as u32);
        assert_eq!(Interest::WRITE.poll_mask(), libc::EPOLLOUT as u32);
        assert_eq!(libc::POLLERR as u32, libc::EPOLLERR as u32);
        assert_eq!(libc::POLLHUP as u32, libc::EPOLLHUP as u32);
    }

    #[test]
    fn set_algebra() {
        assert!(
            Interest::BOTH.contains(Interest::READ) && !Interest::READ.contains(Interest::BOTH)
        );
        assert_eq!(Interest::BOTH.without(Interest::READ), Interest::WRITE);
        assert_eq!(Interest::READ | Interest::WRITE, Interest::BOTH);
        assert_eq!(Interest::BOTH & Interest::WRITE, Interest::WRITE);
        assert!((Interest::READ & Interest::WRITE).is_none());
    }
}
