//! Addresses in asyncio's form: `(host, port)`, `(host, port, flow info, scope id)`, with numeric
//! hosts; and DNS names.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use ringloop_quic::rustls::pki_types::DnsName;

use super::exception;
use crate::ffi::{IntoObject as _, Raise as _, intern, new_str};

/// Converts an address; names, and anything but a tuple, are rejected.
pub fn from_python(address: &Bound<'_, PyAny>) -> PyResult<SocketAddr> {
    let tuple = address.cast::<PyTuple>()?;
    let host = tuple.get_item(0)?.extract::<String>()?;
    let port = tuple.get_item(1)?.extract()?;
    let (bare, scope) = host.split_once('%').unwrap_or((&host, ""));
    let ip: IpAddr = bare.parse().map_err(|_| {
        PyValueError::raise(format!(
            "{host:?} is not a numeric address: resolve the name first (loop.getaddrinfo)"
        ))
    })?;
    Ok(match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(v6) => {
            let number = |at: usize| {
                if tuple.len() > at { tuple.get_item(at)?.extract::<u32>() } else { Ok(0) }
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

/// The index of an interface given by name or number (RFC 4007 §11.2).
fn zone(py: Python<'_>, scope: &str) -> PyResult<u32> {
    if let Ok(number) = scope.parse() {
        return Ok(number);
    }
    let socket = py.import(intern!(py, "socket"))?;
    socket.call_method1(intern!(py, "if_nametoindex"), (scope,))?.extract()
}

/// A name as in certificates and DNS: non-ASCII is encoded as A-labels, as in `ssl` (RFC 5890). An
/// address loses its zone, which is local to this machine.
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
        let text = format!("{name:?} is not a valid server name: {}", error.value(py));
        exception::configuration(py, text)
    })?;
    let ascii: Vec<u8> = encoded.extract()?;
    Ok(String::from_utf8_lossy(&ascii).into_owned().into())
}

/// A name for SNI (RFC 6066 §3), possibly with a wildcard, as in a server's table.
pub fn sni_name(py: Python<'_>, name: &str) -> PyResult<String> {
    let encoded = dns_name(py, name)?;
    let whole = encoded.strip_suffix('.').unwrap_or(&encoded);
    let bare = whole.strip_prefix("*.").unwrap_or(whole);
    if DnsName::try_from(bare).is_err() {
        let text = format!(
            "{name:?} is not a name that clients can request: give DNS names, '*.' in front of one for all with one label \
             more; the default certificate is for all others, and for addresses"
        );
        return Err(exception::configuration(py, text));
    }
    Ok(whole.to_owned())
}

/// Converts to Python's form. IPv4-mapped addresses stay mapped.
pub fn to_python(py: Python<'_>, address: SocketAddr) -> PyResult<Bound<'_, PyAny>> {
    match address {
        SocketAddr::V4(v4) => (v4.ip().to_string(), v4.port()).into_object(py),
        SocketAddr::V6(v6) => {
            (v6.ip().to_string(), v6.port(), v6.flowinfo(), v6.scope_id()).into_object(py)
        }
    }
}

/// An IPv4 address instead of its IPv4-mapped IPv6 form.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}
