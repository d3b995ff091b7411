//! Socket options. Called by: the socket types. No call blocks.

use crate::sys::fd::RawFd;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::socket::{get_option_int, local_addr, set_option_int};
use std::io;
use std::time::Duration;

/// `MAX_TCP_KEEPIDLE`, `MAX_TCP_KEEPINTVL` and `MAX_TCP_KEEPCNT` of the kernel's net/tcp.h.
const SECONDS_MAX: u128 = 32_767;
const PROBES_MAX: u32 = 127;

/// The kernel's probes of an idle TCP connection (`SO_KEEPALIVE`, tcp(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe; in whole seconds, rounded up, from one to the kernel's 32,767.
    pub idle: Duration,
    /// Interval of probes; in whole seconds, rounded up, from one to the kernel's 32,767.
    pub interval: Duration,
    /// Unanswered probes before the connection is reset, from one to the kernel's 127.
    pub probes: u32,
}

impl Default for Keepalive {
    /// A minute of silence, then six probes, one every ten seconds.
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 6 }
    }
}

pub(super) fn set_keepalive(fd: RawFd, keepalive: Option<Keepalive>) -> io::Result<()> {
    if let Some(keepalive) = keepalive {
        let set = |name, value| set_option_int(fd, libc::IPPROTO_TCP, name, value);
        set(platform::TCP_KEEPIDLE, seconds(keepalive.idle))?;
        set(libc::TCP_KEEPINTVL, seconds(keepalive.interval))?;
        set(libc::TCP_KEEPCNT, keepalive.probes.clamp(1, PROBES_MAX) as i32)?;
    }
    let on = i32::from(keepalive.is_some());
    set_option_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, on)
}

pub(super) fn keepalive(fd: RawFd) -> io::Result<bool> {
    Ok(get_option_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE)? != 0)
}

pub(super) fn nodelay(fd: RawFd) -> io::Result<bool> {
    Ok(get_option_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)? != 0)
}

pub(super) fn set_ttl(fd: RawFd, ttl: u32) -> io::Result<()> {
    let (level, name) = ttl_option(fd)?;
    let ttl = i32::try_from(ttl).unwrap_or(i32::MAX);
    set_option_int(fd, level, name, ttl)
}

pub(super) fn ttl(fd: RawFd) -> io::Result<u32> {
    let (level, name) = ttl_option(fd)?;
    Ok(get_option_int(fd, level, name)? as u32)
}

fn ttl_option(fd: RawFd) -> io::Result<(i32, i32)> {
    let family = libc::c_int::from(local_addr(fd)?.family());
    Ok(match family {
        libc::AF_INET6 => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        _ => (libc::IPPROTO_IP, libc::IP_TTL),
    })
}

pub(super) fn set_size(fd: RawFd, name: i32, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_option_int(fd, libc::SOL_SOCKET, name, bytes)
}

fn seconds(duration: Duration) -> i32 {
    duration.as_millis().div_ceil(1000).clamp(1, SECONDS_MAX) as i32
}
