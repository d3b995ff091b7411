//! The three system calls of `io_uring`, and a trait by which tests simulate other kernels.
//!
//! Owns: nothing. Called by: the ring (`enter`, `register`) and its set-up, which goes through
//! [`Kernel`]. Interprets no results.
//!
//! # Invariants
//! - **K1** A pointer handed to the kernel is to a live local, or covered by the caller's contract.
//! - **K2** A non-negative return of `io_uring_setup` is a fresh descriptor that nothing else owns,
//!   closed on exec.
//! - **K3** A structure that is [`Integers`] holds only integers, so all-zero bytes are a valid one.

use super::super::check;
use super::abi::{self, Params, Probe};
use super::refusal::Facts;
use crate::sys::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use crate::sys::libc;
use crate::sys::platform;
use std::io;

/// What set-up needs of the kernel. Tests simulate old and hardened ones.
pub(super) trait Kernel {
    /// Creates a ring.
    fn setup(&self, entries: u32, params: &mut Params) -> io::Result<OwnedFd>;
    /// Queries the operations.
    fn probe(&self, ring: &OwnedFd, probe: &mut Probe) -> io::Result<()>;
    /// Enters a ring that is still disabled. A kernel that allows the call returns `EBADFD`.
    fn enter_disabled(&self, ring: &OwnedFd) -> io::Error;
    /// Reads what the process can learn about its environment, to explain a refusal.
    fn facts(&self) -> Facts;
}

/// The running kernel.
pub(super) struct Linux;

impl Kernel for Linux {
    fn setup(&self, entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
        // SAFETY: K1.
        let fd = check(unsafe { platform::io_uring_setup(entries, (&raw mut *params).cast()) })?;
        // SAFETY: K2.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }

    fn probe(&self, ring: &OwnedFd, probe: &mut Probe) -> io::Result<()> {
        let (at, count) = ((&raw mut *probe).cast(), probe.ops.len() as u32);
        // SAFETY: K1: room for `count` entries.
        unsafe { register(ring.as_raw_fd(), abi::IORING_REGISTER_PROBE, at, count) }?;
        Ok(())
    }

    fn enter_disabled(&self, ring: &OwnedFd) -> io::Error {
        // SAFETY: K1; no argument is passed, and a disabled ring has no entries to take.
        match unsafe { enter(ring.as_raw_fd(), 0, 0, 0, std::ptr::null(), 0) } {
            Ok(_) => io::Error::from_raw_os_error(platform::EBADFD),
            Err(error) => error,
        }
    }

    fn facts(&self) -> Facts {
        Facts::read()
    }
}

/// A structure of the kernel that holds only integers.
///
/// # Safety
/// It does.
pub(super) unsafe trait Integers {}

// SAFETY: K3.
unsafe impl Integers for Probe {}
// SAFETY: K3.
unsafe impl Integers for Params {}

/// A structure with zeros in all its fields.
pub(super) fn zeroed<T: Integers>() -> T {
    // SAFETY: K3.
    unsafe { std::mem::zeroed() }
}

/// Submits and waits: `io_uring_enter(2)`.
///
/// # Safety
/// `argument` fits the flags; everything that the queued entries name stays valid until their last
/// completion.
pub(super) unsafe fn enter(
    ring: RawFd,
    to_submit: u32,
    want: u32,
    flags: u32,
    argument: *const libc::c_void,
    argument_len: usize,
) -> io::Result<u32> {
    // SAFETY: K1, by this function's contract.
    let count = check(unsafe {
        platform::io_uring_enter(ring, to_submit, want, flags, argument, argument_len)
    })?;
    Ok(count as u32)
}

/// Registers something with a ring: `io_uring_register(2)`.
///
/// # Safety
/// `argument` and `count` are as `opcode` requires, and registered memory outlives the registration.
pub(super) unsafe fn register(
    ring: RawFd,
    opcode: u32,
    argument: *mut libc::c_void,
    count: u32,
) -> io::Result<i32> {
    // SAFETY: K1, by this function's contract.
    let result = check(unsafe { platform::io_uring_register(ring, opcode, argument, count) })?;
    Ok(result as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disabled_ring() -> OwnedFd {
        let flags = abi::IORING_SETUP_R_DISABLED;
        Linux.setup(1, &mut Params { flags, ..zeroed() }).unwrap()
    }

    #[test]
    fn k1_a_disabled_ring_can_be_probed_but_not_entered() {
        let ring = disabled_ring();
        assert_eq!(Linux.enter_disabled(&ring).raw_os_error(), Some(libc::EBADFD));
        let mut probe: Probe = zeroed();
        Linux.probe(&ring, &mut probe).unwrap();
        assert!(probe.ops_len > abi::IORING_OP_SENDMSG_ZC);
        assert_eq!(probe.ops[usize::from(abi::IORING_OP_RECV)].op, abi::IORING_OP_RECV);
    }

    #[test]
    fn k2_the_descriptor_is_closed_on_exec() {
        let ring = disabled_ring();
        // SAFETY: no pointer is passed.
        let flags = unsafe { libc::fcntl(ring.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }

    #[test]
    fn k3_an_empty_probe_supports_nothing() {
        let probe: Probe = zeroed();
        assert_eq!((probe.last_op, probe.ops_len), (0, 0));
        assert!(probe.ops.iter().all(|operation| operation.flags == 0));
    }
}
