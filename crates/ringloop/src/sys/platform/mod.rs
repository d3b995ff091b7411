//! What systems differ in, under Linux's names.
//!
//! Owns: the choice of platform, at compile time. Called by: the files of this layer, and by operations
//! that need a constant. Remembers nothing.
//!
//! The engine is written for Linux. `linux.rs` has the C library's own items, so that naming them here
//! costs nothing; `apple/` and `freebsd.rs` have items of the same names and forms. Such a call does what
//! Linux's does, or fails as on a kernel that is too old for it, for which callers have a second way:
//!
//! | call | on Apple's systems |
//! |---|---|
//! | `socket`, `socketpair`, `pipe2` with flags; `recvmsg` with `MSG_CMSG_CLOEXEC` | the plain call, then fcntl(2): a program that another thread starts in between inherits the descriptor |
//! | `preadv2`, `pwritev2`, `statx`, `renameat2`, `getsockopt(SO_DOMAIN)` | preadv(2), fstatat(2), `renameatx_np(2)`, getsockname(2) |
//! | `accept4`, `recvmmsg`, `sendmmsg`, `openat2`, `io_uring_*` | `ENOSYS`: accept(2), one message a call, a pool thread, the readiness driver |
//! | `RWF_NOWAIT` | `EOPNOTSUPP`: a pool thread |
//! | `splice`, `tee`, `fallocate`, the capacity of a pipe, a thread's processors | `ENOSYS` |
//! | `UDP_SEGMENT`, `UDP_GRO`, `IP_RECVERR`, `SO_ATTACH_REUSEPORT_CBPF` | `ENOPROTOOPT` |
//! | `MSG_NOSIGNAL` | `SO_NOSIGPIPE`, set when a socket is made |
//!
//! FreeBSD has the calls of the first row itself, and `accept4`, `SO_DOMAIN` and `MSG_NOSIGNAL`; a rename with
//! flags fails with `EINVAL` there.
//!
//! # Invariants
//! - **X1** A function here has the contract of the function of Linux's that it is named after.

#[cfg(target_vendor = "apple")]
mod apple;
/// What Apple's systems and FreeBSD have alike.
#[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
mod bsd;
#[cfg(unix)]
mod errno;
#[cfg(target_os = "freebsd")]
mod freebsd;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod not_linux;
/// Linux's calls, implemented with POSIX's; FreeBSD needs some of them.
#[cfg_attr(target_os = "freebsd", allow(dead_code))]
#[cfg(any(target_vendor = "apple", target_os = "freebsd", test))]
mod posix;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_vendor = "apple")]
pub use apple::*;
#[cfg(unix)]
pub use errno::errno_location;
#[cfg(target_os = "freebsd")]
pub use freebsd::*;
#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

#[cfg(not(any(target_os = "linux", target_vendor = "apple", target_os = "freebsd", windows)))]
compile_error!("ringloop runs on Linux, and compiles for Apple's systems, FreeBSD and Windows");
