//! Socket addresses in the kernel's own form.
//!
//! Owns: the bytes of one address and their length. Called by: the socket calls and the operations
//! that put an address into an SQE. Resolves no names.
//!
//! ```text
//!   family   sockaddr_*                                   len
//!   INET     sin_family sin_port sin_addr                  16
//!   INET6    sin6_family sin6_port flowinfo addr scope_id  28
//!   UNIX     sun_family "path" NUL                          2 + path + 1
//!   UNIX     sun_family NUL "abstract name"                 2 + 1 + name, no NUL at the end
//!   UNIX     sun_family                                     2, unnamed
//! ```
//!
//! # Invariants
//! - **A1** `storage` is fully initialised (it starts as zeros), and all-zero or kernel-written
//!   bytes are valid for every `sockaddr_*`, which hold only integers.
//! - **A2** `storage` is at least as large and as aligned as each `sockaddr_*`: that is what
//!   `sockaddr_storage` is for.

use super::platform;
use crate::sys::libc;
use std::fmt;
use std::io;
use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::{Path, PathBuf};

/// The name of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixName<'a> {
    /// A file.
    Path(&'a Path),
    /// A name in the abstract namespace (Linux only); any bytes.
    Abstract(&'a [u8]),
    /// Unnamed: an unbound client.
    Unnamed,
}

impl<'a> From<&'a Path> for UnixName<'a> {
    fn from(path: &'a Path) -> Self {
        Self::Path(path)
    }
}

impl<'a> From<&'a PathBuf> for UnixName<'a> {
    fn from(path: &'a PathBuf) -> Self {
        Self::Path(path)
    }
}

impl<'a> From<&'a str> for UnixName<'a> {
    fn from(path: &'a str) -> Self {
        Self::Path(Path::new(path))
    }
}

/// A socket address in the kernel's form.
#[derive(Clone)]
pub struct SockAddr {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

const UNIX_PATH_AT: usize = offset_of!(libc::sockaddr_un, sun_path);
const UNIX_PATH_MAX: usize = size_of::<libc::sockaddr_un>() - UNIX_PATH_AT;

impl SockAddr {
    /// Creates room for an address that the kernel will write.
    ///
    /// Pass [`SockAddr::as_mut_ptr`] and [`SockAddr::len_mut_ptr`]; before the call the length is the
    /// room, after it the address's length.
    pub fn empty() -> Self {
        let mut address = Self::zeroed();
        address.len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        address
    }

    fn zeroed() -> Self {
        // SAFETY: A1.
        let storage = unsafe { std::mem::zeroed() };
        Self { storage, len: 0 }
    }

    /// The address of a Unix socket. See unix(7).
    ///
    /// # Errors
    /// `EINVAL` if a path holds a NUL or is empty; `ENAMETOOLONG` over 107 bytes (103 on Apple's
    /// systems); `EOPNOTSUPP` for an abstract name on a system without them.
    pub fn unix(name: UnixName<'_>) -> io::Result<Self> {
        let (prefix, bytes, suffix_len) = match name {
            UnixName::Path(path) => (0, path.as_os_str().as_encoded_bytes(), 1),
            UnixName::Abstract(bytes) => (1, bytes, 0),
            UnixName::Unnamed => (0, &[][..], 0),
        };
        if let UnixName::Path(_) = name
            && (bytes.is_empty() || bytes.contains(&0))
        {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if prefix != 0 && !platform::HAS_ABSTRACT_NAMES {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let len = prefix + bytes.len() + suffix_len;
        if len > UNIX_PATH_MAX {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        let mut address = Self::zeroed();
        let unix = address.view_mut::<libc::sockaddr_un>();
        unix.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in unix.sun_path[prefix..].iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        address.len = (UNIX_PATH_AT + len) as libc::socklen_t;
        Ok(address)
    }

    /// Copies an address that the kernel wrote; bytes past the longest form are dropped.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut address = Self::zeroed();
        let room = address.view_mut::<[u8; size_of::<libc::sockaddr_storage>()]>();
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        address.len = len as libc::socklen_t;
        address
    }

    /// The Internet address; `None` for every other family.
    pub fn to_std(&self) -> Option<SocketAddr> {
        match libc::c_int::from(self.family()) {
            libc::AF_INET => {
                let v4 = self.view::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = self.view::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                let flow_info = u32::from_be(v6.sin6_flowinfo);
                Some(SocketAddrV6::new(ip, port, flow_info, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    /// The Unix name; `None` for every other family.
    pub fn to_unix(&self) -> Option<UnixName<'_>> {
        if libc::c_int::from(self.family()) != libc::AF_UNIX {
            return None;
        }
        let path_len = (self.len as usize).saturating_sub(UNIX_PATH_AT).min(UNIX_PATH_MAX);
        let bytes = &self.bytes()[UNIX_PATH_AT..UNIX_PATH_AT + path_len];
        Some(match bytes {
            [] => UnixName::Unnamed,
            [0, name @ ..] => UnixName::Abstract(name),
            path => {
                let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
                UnixName::Path(Path::new(platform::os_str_of(&path[..end])))
            }
        })
    }

    /// The address family (`AF_INET`, …; `AF_UNSPEC` while empty).
    pub fn family(&self) -> libc::sa_family_t {
        self.storage.ss_family
    }

    /// Pointer for a call or an SQE that reads the address.
    pub fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    /// The length that goes with [`SockAddr::as_ptr`], in bytes.
    #[allow(clippy::len_without_is_empty)] // the length of the form, not of a container
    pub fn len(&self) -> libc::socklen_t {
        self.len
    }

    /// Pointer for a call or an SQE that writes an address of at most [`SockAddr::len`] bytes.
    pub fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    /// Pointer through which the kernel writes the length.
    pub fn len_mut_ptr(&mut self) -> *mut libc::socklen_t {
        &raw mut self.len
    }

    /// Sets the length if the kernel returned it in another way (`msg_namelen`); capped to the
    /// room.
    pub fn set_len(&mut self, len: libc::socklen_t) {
        self.len = len.min(size_of::<libc::sockaddr_storage>() as libc::socklen_t);
    }

    fn bytes(&self) -> &[u8; size_of::<libc::sockaddr_storage>()] {
        // SAFETY: A1: initialised, and any byte is a valid u8.
        unsafe { &*(&raw const self.storage).cast() }
    }

    fn view<T: Form>(&self) -> &T {
        // SAFETY: A1, A2.
        unsafe { &*(&raw const self.storage).cast() }
    }

    fn view_mut<T: Form>(&mut self) -> &mut T {
        // SAFETY: A1, A2.
        unsafe { &mut *(&raw mut self.storage).cast() }
    }
}

/// The `sockaddr_*` types of A1 and A2.
trait Form {}
impl Form for libc::sockaddr_in {}
impl Form for libc::sockaddr_in6 {}
impl Form for libc::sockaddr_un {}
impl Form for [u8; size_of::<libc::sockaddr_storage>()] {}

impl From<SocketAddr> for SockAddr {
    fn from(address: SocketAddr) -> Self {
        let mut out = Self::zeroed();
        match address {
            SocketAddr::V4(v4) => {
                let to = out.view_mut::<libc::sockaddr_in>();
                to.sin_family = libc::AF_INET as libc::sa_family_t;
                to.sin_port = v4.port().to_be();
                to.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
                out.len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(v6) => {
                let to = out.view_mut::<libc::sockaddr_in6>();
                to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                to.sin6_port = v6.port().to_be();
                to.sin6_flowinfo = v6.flowinfo().to_be();
                to.sin6_addr.s6_addr = v6.ip().octets();
                to.sin6_scope_id = v6.scope_id();
                out.len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        out
    }
}

impl PartialEq for SockAddr {
    /// Two addresses are equal when the kernel would see the same bytes.
    fn eq(&self, other: &Self) -> bool {
        let len = self.len as usize;
        self.len == other.len && self.bytes()[..len] == other.bytes()[..len]
    }
}

impl Eq for SockAddr {}

impl fmt::Debug for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.to_std() {
            write!(f, "{address}")
        } else if let Some(name) = self.to_unix() {
            write!(f, "{name:?}")
        } else {
            write!(f, "family {}", self.family())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a1_every_internet_address_survives_the_kernels_form(
            v4: [u8; 4], v6: [u8; 16], port: u16, flow_info: u32, scope_id: u32
        ) {
            let v4 = SocketAddr::V4(SocketAddrV4::new(v4.into(), port));
            let v6 = SocketAddr::V6(SocketAddrV6::new(v6.into(), port, flow_info, scope_id));
            for address in [v4, v6] {
                let ours = SockAddr::from(address);
                prop_assert_eq!(ours.to_std(), Some(address));
                prop_assert_eq!(ours.to_unix(), None);
                prop_assert_eq!(format!("{ours:?}"), address.to_string());
            }
        }

        #[test]
        fn a1_every_unix_name_survives_the_kernels_form(
            path in "/[^\0]{0,25}", name: Vec<u8>
        ) {
            let path = PathBuf::from(path);
            let ours = SockAddr::unix(UnixName::Path(&path)).unwrap();
            prop_assert_eq!(ours.to_unix(), Some(UnixName::Path(&path)));
            prop_assert_eq!(ours.to_std(), None);
            match SockAddr::unix(UnixName::Abstract(&name)) {
                Ok(ours) => prop_assert_eq!(ours.to_unix(), Some(UnixName::Abstract(&name))),
                Err(error) => {
                    prop_assert!(name.len() > 107);
                    prop_assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
                }
            }
        }
    }

    #[test]
    fn a2_every_form_fits_and_lengths_are_the_kernels() {
        assert!(align_of::<libc::sockaddr_storage>() >= align_of::<libc::sockaddr_un>());
        assert!(align_of::<libc::sockaddr_storage>() >= align_of::<libc::sockaddr_in6>());
        assert!(size_of::<libc::sockaddr_storage>() >= size_of::<libc::sockaddr_un>());
        let len = |address: &str| SockAddr::from(address.parse::<SocketAddr>().unwrap()).len();
        assert_eq!((len("127.0.0.1:1"), len("[::1]:1")), (16, 28));
        let unix = |name| SockAddr::unix(name).unwrap().len();
        assert_eq!(unix(UnixName::Unnamed), 2);
        assert_eq!(unix(UnixName::Abstract(b"ab")), 5);
        assert_eq!(unix(UnixName::Path(Path::new("/ab"))), 6);
    }

    #[test]
    fn unix_paths_that_the_kernel_would_cut_are_refused() {
        let errno = |path: &str| {
            let made = SockAddr::unix(UnixName::Path(Path::new(path)));
            made.err().and_then(|error| error.raw_os_error())
        };
        assert_eq!(errno(&"a".repeat(107)), None);
        assert_eq!(errno(&"a".repeat(108)), Some(libc::ENAMETOOLONG));
        assert_eq!(errno("a\0b"), Some(libc::EINVAL));
        assert_eq!(errno(""), Some(libc::EINVAL));
    }

    #[test]
    fn a1_a_length_from_outside_is_capped_to_the_room() {
        let mut address = SockAddr::empty();
        assert_eq!(address.len() as usize, size_of::<libc::sockaddr_storage>());
        address.set_len(u32::MAX);
        assert_eq!(address.len() as usize, size_of::<libc::sockaddr_storage>());
        assert_eq!((address.to_std(), address.to_unix()), (None, None));
        assert_eq!(address, SockAddr::empty());
    }
}
