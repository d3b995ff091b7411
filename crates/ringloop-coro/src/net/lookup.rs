//! Addresses by name, for `connect` and `bind`.
//!
//! Called by: the sockets of this folder. Never does: block; what is a name is looked up by the engine's pool.

use crate::block_on;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::vec::IntoIter;

/// What stands for one or several addresses: those types that `std::net::ToSocketAddrs` takes.
///
/// Parks where a name has to be looked up; what is an address already is answered at once, also outside of a
/// coroutine.
/// Errors: the resolver's; [`io::ErrorKind::InvalidInput`] without a port.
pub trait ToSocketAddrs {
    /// The addresses, in the order in which they are to be tried.
    fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>>;
}

fn one(addr: SocketAddr) -> IntoIter<SocketAddr> {
    vec![addr].into_iter()
}

impl ToSocketAddrs for SocketAddr {
    fn to_socket_addrs(&self) -> io::Result<IntoIter<SocketAddr>> {
        Ok(one(*self))
    }
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

/// The first of the addresses with which `attempt` succeeds; else the last error.
pub(super) fn first<T>(
    addrs: impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(
        io::ErrorKind::InvalidInput,
        "could not resolve to any addresses",
    );
    for addr in addrs.to_socket_addrs()? {
        match attempt(addr) {
            Ok(value) => return Ok(value),
            Err(error) => last = error,
        }
    }
    Err(last)
}
