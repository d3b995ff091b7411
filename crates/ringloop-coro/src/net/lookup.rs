//! Addresses by name, for `connect` and `bind`.
//!
//! Owns: [`ToSocketAddrs`]. Called by: the sockets of this folder. Names are looked up on the
//! engine's blocking pool.

use crate::wait::block_on;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::vec::IntoIter;

/// One or several addresses: implemented for the types of `std::net::ToSocketAddrs`.
///
/// Parks to look up a name. An address needs no look-up, and no coroutine.
pub trait ToSocketAddrs {
    /// The addresses, in the order in which to try them.
    ///
    /// # Errors
    /// The resolver's; [`io::ErrorKind::InvalidInput`] without a port.
    fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>>;
}

fn one(addr: SocketAddr) -> IntoIter<SocketAddr> {
    vec![addr].into_iter()
}

macro_rules! into_addr {
    ($($type:ty),*) => {$(
        impl ToSocketAddrs for $type {
            fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>> {
                Ok(one((*self).into()))
            }
        }
    )*};
}

into_addr!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16),
    ([u8; 4], u16)
);

impl ToSocketAddrs for str {
    fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>> {
        match self.parse() {
            Ok(addr) => Ok(one(addr)),
            Err(_) => Ok(block_on(ringloop::net::lookup_host(self))?.into_iter()),
        }
    }
}

impl ToSocketAddrs for String {
    fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>> {
        self.as_str().to_socket_addrs()
    }
}

impl ToSocketAddrs for (&str, u16) {
    fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>> {
        match self.0.parse::<IpAddr>() {
            Ok(addr) => Ok(one((addr, self.1).into())),
            Err(_) => format!("{}:{}", self.0, self.1).to_socket_addrs(),
        }
    }
}

impl ToSocketAddrs for (String, u16) {
    fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>> {
        (self.0.as_str(), self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for [SocketAddr] {
    fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>> {
        let addrs = self.to_vec();
        Ok(addrs.into_iter())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>> {
        (**self).to_socket_addrs()
    }
}

/// The result of the first `attempt` that succeeds, else the last error.
pub(super) fn first<T>(
    addrs: impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last =
        io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses");
    for addr in addrs.to_socket_addrs()? {
        match attempt(addr) {
            Ok(value) => return Ok(value),
            Err(error) => last = error,
        }
    }
    Err(last)
}
