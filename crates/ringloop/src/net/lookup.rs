//! Name look-up by getaddrinfo(3), on the blocking pool.

use crate::executor::spawn_blocking;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Looks up the addresses of `host`, a name or an address with a port (`"localhost:80"`).
///
/// Keeps the order of the system's resolver. An address is parsed without the pool. See
/// getaddrinfo(3).
///
/// # Errors
/// The resolver's; [`io::ErrorKind::InvalidInput`] without a port.
///
/// # Cancel safety
/// The look-up continues, and its result is dropped.
pub async fn lookup_host(host: impl Into<String>) -> io::Result<Vec<SocketAddr>> {
    let host = host.into();
    if let Ok(addr) = host.parse() {
        return Ok(vec![addr]);
    }
    let found = spawn_blocking(move || host.to_socket_addrs().map(Iterator::collect)).await;
    found.map_err(io::Error::from)?
}
