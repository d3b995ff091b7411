//! Why there is no ring here, and the remedy.
//!
//! Owns: the messages. Called by: set-up, with an errno and the step that failed. Reads only the
//! limits and two small files of `/proc`; `classify` itself is a pure function, so that every
//! refusal can be tested without a kernel that refuses.
//!
//! ```text
//!   errno            and                                            cause
//!   EPERM, EACCES    kernel.io_uring_disabled is 2,                 Disabled
//!                      or 1 and the process is unprivileged
//!   EPERM, EACCES    otherwise                                      Forbidden: seccomp or the like
//!   ENOSYS           the system is not Linux                        NotLinux
//!   ENOSYS           kernel.io_uring_disabled exists                Forbidden: a filter hides it
//!   ENOSYS           otherwise                                      NoKernelSupport
//!   EINVAL           at setup, also with the fewest flags           TooOld
//!   ENOMEM           -                                              NoMemory
//!   EMFILE, ENFILE   -                                              NoDescriptors
//! ```

use super::super::process;
use super::super::refused::RefusedCall;
use crate::sys::libc;
use std::error::Error;
use std::fmt;
use std::fs;
use std::io;

/// Why the kernel gave no ring; the text names the cause and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The cause, for code.
    pub cause: Cause,
}

/// The cause of a [`Refusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The administrator has disabled it.
    Disabled {
        /// Value of `kernel.io_uring_disabled`: 1 for unprivileged processes, 2 for all.
        sysctl: u8,
    },
    /// A seccomp filter (the default in Docker, containerd and Podman) or another policy denies the
    /// calls.
    Forbidden,
    /// The kernel was built without it, or is not Linux itself (gVisor).
    NoKernelSupport,
    /// Another system, which has no ring: macOS or Windows.
    NotLinux,
    /// The kernel has a ring, but lacks something that ours requires.
    TooOld {
        /// What is missing, by the kernel's name.
        missing: &'static str,
        /// The first Linux that has it.
        since: &'static str,
    },
    /// No memory for the queues.
    NoMemory {
        /// Soft `RLIMIT_MEMLOCK` in bytes; [`u64::MAX`] is no limit.
        memlock: u64,
    },
    /// No descriptor left for the ring.
    NoDescriptors {
        /// Soft `RLIMIT_NOFILE`; with [`u64::MAX`] (no limit) the system's table is full.
        limit: u64,
    },
    /// The ring works, but not its polling thread: the errno.
    Polling(i32),
    /// The ring works, but another call that it needs was refused.
    Call(RefusedCall),
    /// Any other errno.
    Other(i32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cause == Cause::NotLinux {
            return f.write_str("only Linux has io_uring");
        }
        f.write_str("io_uring refused: ")?;
        match &self.cause {
            Cause::NotLinux => Ok(()),
            Cause::Disabled { sysctl: 1 } => f.write_str(
                "kernel.io_uring_disabled=1 keeps it from unprivileged processes; put the user into \
                 the group kernel.io_uring_group or set kernel.io_uring_disabled=0",
            ),
            Cause::Disabled { sysctl } => write!(
                f,
                "kernel.io_uring_disabled={sysctl} turns it off; set kernel.io_uring_disabled=0",
            ),
            Cause::Forbidden => f.write_str(
                "a seccomp filter or another policy denies it (the default in containers); \
                 allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile",
            ),
            Cause::NoKernelSupport => f.write_str(
                "this kernel has no io_uring; run on Linux 6.1 or later built with CONFIG_IO_URING",
            ),
            Cause::TooOld { missing, since } => write!(
                f,
                "this kernel lacks {missing}; run on Linux {} or later",
                since_at_least_6_1(since),
            ),
            Cause::NoMemory { memlock: u64::MAX } => f.write_str(
                "no memory for its queues; raise the memory limit of the control group",
            ),
            Cause::NoMemory { memlock } => write!(
                f,
                "no memory for its queues; raise RLIMIT_MEMLOCK (`ulimit -l`, now {} KiB) \
                 or the memory limit of the control group",
                memlock / 1024,
            ),
            Cause::NoDescriptors { limit: u64::MAX } => {
                f.write_str("no file descriptor is free; raise fs.file-max or close some")
            }
            Cause::NoDescriptors { limit } => write!(
                f,
                "no file descriptor is free; raise RLIMIT_NOFILE (`ulimit -n`, now {limit}) \
                 or close some",
            ),
            Cause::Polling(errno) => write!(
                f,
                "the thread that polls the submission queue was refused ({}); it needs room under \
                 RLIMIT_NPROC and a security policy that allows IORING_SETUP_SQPOLL, before Linux 5.13 \
                 CAP_SYS_NICE or CAP_SYS_ADMIN too; leave Options::submission_polling out to go on \
                 without it",
                io::Error::from_raw_os_error(*errno),
            ),
            Cause::Call(refused) => write!(f, "{refused}"),
            Cause::Other(errno) => write!(
                f,
                "{}; set RINGLOOP_DRIVER=epoll to go on without it",
                io::Error::from_raw_os_error(*errno),
            ),
        }
    }
}

impl Error for Refusal {}

impl Refusal {
    /// The corresponding errno.
    pub fn errno(&self) -> i32 {
        match &self.cause {
            Cause::Disabled { .. } | Cause::Forbidden => libc::EPERM,
            Cause::NoKernelSupport | Cause::NotLinux | Cause::TooOld { .. } => libc::ENOSYS,
            Cause::NoMemory { .. } => libc::ENOMEM,
            Cause::NoDescriptors { limit: u64::MAX } => libc::ENFILE,
            Cause::NoDescriptors { .. } => libc::EMFILE,
            Cause::Call(refused) => refused.errno,
            Cause::Polling(errno) | Cause::Other(errno) => *errno,
        }
    }
}

/// A feature may be older than 6.1, but a kernel below 6.1 would only fail at the next one.
fn since_at_least_6_1(since: &str) -> &str {
    let number = |part: &str| part.parse::<u32>().unwrap_or(0);
    match since.split_once('.') {
        Some((major, minor)) if (number(major), number(minor)) > (6, 1) => since,
        _ => "6.1",
    }
}

/// The call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// `io_uring_setup`, with the fewest flags we accept.
    Setup,
    /// Mapping the queues.
    Map,
    /// Querying the operations.
    Probe,
    /// Entering the disabled ring.
    Enter,
    /// Registering a buffer ring.
    Buffers,
}

/// The environment that explains an errno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Whether the system is Linux, or says so.
    pub is_linux: bool,
    /// `kernel.io_uring_disabled`; absent before 6.6 and in kernels built without `io_uring`.
    pub disabled: Option<u8>,
    /// True if the thread has `CAP_SYS_ADMIN`, which `io_uring_disabled=1` exempts.
    pub privileged: bool,
    /// The soft `RLIMIT_MEMLOCK`.
    pub memlock: u64,
    /// The soft `RLIMIT_NOFILE`.
    pub descriptors: u64,
}

impl Facts {
    /// Reads them from the running kernel; unreadable ones are taken as absent.
    pub(super) fn read() -> Self {
        let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self {
            is_linux: cfg!(target_os = "linux"),
            disabled,
            privileged: has_sys_admin(&status),
            memlock: process::soft_limit(libc::RLIMIT_MEMLOCK),
            descriptors: process::soft_limit(libc::RLIMIT_NOFILE),
        }
    }
}

fn has_sys_admin(status: &str) -> bool {
    /// `CAP_SYS_ADMIN` of `include/uapi/linux/capability.h`.
    const SYS_ADMIN: u32 = 21;
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|capabilities| capabilities >> SYS_ADMIN & 1 == 1)
}

/// Converts an errno into a cause that a user can act on.
pub(super) fn classify(step: Step, errno: i32, facts: &Facts) -> Refusal {
    let cause = match errno {
        libc::EPERM | libc::EACCES => match facts.disabled {
            Some(sysctl @ 2..) if step == Step::Setup => Cause::Disabled { sysctl },
            Some(1) if step == Step::Setup && !facts.privileged => Cause::Disabled { sysctl: 1 },
            _ => Cause::Forbidden,
        },
        libc::ENOSYS if !facts.is_linux => Cause::NotLinux,
        libc::ENOSYS if facts.disabled.is_some() => Cause::Forbidden,
        libc::ENOSYS => Cause::NoKernelSupport,
        libc::EINVAL if step == Step::Setup => {
            Cause::TooOld { missing: "IORING_SETUP_DEFER_TASKRUN", since: "6.1" }
        }
        libc::ENOMEM => Cause::NoMemory { memlock: facts.memlock },
        libc::EMFILE => Cause::NoDescriptors { limit: facts.descriptors },
        libc::ENFILE => Cause::NoDescriptors { limit: u64::MAX },
        errno => Cause::Other(errno),
    };
    Refusal { cause }
}

#[cfg(test)]
mod tests;
