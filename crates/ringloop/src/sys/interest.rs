//! What a descriptor is watched for.
//!
//! Owns: the translation between our two bits and the kernel's masks. Called by: epoll, poll and
//! the poll operation of the ring. Never does: `POLLRDHUP` or `POLLPRI`: asyncio has no word for
//! either.
//!
//! An error or a hang-up counts as *both* readable and writable, because only the read or the write
//! that follows can fetch the reason (`SO_ERROR`, end of file, `EPIPE`). This is also what
//! `selectors` does.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign};

/// Name the directions a descriptor is watched for.
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

    /// Tell whether every direction of `other` is in `self`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Tell whether no direction is left.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Take the directions of `other` away.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Give the mask for poll(2) and for the ring's poll operation.
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

    /// Read the answer of poll(2) or of the ring's poll operation.
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

    /// Give the mask for `epoll_ctl(2)`, level-triggered.
    ///
    /// Linux promises that `EPOLLIN` is `POLLIN` and so on for these bits
    /// (`include/uapi/linux/eventpoll.h`).
    pub const fn epoll_mask(self) -> u32 {
        self.poll_mask()
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
        for set in [
            Interest::NONE,
            Interest::READ,
            Interest::WRITE,
            Interest::BOTH,
        ] {
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
        assert_eq!(Interest::READ.epoll_mask(), libc::EPOLLIN as u32);
        assert_eq!(Interest::WRITE.epoll_mask(), libc::EPOLLOUT as u32);
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
