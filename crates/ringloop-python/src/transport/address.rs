//! Converts addresses between Python's form and the kernel's, without a resolver.
//!
//! Called by: datagram endpoints (sources, destinations) and the creation of streams. Anything but a numeric
//! address is left to `socket.sendto`, which also raises the exceptions. Sockets of other families
//! receive with `socket.recvfrom`, which knows all their forms.
//!
//! | family   | Python                                  |
//! |----------|-----------------------------------------|
//! | `INET`   | `(host, port)`                          |
//! | `INET6`  | `(host, port, flow info, scope id)`, the last two may be missing |
//! | `UNIX`   | `str`; `bytes` for an abstract name; None for a nameless source |
//!
//! Source: `makesockaddr` and `getsockaddrarg` of CPython's socketmodule.c.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString, PyTuple};
use ringloop::embed::sys::address::{SockAddr, UnixName};
use ringloop::embed::sys::{libc, platform};

use crate::ffi::{self, IntoObject as _, Obj};

/// Whether sources of a family can be converted without `socket.recvfrom`.
pub(crate) fn knows(family: i32) -> bool {
    matches!(family, libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX)
}

/// Converts a destination for a socket of `family`; `None` leaves it to `socket.sendto`.
pub(crate) fn from_python(address: Borrowed<'_, '_, PyAny>, family: i32) -> Option<SockAddr> {
    if family == libc::AF_UNIX {
        return unix_from_python(address);
    }
    let tuple = address.cast_exact::<PyTuple>().ok()?;
    let host = tuple.get_borrowed_item(0).ok()?;
    let host = host.cast_exact::<PyString>().ok()?.to_str().ok()?.to_owned();
    let port = u16::try_from(number(tuple, 1)?).ok()?;
    match (family, tuple.len()) {
        (libc::AF_INET, 2) => {
            let ip: Ipv4Addr = host.parse().ok()?;
            Some(SocketAddr::new(IpAddr::V4(ip), port).into())
        }
        (libc::AF_INET6, len @ 2..=4) => {
            let ip: Ipv6Addr = host.parse().ok()?;
            let flow_info = if len > 2 { number(tuple, 2)? } else { 0 };
            let scope_id = if len > 3 { number(tuple, 3)? } else { 0 };
            // Larger ones are an OverflowError, raised by `socket.sendto`.
            (flow_info <= 0xf_ffff)
                .then(|| SocketAddr::V6(SocketAddrV6::new(ip, port, flow_info, scope_id)).into())
        }
        _ => None,
    }
}

fn number(tuple: Borrowed<'_, '_, PyTuple>, index: usize) -> Option<u32> {
    let item = tuple.get_borrowed_item(index).ok()?;
    item.cast_exact::<PyInt>().ok()?.extract().ok()
}

fn unix_from_python(address: Borrowed<'_, '_, PyAny>) -> Option<SockAddr> {
    let bytes = if let Ok(text) = address.cast_exact::<PyString>() {
        text.to_str().ok()?.as_bytes().to_vec()
    } else {
        address.cast_exact::<PyBytes>().ok()?.as_bytes().to_vec()
    };
    let name = match &*bytes {
        [] => return None,
        [0, name @ ..] => UnixName::Abstract(name),
        path => UnixName::Path(Path::new(platform::os_str_of(path))),
    };
    SockAddr::unix(name).ok()
}

/// Python's form of a source.
pub(crate) fn to_python(py: Python<'_>, address: &SockAddr) -> PyResult<Obj> {
    if address.len() == 0 {
        return Ok(py.None().into_bound(py).into());
    }
    let object = match address.to_std() {
        Some(SocketAddr::V4(v4)) => (v4.ip().to_string(), v4.port()).into_object(py)?,
        Some(SocketAddr::V6(v6)) => {
            let host = host_text(*v6.ip());
            (host, v6.port(), v6.flowinfo(), v6.scope_id()).into_object(py)?
        }
        None => match address.to_unix() {
            Some(UnixName::Path(path)) => ffi::new_path(py, path.as_os_str())?.into_any(),
            Some(UnixName::Abstract(name)) => {
                let mut bytes = vec![0];
                bytes.extend_from_slice(name);
                ffi::new_bytes(py, &bytes)?.into_any()
            }
            Some(UnixName::Unnamed) => ffi::new_str(py, "")?.into_any(),
            None => py.None().into_bound(py),
        },
    };
    Ok(object.into())
}

/// Same as glibc's `inet_ntop`: IPv4-compatible addresses (`::/96`) end in a dotted quad, which
/// Rust writes only for mapped ones.
fn host_text(ip: Ipv6Addr) -> String {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            format!("::{}", Ipv4Addr::new(a, b, c, d))
        }
        _ => ip.to_string(),
    }
}
