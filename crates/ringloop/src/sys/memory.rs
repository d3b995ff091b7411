//! Memory mappings, and their inheritance by forked children.
//!
//! Owns: the address range, from `mmap` to `munmap`. Called by: the ring (its queues) and the
//! buffer ring. Gives out a pointer and a length, never references into memory that the kernel
//! writes.
//!
//! # Invariants
//! - **M1** `base .. base + len` was returned by one successful `mmap` of `len` bytes, `len > 0`,
//!   and belongs to this value.
//! - **M2** A range that is shared with the kernel is excluded from fork (`MADV_DONTFORK`): parent
//!   and child never drive one ring together. Of [`Mapping::copied_by_fork`] a child has its own
//!   copy.
//! - **M3** Only a process that has the range unmaps it. In a forked child the range may be another
//!   mapping of the child's.

use super::check;
use super::platform;
use super::refused::RefusedCall;
use crate::sys::fd::RawFd;
use crate::sys::libc;
use std::io;
use std::ptr::{self, NonNull};

/// A private range of the address space.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// The only process that has it; `None`: forked children have copies.
    owner_pid: Option<u32>,
}

// SAFETY: M1: an address range is not tied to a thread; its holder decides who touches its bytes.
unsafe impl Send for Mapping {}
// SAFETY: M1: a shared value gives out an address and a length, and touches no byte.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed, page-aligned memory of `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` for 0.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, len, 0)?.for_this_process()
    }

    /// Like [`Mapping::anonymous`], but a forked child gets a copy: for memory that is handed out.
    pub fn copied_by_fork(len: usize) -> io::Result<Self> {
        Self::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, len, 0)
    }

    /// Maps a part of `fd`, shared with the kernel (a ring's queues).
    ///
    /// The pages are populated at once, so that a loop's first turn takes no page faults.
    pub fn of_fd(fd: RawFd, len: usize, offset: u64) -> io::Result<Self> {
        Self::map(libc::MAP_SHARED | platform::MAP_POPULATE, fd, len, offset)?.for_this_process()
    }

    fn map(flags: libc::c_int, fd: RawFd, len: usize, offset: u64) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let offset = offset as libc::off_t;
        // SAFETY: M1: without MAP_FIXED the kernel picks a range that nothing uses.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        Ok(Self { base, len, owner_pid: None })
    }

    /// Excludes the range from forks.
    fn for_this_process(mut self) -> io::Result<Self> {
        // SAFETY: M1, M2; the advice changes no byte of the range.
        check(unsafe { platform::exclude_from_fork(self.base.as_ptr().cast(), self.len) })
            .map_err(RefusedCall::name(platform::EXCLUDE_FROM_FORK))?;
        self.owner_pid = Some(std::process::id());
        Ok(self)
    }

    /// The first address.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Pointer to a `T` at `offset`; `None` if it would leave the mapping or be misaligned. Valid
    /// while the mapping lives.
    pub fn locate<T>(&self, offset: usize) -> Option<NonNull<T>> {
        let end = offset.checked_add(size_of::<T>())?;
        let at = self.as_ptr().wrapping_add(offset).cast::<T>();
        if end > self.len || !at.is_aligned() {
            return None;
        }
        NonNull::new(at)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.owner_pid.is_none_or(|owner| owner == std::process::id()) {
            // SAFETY: M1, M3; the value is being dropped, so the range is not reachable through it
            // any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::in_child;

    /// The kernel's flags of the range that starts at `address` (`dc` = not copied on fork), if it
    /// is mapped.
    fn kernel_flags(address: usize) -> Option<String> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in smaps.lines() {
            if let Some((low, rest)) = line.split_once('-')
                && let Ok(low) = usize::from_str_radix(low, 16)
            {
                let high = usize::from_str_radix(rest.split(' ').next().unwrap(), 16).unwrap();
                inside = (low..high).contains(&address);
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return Some(flags.to_owned());
            }
        }
        None
    }

    #[test]
    fn m1_locate_refuses_what_leaves_the_mapping_or_is_misaligned() {
        let mapping = Mapping::anonymous(4096).unwrap();
        assert_eq!(mapping.len, 4096);
        assert!(mapping.locate::<u64>(4088).is_some());
        assert!(mapping.locate::<u64>(4089).is_none());
        assert!(mapping.locate::<u64>(4).is_none());
        assert!(mapping.locate::<u8>(4096).is_none());
        assert!(mapping.locate::<u64>(usize::MAX).is_none());
        assert_eq!(Mapping::anonymous(0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn m1_dropping_unmaps() {
        let size_kib = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let before = size_kib();
        for _ in 0..4096 {
            Mapping::anonymous(64 << 20).unwrap();
        }
        let grown_kib = size_kib().saturating_sub(before);
        assert!(grown_kib < 64 << 20, "256 GiB mapped and dropped, {grown_kib} KiB still there");
    }

    fn map_over(base: *mut u8) -> *mut u8 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: NOREPLACE never touches an existing mapping.
        let at = unsafe { libc::mmap(base.cast(), 4096, access, flags, -1, 0) };
        at.cast()
    }

    #[test]
    fn m2_the_child_of_a_fork_does_not_have_the_range() {
        let mapping = Mapping::anonymous(4096).unwrap();
        assert!(kernel_flags(mapping.as_ptr() as usize).unwrap().contains(" dc"));
        assert_ne!(map_over(mapping.as_ptr()), mapping.as_ptr(), "the parent has it");
        assert!(in_child(|| map_over(mapping.as_ptr()) == mapping.as_ptr()));
    }

    #[test]
    fn m2_the_child_has_a_copy_of_what_is_copied_by_fork() {
        let mapping = Mapping::copied_by_fork(4096).unwrap();
        let at = mapping.as_ptr();
        // SAFETY: the first byte of the mapping.
        unsafe { at.write_volatile(7) };
        assert!(in_child(|| {
            // SAFETY: the same byte of the child's copy.
            unsafe { at.write_volatile(8) };
            // SAFETY: a bitwise copy that is dropped once, in the child.
            drop(unsafe { ptr::read(&raw const mapping) });
            map_over(at) == at
        }));
        // SAFETY: as above.
        assert_eq!(unsafe { at.read_volatile() }, 7);
    }

    #[test]
    fn m3_dropping_in_a_forked_child_leaves_what_the_child_mapped_there() {
        let mapping = Mapping::anonymous(4096).unwrap();
        let base = mapping.as_ptr();
        let survived = in_child(|| {
            let own = map_over(base);
            // SAFETY: a byte of the child's own fresh mapping.
            unsafe { own.write_volatile(7) };
            // SAFETY: a bitwise copy that is dropped once, in the child; the parent's value is
            // another process's.
            drop(unsafe { ptr::read(&raw const mapping) });
            // SAFETY: as above; a fault here would fail the test by its exit status.
            unsafe { own.read_volatile() == 7 }
        });
        assert!(survived);
    }
}
