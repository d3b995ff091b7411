//! Addresses in asyncio's form: `(host, port)`, `(host, port, flow info, scope id)`; hosts are numeric.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Read an address; a name is no address, and neither is anything but a tuple.
pub fn from_python(address: &Bound<'_, PyAny>) -> PyResult<SocketAddr> {
    let tuple = address.cast::<PyTuple>()?;
    let host = tuple.get_item(0)?.extract::<String>()?;
    let port = tuple.get_item(1)?.extract()?;
    let (bare, scope) = host.split_once('%').unwrap_or((&host, ""));
    let ip: IpAddr = bare.parse().map_err(|_| {
        PyValueError::new_err(format!(
            "{host:?} is no numeric address: look the name up first (loop.getaddrinfo)"
        ))
    })?;
    Ok(match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(v6) => {
            let number = |at: usize| {
                if tuple.len() > at {
                    tuple.get_item(at)?.extract::<u32>()
                } else {
                    Ok(0)
                }
            };
            let scope_id = match number(3)? {
                0 => scope.parse().unwrap_or(0),
                scope_id => scope_id,
            };
            SocketAddrV6::new(v6, port, number(2)?, scope_id).into()
        }
    })
}

/// Make Python's form. What IPv6 sockets call an IPv4 peer stays as they do.
pub fn to_python(py: Python<'_>, address: SocketAddr) -> PyResult<Bound<'_, PyTuple>> {
    match address {
        SocketAddr::V4(v4) => (v4.ip().to_string(), v4.port()).into_pyobject(py),
        SocketAddr::V6(v6) => {
            (v6.ip().to_string(), v6.port(), v6.flowinfo(), v6.scope_id()).into_pyobject(py)
        }
    }
}

/// An IPv4 address as a socket of IPv6 names it.
pub fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => {
            let ip: Ipv6Addr = v4.ip().to_ipv6_mapped();
            SocketAddr::new(ip.into(), v4.port())
        }
        SocketAddr::V6(_) => address,
    }
}
