//! Addresses and names, as arguments of `bind` and `connect`.
//!
//! Owns: [`ToSocketAddrs`]. Called by: TCP and UDP sockets. A name is looked up on the blocking pool
//! (`lookup`); a numeric address, also in text, needs no thread and no allocation.

use super::lookup::lookup_host;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// One or several addresses, or a name to look up: for the types of `std::net::ToSocketAddrs`.
///
/// `SocketAddr` and its kin, `(ip, port)`, `"host:port"`, `("host", port)`, slices of addresses, and
/// references to these. Several are tried in order.
///
/// ```
/// use ringloop::net::{TcpListener, TcpStream};
///
/// # ringloop::Runtime::new()?.block_on(async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let port = listener.local_addr()?.port();
/// let by_text = TcpStream::connect(("127.0.0.1", port)).await?;
/// let by_address = TcpStream::connect(listener.local_addr()?).await?;
/// assert_eq!(by_text.peer_addr()?, by_address.peer_addr()?);
/// # std::io::Result::Ok(())
/// # })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ToSocketAddrs: sealed::ToSocketAddrs {}

impl<A: sealed::ToSocketAddrs> ToSocketAddrs for A {}

mod sealed {
    use super::Targets;

    /// What an argument names; `&self`, as references are arguments too.
    pub trait ToSocketAddrs {
        fn targets(&self) -> Targets;
    }
}

/// What an argument names.
#[derive(Debug)]
pub enum Targets {
    /// No memory and no wait.
    One(SocketAddr),
    Several(Vec<SocketAddr>),
    /// With a port.
    Name(String),
}

impl Targets {
    /// The result of the first `attempt` that succeeds, or the error of the last.
    ///
    /// Not inlined into its callers' futures: these stay as small as that of one attempt.
    pub async fn first<T>(
        self,
        attempt: impl AsyncFn(SocketAddr) -> io::Result<T>,
    ) -> io::Result<T> {
        let several = match self {
            Self::One(addr) => return attempt(addr).await,
            Self::Several(addrs) => addrs,
            Self::Name(name) => Box::pin(lookup_host(name)).await?,
        };
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address to use");
        for addr in several {
            match attempt(addr).await {
                Ok(value) => return Ok(value),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

macro_rules! one {
    ($($type:ty),*) => {$(
        impl sealed::ToSocketAddrs for $type {
            fn targets(&self) -> Targets {
                Targets::One((*self).into())
            }
        }
    )*};
}

one!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16),
    ([u8; 4], u16),
    ([u16; 8], u16)
);

impl sealed::ToSocketAddrs for str {
    fn targets(&self) -> Targets {
        self.parse().map_or_else(|_| Targets::Name(self.to_owned()), Targets::One)
    }
}

impl sealed::ToSocketAddrs for (&str, u16) {
    fn targets(&self) -> Targets {
        let (host, port) = *self;
        match host.parse::<IpAddr>() {
            Ok(ip) => Targets::One((ip, port).into()),
            Err(_) => Targets::Name(format!("{host}:{port}")),
        }
    }
}

impl sealed::ToSocketAddrs for String {
    fn targets(&self) -> Targets {
        self.as_str().targets()
    }
}

impl sealed::ToSocketAddrs for (String, u16) {
    fn targets(&self) -> Targets {
        (self.0.as_str(), self.1).targets()
    }
}

impl sealed::ToSocketAddrs for [SocketAddr] {
    fn targets(&self) -> Targets {
        match self {
            [addr] => Targets::One(*addr),
            addrs => Targets::Several(addrs.to_vec()),
        }
    }
}

impl<const COUNT: usize> sealed::ToSocketAddrs for [SocketAddr; COUNT] {
    fn targets(&self) -> Targets {
        self.as_slice().targets()
    }
}

impl sealed::ToSocketAddrs for Vec<SocketAddr> {
    fn targets(&self) -> Targets {
        self.as_slice().targets()
    }
}

impl<A: sealed::ToSocketAddrs + ?Sized> sealed::ToSocketAddrs for &A {
    fn targets(&self) -> Targets {
        (**self).targets()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(addrs: impl ToSocketAddrs) -> Targets {
        addrs.targets()
    }

    #[track_caller]
    fn one_of(addrs: impl ToSocketAddrs) -> SocketAddr {
        match addrs.targets() {
            Targets::One(addr) => addr,
            others => panic!("{others:?} needs memory"),
        }
    }

    #[test]
    fn numeric_addresses_need_no_look_up_in_any_form() {
        let v4 = SocketAddr::from(([127, 0, 0, 1], 80));
        for addr in [
            one_of(v4),
            one_of("127.0.0.1:80"),
            one_of("127.0.0.1:80".to_owned()),
            one_of(("127.0.0.1", 80)),
            one_of(("127.0.0.1".to_owned(), 80)),
            one_of((Ipv4Addr::LOCALHOST, 80)),
            one_of(([127, 0, 0, 1], 80)),
            one_of(&[v4][..]),
        ] {
            assert_eq!(addr, v4);
        }
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 80));
        assert_eq!([one_of("[::1]:80"), one_of(("::1", 80)), one_of(vec![v6])], [v6; 3]);
    }

    #[test]
    fn everything_else_is_a_name_with_its_port() {
        for name in [targets(("localhost", 80)), targets("localhost:80")] {
            assert!(matches!(&name, Targets::Name(name) if name == "localhost:80"), "{name:?}");
        }
    }
}
