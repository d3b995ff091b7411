//! Structures in POSIX's form.

// The names are POSIX's.
#![allow(non_camel_case_types, missing_docs, missing_debug_implementations)]

pub use std::ffi::{c_char, c_int, c_long, c_short, c_uint, c_void};
use windows_sys::Win32::Networking::WinSock;

pub type socklen_t = c_uint;
pub type sa_family_t = u16;
pub type ssize_t = isize;
pub type off_t = i64;
pub type mode_t = u32;
pub type pid_t = i32;
pub type id_t = u32;
pub type dev_t = u64;
pub type clockid_t = c_int;
pub type rlim_t = u64;

pub use WinSock::{POLLERR, POLLHUP, POLLNVAL, SOCKADDR as sockaddr};

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct iovec {
    pub iov_base: *mut c_void,
    pub iov_len: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct msghdr {
    pub msg_name: *mut c_void,
    pub msg_namelen: socklen_t,
    pub msg_iov: *mut iovec,
    pub msg_iovlen: usize,
    pub msg_control: *mut c_void,
    pub msg_controllen: usize,
    pub msg_flags: c_int,
}

/// Winsock's `WSACMSGHDR`, which has this form.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cmsghdr {
    pub cmsg_len: usize,
    pub cmsg_level: c_int,
    pub cmsg_type: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct in_addr {
    pub s_addr: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct in6_addr {
    pub s6_addr: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sockaddr_in {
    pub sin_family: sa_family_t,
    pub sin_port: u16,
    pub sin_addr: in_addr,
    pub sin_zero: [u8; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sockaddr_in6 {
    pub sin6_family: sa_family_t,
    pub sin6_port: u16,
    pub sin6_flowinfo: u32,
    pub sin6_addr: in6_addr,
    pub sin6_scope_id: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sockaddr_un {
    pub sun_family: sa_family_t,
    pub sun_path: [c_char; 108],
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct sockaddr_storage {
    pub ss_family: sa_family_t,
    ss_data: [u8; 126],
}

const _: () = assert!(size_of::<sockaddr_in>() == size_of::<WinSock::SOCKADDR_IN>());
const _: () = assert!(size_of::<sockaddr_in6>() == size_of::<WinSock::SOCKADDR_IN6>());
const _: () = assert!(size_of::<sockaddr_un>() == size_of::<WinSock::SOCKADDR_UN>());
const _: () = assert!(size_of::<sockaddr_storage>() == size_of::<WinSock::SOCKADDR_STORAGE>());
const _: () = assert!(size_of::<cmsghdr>() == size_of::<WinSock::CMSGHDR>());

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linger {
    pub l_onoff: c_int,
    pub l_linger: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pollfd {
    pub fd: c_int,
    pub events: c_short,
    pub revents: c_short,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct timespec {
    pub tv_sec: i64,
    pub tv_nsec: c_long,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stat {
    pub st_mode: u32,
    pub st_rdev: dev_t,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rlimit {
    pub rlim_cur: rlim_t,
    pub rlim_max: rlim_t,
}

/// There are no signals of that kind.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sigset_t(u64);
