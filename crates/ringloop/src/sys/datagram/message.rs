//! The layout of a received message in its buffer.
//!
//! ```text
//!   0             16                 128                  256
//!   │ RecvmsgOut  │ name, 112 bytes  │ control, 128 bytes │ payload …
//!   │ namelen controllen payloadlen flags                 │ one datagram, or a GSO batch          
//!                                                           ├─ segment ─┼─ segment ─┼─ rest ─┤
//! ```
//! This is the form of the ring's multishot receive (`struct io_uring_recvmsg_out`);
//! [`super::Receiver`] writes the same one, so that both drivers share a parser. Without control
//! data the name gets its room too, and the payload still begins at 256: at a cache line, for a
//! fast copy.
//!
//! Called by: the receivers of messages. Trusts no length; a message that does not fit its buffer
//! is rejected.

use crate::sys::address::SockAddr;
use crate::sys::control;
use crate::sys::libc;
use crate::sys::platform;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes before the payload.
pub const HEAD_LEN: usize = 256;
/// Room for the source address: a Unix path is the longest, 110.
pub const NAME_ROOM: usize = 112;
/// Room for control data: segment size, ECN and packet info take 88.
pub const CONTROL_ROOM: usize = HEAD_LEN - NAME_AT - NAME_ROOM;

pub(super) const NAME_AT: usize = 16;
pub(super) const CONTROL_AT: usize = NAME_AT + NAME_ROOM;

/// Whether a receive asks for control data. Not for Unix sockets: descriptors would come with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// None.
    Unwanted,
    /// Up to [`CONTROL_ROOM`] bytes.
    Wanted,
}

impl Control {
    /// The room in a receive for the source address and for control data.
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
    /// Its source; of length 0 if the sender is unnamed.
    pub source: SockAddr,
    /// One datagram, or several from one sender: see [`Message::datagrams`].
    pub payload: &'a [u8],
    control: &'a [u8],
    flags: u32,
}

impl Default for Message<'_> {
    /// An empty message without a source.
    fn default() -> Self {
        Self { source: SockAddr::from_bytes(&[]), payload: &[], control: &[], flags: 0 }
    }
}

impl<'a> Message<'a> {
    /// Parses the contents of `buffer` after a receive.
    pub fn parse(buffer: &'a [u8]) -> Option<Self> {
        let field = |at: usize| Some(u32::from_ne_bytes(buffer.get(at..at + 4)?.try_into().ok()?));
        let (name_len, control_len) = (field(0)? as usize, field(4)? as usize);
        let (payload_len, flags) = (field(8)? as usize, field(12)?);
        let name = buffer.get(NAME_AT..HEAD_LEN)?;
        // The kernel returns the full length of the address, even if it was truncated.
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

    /// True if the datagram was longer than the buffer.
    pub fn is_cut(&self) -> bool {
        self.flags & libc::MSG_TRUNC as u32 != 0
    }

    /// The data of the first control message of a level and type.
    pub fn control(&self, level: i32, kind: i32) -> Option<&'a [u8]> {
        control_of(self.control, level, kind)
    }

    /// The ECN bits, if enabled on the socket ([`super::set_receive_ecn`]); otherwise 0.
    pub fn ecn(&self) -> u8 {
        // One byte for IPv4, an `int` for IPv6.
        let v4 = self.control(libc::IPPROTO_IP, platform::IP_TOS_RECEIVED);
        if let Some([class, ..]) = v4 {
            return class & 3;
        }
        match self.control(libc::IPPROTO_IPV6, libc::IPV6_TCLASS) {
            Some(&[a, b, c, d, ..]) => (i32::from_ne_bytes([a, b, c, d]) & 3) as u8,
            _ => 0,
        }
    }

    /// The local address that it was sent to, if enabled on the socket
    /// ([`super::set_receive_local_ip`]).
    pub fn local_ip(&self) -> Option<IpAddr> {
        // struct in_pktinfo: the interface, the local address for replies, the header's
        // destination.
        if let Some(info) = self.control(libc::IPPROTO_IP, platform::IP_PKTINFO) {
            let octets: [u8; 4] =
                info.get(platform::PKTINFO_LOCAL_AT..)?.get(..4)?.try_into().ok()?;
            return Some(Ipv4Addr::from(octets).into());
        }
        let info = self.control(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)?;
        let octets: [u8; 16] = info.get(..16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    }

    /// The datagrams, in the order they were sent: one, unless the socket receives GSO batches.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let whole = self.payload;
        let segment_len = self.segment_len().filter(|&len| 0 < len && len < whole.len());
        let segments = segment_len.map(|len| whole.chunks(len));
        // `chunks` would yield nothing for an empty datagram.
        let single = segments.is_none().then_some(whole);
        segments.into_iter().flatten().chain(single)
    }

    /// Segment size of a GSO batch, whose last datagram may be shorter; `None` for a single
    /// datagram.
    pub fn segment_len(&self) -> Option<usize> {
        let data = self.control(platform::SOL_UDP, platform::UDP_GRO)?;
        let len = i32::from_ne_bytes(data.get(..4)?.try_into().ok()?);
        usize::try_from(len).ok()
    }
}

/// The data of the first message of a level and type in control data.
pub(super) fn control_of(control: &[u8], level: i32, kind: i32) -> Option<&[u8]> {
    let mut all = control::messages(control);
    all.find(|message| (message.0, message.1) == (level, kind)).map(|(_, _, data)| data)
}
