//! A received message as it lies in a buffer.
//!
//! ```text
//!   0             16                 128                  256
//!   │ RecvmsgOut  │ name, 112 bytes  │ control, 128 bytes │ payload …
//!   │ namelen controllen payloadlen flags                 │ one datagram, or a train of equal ones
//!                                                           ├─ segment ─┼─ segment ─┼─ rest ─┤
//! ```
//! It is the form of the ring's multishot receive (`struct io_uring_recvmsg_out`); [`super::Receiver`]
//! writes the same one, so that nobody has to ask who received. Where no control data is wanted, the
//! name has its room too, and the payload still begins at 256: a cache line's start, as the copy wants.
//!
//! Called by: whoever received. Never does: trust a length; a message that does not fit is none.

use crate::sys::address::SockAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes in front of the payload.
pub const HEAD_LEN: usize = 256;
/// Room for the source's address: the longest is a Unix path's, 110.
pub const NAME_ROOM: usize = 112;
/// Room for control data: segment size, ECN and packet info take 88.
pub const CONTROL_ROOM: usize = HEAD_LEN - NAME_AT - NAME_ROOM;

pub(super) const NAME_AT: usize = 16;
pub(super) const CONTROL_AT: usize = NAME_AT + NAME_ROOM;

/// Whether a receive asks for control data. A Unix socket should not: descriptors would come with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The kernel writes none.
    Unwanted,
    /// Up to [`CONTROL_ROOM`] bytes.
    Wanted,
}

impl Control {
    /// The room that a receive names for the source's address and for control data.
    pub(crate) fn rooms(self) -> (usize, usize) {
        match self {
            Self::Unwanted => (NAME_ROOM + CONTROL_ROOM, 0),
            Self::Wanted => (NAME_ROOM, CONTROL_ROOM),
        }
    }
}

/// One received message.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    /// Where it came from; of length 0 where the sender has no name.
    pub source: SockAddr,
    /// One datagram, or several of one sender: see [`Message::datagrams`].
    pub payload: &'a [u8],
    control: &'a [u8],
    flags: u32,
}

impl Default for Message<'_> {
    /// A message of nobody's, and empty.
    fn default() -> Self {
        Self {
            source: SockAddr::from_bytes(&[]),
            payload: &[],
            control: &[],
            flags: 0,
        }
    }
}

impl<'a> Message<'a> {
    /// Read what a receive left in `buffer`.
    pub fn parse(buffer: &'a [u8]) -> Option<Self> {
        let field = |at: usize| Some(u32::from_ne_bytes(buffer.get(at..at + 4)?.try_into().ok()?));
        let (name_len, control_len) = (field(0)? as usize, field(4)? as usize);
        let (payload_len, flags) = (field(8)? as usize, field(12)?);
        let name = buffer.get(NAME_AT..HEAD_LEN)?;
        // The kernel tells the length that an address has, also where it cut it.
        let name = &name[..name_len.min(NAME_ROOM)];
        let control = buffer.get(CONTROL_AT..HEAD_LEN)?.get(..control_len)?;
        let payload = &buffer[HEAD_LEN..];
        Some(Self {
            source: SockAddr::from_bytes(name),
            payload: &payload[..payload_len.min(payload.len())],
            control,
            flags,
        })
    }

    /// Whether the datagram was longer than the buffer.
    pub fn is_cut(&self) -> bool {
        self.flags & libc::MSG_TRUNC as u32 != 0
    }

    /// The data of the first control message of a level and type.
    pub fn control(&self, level: i32, kind: i32) -> Option<&'a [u8]> {
        control_of(self.control, level, kind)
    }

    /// The two bits of explicit congestion notification, where the socket asks for them
    /// ([`super::set_receive_ecn`]); 0 where not.
    pub fn ecn(&self) -> u8 {
        // One byte for IPv4, an `int` for IPv6.
        let v4 = self.control(libc::IPPROTO_IP, libc::IP_TOS);
        if let Some([class, ..]) = v4 {
            return class & 3;
        }
        match self.control(libc::IPPROTO_IPV6, libc::IPV6_TCLASS) {
            Some(&[a, b, c, d, ..]) => (i32::from_ne_bytes([a, b, c, d]) & 3) as u8,
            _ => 0,
        }
    }

    /// The address of this machine that it was sent to, where the socket asks for it
    /// ([`super::set_receive_local_ip`]).
    pub fn local_ip(&self) -> Option<IpAddr> {
        // struct in_pktinfo: the interface, the address that an answer leaves from, the header's destination.
        if let Some(info) = self.control(libc::IPPROTO_IP, libc::IP_PKTINFO) {
            let octets: [u8; 4] = info.get(4..8)?.try_into().ok()?;
            return Some(Ipv4Addr::from(octets).into());
        }
        let info = self.control(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)?;
        let octets: [u8; 16] = info.get(..16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    }

    /// The datagrams, in the order they were sent: one, unless the socket receives trains.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let whole = self.payload;
        let segment_len = self
            .segment_len()
            .filter(|&len| 0 < len && len < whole.len());
        let segments = segment_len.map(|len| whole.chunks(len));
        // An empty datagram is one, too; `chunks` has none of it.
        let single = segments.is_none().then_some(whole);
        segments.into_iter().flatten().chain(single)
    }

    /// How long each datagram of a train is, except the last, which may be shorter; `None`: it is no train.
    pub fn segment_len(&self) -> Option<usize> {
        let data = self.control(libc::SOL_UDP, libc::UDP_GRO)?;
        let len = i32::from_ne_bytes(data.get(..4)?.try_into().ok()?);
        usize::try_from(len).ok()
    }
}

/// The data of the first message of a level and type in control data.
pub(super) fn control_of(mut rest: &[u8], level: i32, kind: i32) -> Option<&[u8]> {
    const HEADER_LEN: usize = size_of::<libc::cmsghdr>();
    while rest.len() >= HEADER_LEN {
        // size_t cmsg_len, int cmsg_level, int cmsg_type; see cmsg(3).
        let (len, words) = rest.split_at(size_of::<usize>());
        let len = usize::from_ne_bytes(len.try_into().ok()?);
        let word = |at: usize| words[at..at + 4].try_into().map(i32::from_ne_bytes);
        let data = rest.get(HEADER_LEN..len)?;
        if (word(0).ok()?, word(4).ok()?) == (level, kind) {
            return Some(data);
        }
        rest = rest.get(len.next_multiple_of(size_of::<usize>())..)?;
    }
    None
}
