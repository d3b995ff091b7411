//! Sending half of a UDP socket: outgoing messages, and ICMP errors for the first ones.
//!
//! Owns: [`Sender`], with the message that a full socket did not take. Called by: the drivers of a
//! core with a socket, here and in embedders, which wait until it is writable.
//!
//! Byte path: from the packets, sealed in the thread's buffer, by sendmsg(2) to the kernel.
//!
//! ICMP errors are reported to the core only for connections that have not received anything. They
//! cannot be trusted: an attacker who guesses the ports can forge them (RFC 9000 §14.2.1, RFC 8085
//! §5.2), so they must not end a working connection. A connection without any answer could only
//! wait for its timeout.

use crate::core::{Core, Transmit};
use crate::limits::{ANSWERS_PER_TURN, DATAGRAM_LEN_MIN, MESSAGE_BYTES_MAX, TRANSMITS_PER_TURN};
use ringloop::embed::sys::datagram::{self, GsoBatch, NetworkError};
use ringloop::embed::sys::fd::RawFd;
use ringloop::embed::sys::libc;
use std::cell::RefCell;
use std::io;
use std::time::Instant;

thread_local! {
    /// The thread's, not the sender's: idle endpoints hold no buffers.
    static PACKETS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Progress of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything that may be sent now was sent.
    Done,
    /// There is more; other tasks and callbacks run first.
    More,
    /// The socket is full.
    Full,
}

/// The socket is full: retry the message once it is writable.
struct Full;

/// Sends messages on a non-blocking UDP socket, given by descriptor; the owner keeps it open.
#[derive(Debug)]
pub struct Sender {
    fd: RawFd,
    segments_max: usize,
    sends_ecn: bool,
    /// The socket queues ICMP errors.
    receives_errors: bool,
    /// The message that was not sent because the socket was full.
    waiting: Option<(Transmit, Vec<u8>)>,
}

impl Sender {
    /// Creates a sender of messages of at most `segments_max` datagrams. With `ecn` the socket reports
    /// the ECN bits of what it receives and, if it can, sends them: one that refuses the option may refuse
    /// messages with them, too.
    pub fn new(fd: RawFd, segments_max: usize, ecn: bool) -> Self {
        Self {
            fd,
            segments_max: segments_max.max(1),
            sends_ecn: ecn && datagram::set_receive_ecn(fd, true).is_ok(),
            receives_errors: false,
            waiting: None,
        }
    }

    /// Whether a message waits for the socket.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Sends what may be sent now, up to a budget.
    pub fn transmit(&mut self, now: Instant, core: &mut Core) -> Progress {
        self.read_errors(now, core);
        if let Some((transmit, bytes)) = self.waiting.take()
            && self.send(now, core, &transmit, &bytes).is_err()
        {
            self.waiting = Some((transmit, bytes));
            return Progress::Full;
        }
        PACKETS.with_borrow_mut(|packets| {
            if packets.capacity() < MESSAGE_BYTES_MAX {
                packets.reserve_exact(MESSAGE_BYTES_MAX);
            }
            for _ in 0..TRANSMITS_PER_TURN {
                let Some(transmit) = core.transmit(now, self.segments_max, packets) else {
                    return Progress::Done;
                };
                if self.send(now, core, &transmit, packets).is_err() {
                    self.waiting = Some((transmit, packets.clone()));
                    return Progress::Full;
                }
            }
            Progress::More
        })
    }

    /// Reads pending ICMP errors; call before receiving.
    pub fn read_errors(&mut self, now: Instant, core: &mut Core) {
        let receives_errors = core.has_unanswered();
        if receives_errors != self.receives_errors {
            self.receives_errors = receives_errors;
            // Optional: not every socket supports it.
            drop(datagram::set_receive_errors(self.fd, receives_errors));
        }
        for _ in 0..ANSWERS_PER_TURN {
            if !self.receives_errors {
                return;
            }
            match datagram::next_error(self.fd) {
                Ok(NetworkError { to, errno }) if is_final(errno) => {
                    core.unreachable(now, to, errno);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Sends a message of the core. Errors other than a full socket count as packet loss: a missing
    /// route, or a probe that is too long for the device.
    fn send(
        &mut self,
        now: Instant,
        core: &mut Core,
        transmit: &Transmit,
        bytes: &[u8],
    ) -> Result<(), Full> {
        let batch = GsoBatch {
            bytes,
            segment_len: transmit.segment_len.and_then(|len| u16::try_from(len).ok()),
            to: transmit.destination,
            source: transmit.source,
            ecn: if self.sends_ecn { transmit.ecn } else { 0 },
        };
        let error = match datagram::send_gso(self.fd, &batch) {
            Ok(()) => return Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::WouldBlock => return Err(Full),
            Err(error) if error.is_of_segmentation() => self.send_singly(&batch),
            // The error may belong to an earlier message.
            Err(_) => datagram::send_gso(self.fd, &batch).err().map(|error| error.error),
        };
        if let Some(errno) = error.and_then(|error| error.raw_os_error()) {
            // A longer one may be a probe.
            let is_shortest = transmit.segment_len.unwrap_or(bytes.len()) <= DATAGRAM_LEN_MIN;
            if is_final(errno) || errno == libc::EINVAL || errno == libc::EMSGSIZE && is_shortest {
                core.unreachable(now, transmit.destination, errno);
            }
        }
        Ok(())
    }

    /// Sends the datagrams of a message one by one; returns the error of the first.
    fn send_singly(&mut self, batch: &GsoBatch<'_>) -> Option<io::Error> {
        let segment_len = batch.segment_len.map_or(batch.bytes.len(), usize::from);
        let mut singles = batch.bytes.chunks(segment_len.max(1)).map(|bytes| {
            let single = GsoBatch { bytes, segment_len: None, ..*batch };
            datagram::send_gso(self.fd, &single)
        });
        let first = singles.next()?;
        if first.is_ok() {
            self.segments_max = 1;
        }
        // If a single one fails too, segmentation is not the reason.
        singles.for_each(drop);
        first.err().map(|error| error.error)
    }
}

/// Whether the error will repeat: no route to the peer, a firewall, or a port without a listener.
/// Not `EMSGSIZE`, which must not be trusted from the network (RFC 9000 §14.2.1), nor local
/// resource shortage.
fn is_final(errno: i32) -> bool {
    [
        libc::ECONNREFUSED,
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::ENETDOWN,
        libc::EHOSTDOWN,
        libc::EADDRNOTAVAIL,
        libc::EAFNOSUPPORT,
        libc::EACCES,
        libc::EPERM,
    ]
    .contains(&errno)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::EndpointConfig;
    use crate::limits::SEGMENTS_MAX;
    use ringloop::embed::sys::fd::AsRawFd;
    use ringloop::embed::sys::socket::set_option_int;
    use std::net::{IpAddr, UdpSocket};

    /// Sends two datagrams as a GSO batch; returns how many bytes of them arrive, and the next
    /// batch's limit.
    fn sent(socket: &UdpSocket, source: Option<IpAddr>) -> (usize, usize) {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_nonblocking(true).unwrap();
        let mut sender = Sender::new(socket.as_raw_fd(), SEGMENTS_MAX, true);
        let mut core = Core::new(&EndpointConfig::default(), None, true);
        let transmit = Transmit {
            destination: peer.local_addr().unwrap(),
            source,
            ecn: 0,
            segment_len: Some(100),
        };
        let now = Instant::now();
        assert!(sender.send(now, &mut core, &transmit, &[7; 200]).is_ok());
        let received = std::iter::from_fn(|| peer.recv(&mut [0; 200]).ok());
        (received.count(), sender.segments_max)
    }

    #[test]
    fn failing_single_datagrams_keep_gso_enabled() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(sent(&socket, None), (2, SEGMENTS_MAX));
        // Not a valid source (RFC 1122 §3.2.1.3), which is EINVAL too.
        let group = Some([224, 0, 0, 1].into());
        assert_eq!(sent(&socket, group), (0, SEGMENTS_MAX));
        // SOL_SOCKET, SO_NO_CHECK: without checksums the kernel rejects GSO batches.
        set_option_int(socket.as_raw_fd(), 1, 11, 1).unwrap();
        assert_eq!(sent(&socket, None), (2, 1));
    }
}
