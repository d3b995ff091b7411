//! Name look-up: getaddrinfo(3), which only blocks.

use crate::executor::spawn_blocking;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Look up the addresses of `host`, a name or an address with a port (`"localhost:80"`).
///
/// Shape: in the order of the system's resolver. What is an address already is answered at once; all else
/// runs on a pool thread, since no kernel can be asked for it.
/// Errors: the resolver's; [`io::ErrorKind::InvalidInput`] without a port.
/// Cancel safety: the look-up goes on, and its answer is lost.
/// Source: getaddrinfo(3).
pub async fn lookup_host(host: impl Into<String>) -> io::Result<Vec<SocketAddr>> {
    let host = host.into();
    if let Ok(addr) = host.parse() {
        return Ok(vec![addr]);
    }
    let found = spawn_blocking(move || host.to_socket_addrs().map(Iterator::collect)).await;
    found.map_err(io::Error::from)?
}
