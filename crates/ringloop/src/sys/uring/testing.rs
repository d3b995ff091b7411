//! Other kernels, for the tests of set-up and refusals.

use super::abi::{self, Params, Probe};
use super::kernel::{Kernel, Linux};
use super::refusal::Facts;
use crate::sys::fd::OwnedFd;
use crate::sys::libc;
use std::io;

/// A kernel or a sandbox with fewer features than the running one.
#[derive(Default)]
pub(super) struct OldKernel {
    /// `SETUP_*` bits that it refuses with `EINVAL`.
    pub refused_flags: u32,
    /// `FEAT_*` bits that it does not report.
    pub missing_features: u32,
    /// Operations that it does not have.
    pub missing_operations: Vec<u8>,
    /// What `io_uring_setup` fails with.
    pub setup_errno: Option<i32>,
    /// How often set-up fails for lack of memory first.
    pub memory_failures: std::cell::Cell<u32>,
    /// What the probe fails with.
    pub probe_errno: Option<i32>,
    /// What `io_uring_enter` fails with.
    pub enter_errno: Option<i32>,
    /// Replaces the facts about the running kernel.
    pub facts: Option<Facts>,
}

impl Kernel for OldKernel {
    fn setup(&self, entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
        if let Some(left) = self.memory_failures.get().checked_sub(1) {
            self.memory_failures.set(left);
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let unknown = params.flags & self.refused_flags != 0;
        if let Some(errno) = self.setup_errno.or(unknown.then_some(libc::EINVAL)) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let fd = Linux.setup(entries, params)?;
        params.features &= !self.missing_features;
        Ok(fd)
    }

    fn probe(&self, ring: &OwnedFd, probe: &mut Probe) -> io::Result<()> {
        if let Some(errno) = self.probe_errno {
            return Err(io::Error::from_raw_os_error(errno));
        }
        Linux.probe(ring, probe)?;
        for &operation in &self.missing_operations {
            probe.ops[usize::from(operation)].flags &= !abi::IO_URING_OP_SUPPORTED;
        }
        Ok(())
    }

    fn enter_disabled(&self, ring: &OwnedFd) -> io::Error {
        self.enter_errno.map_or_else(|| Linux.enter_disabled(ring), io::Error::from_raw_os_error)
    }

    fn facts(&self) -> Facts {
        self.facts.clone().unwrap_or_else(Facts::read)
    }
}
