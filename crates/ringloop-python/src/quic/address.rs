//! Addresses in asyncio's form: `(host, port)`, `(host, port, flow info, scope id)`; hosts are numeric. Names as DNS has them.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use ringloop_quic::rustls::pki_types::DnsName;

use super::exception;
use crate::ffi::{IntoObject as _, Raise as _, intern, new_str};

/// Read an address; a name is no address, and neither is anything but a tuple.
pub fn from_python(address: &Bound<'_, PyAny>) -> PyResult<SocketAddr> {
    let tuple = address.cast::<PyTuple>()?;
    let host = tuple.get_item(0)?.extract::<String>()?;
    let port = tuple.get_item(1)?.extract()?;
    let (bare, scope) = host.split_once('%').unwrap_or((&host, ""));
    let ip: IpAddr = bare.parse().map_err(|_| {
        PyValueError::raise(format!(
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
                0 if scope.is_empty() => 0,
                0 => zone(address.py(), scope)?,
                scope_id => scope_id,
            };
            SocketAddrV6::new(v6, port, number(2)?, scope_id).into()
        }
    })
}

/// The number of an interface, which is named or numbered (RFC 4007 §11.2).
fn zone(py: Python<'_>, scope: &str) -> PyResult<u32> {
    if let Ok(number) = scope.parse() {
        return Ok(number);
    }
    let socket = py.import(intern!(py, "socket"))?;
    socket
        .call_method1(intern!(py, "if_nametoindex"), (scope,))?
        .extract()
}

/// A name as certificates and DNS have it: what is not ASCII is encoded, as `ssl` does (RFC 5890, A-labels). An address is
/// left without its zone, which is this machine's own matter.
pub fn dns_name<'a>(py: Python<'_>, name: &'a str) -> PyResult<Cow<'a, str>> {
    let name = match name.split_once('%') {
        Some((bare, _)) if bare.parse::<Ipv6Addr>().is_ok() => bare,
        _ => name,
    };
    if name.is_ascii() {
        return Ok(name.into());
    }
    let encoded = new_str(py, name)?.call_method1(intern!(py, "encode"), (intern!(py, "idna"),));
    let encoded = encoded.map_err(|error| {
        let text = format!("{name:?} is no server name: {}", error.value(py));
        exception::configuration(py, text)
    })?;
    let ascii: Vec<u8> = encoded.extract()?;
    Ok(String::from_utf8_lossy(&ascii).into_owned().into())
}

/// A name that clients may ask for (RFC 6066 §3), perhaps with a wildcard, as a server's table has it.
pub fn sni_name(py: Python<'_>, name: &str) -> PyResult<String> {
    let encoded = dns_name(py, name)?;
    let whole = encoded.strip_suffix('.').unwrap_or(&encoded);
    let bare = whole.strip_prefix("*.").unwrap_or(whole);
    if DnsName::try_from(bare).is_err() {
        let text = format!(
            "{name:?} is no name that clients ask for: give DNS names, '*.' in front of one for all with one label \
             more; the default certificate is for all others, and for addresses"
        );
        return Err(exception::configuration(py, text));
    }
    Ok(whole.to_owned())
}

/// Make Python's form. What IPv6 sockets call an IPv4 peer stays as they do.
pub fn to_python(py: Python<'_>, address: SocketAddr) -> PyResult<Bound<'_, PyAny>> {
    match address {
        SocketAddr::V4(v4) => (v4.ip().to_string(), v4.port()).into_object(py),
        SocketAddr::V6(v6) => {
            (v6.ip().to_string(), v6.port(), v6.flowinfo(), v6.scope_id()).into_object(py)
        }
    }
}

/// An address as people know it: not as a socket of IPv6 names one of IPv4.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}
