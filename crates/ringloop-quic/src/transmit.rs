//! From the core to the socket: each message a train of datagrams, with its congestion bits and the address that it
//! has to leave from.
//!
//! Byte path: from the packets, sealed in one buffer that is used again and again, by sendmsg(2) to the kernel.

use crate::core::{Core, Transmit};
use crate::limits::{MESSAGE_BYTES_MAX, SEGMENTS_MAX, TRANSMITS_PER_TURN};
use ringloop::net::{Train, UdpSocket};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

/// How far sending has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything that may be sent now is.
    Done,
    /// There is more; others get their turn first.
    More,
    /// The socket is full; the task is woken once it is not.
    Full,
}

pub(crate) struct Transmitter<'a> {
    socket: &'a UdpSocket,
    buf: Vec<u8>,
    segments_max: usize,
    /// What stands in `buf` and did not go out.
    waiting: Option<Transmit>,
    writable: Option<Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>>,
}

impl<'a> Transmitter<'a> {
    pub(crate) fn new(socket: &'a UdpSocket) -> Self {
        Self {
            socket,
            buf: Vec::with_capacity(MESSAGE_BYTES_MAX),
            segments_max: SEGMENTS_MAX,
            waiting: None,
            writable: None,
        }
    }

    /// Whether a message waits for the socket.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Send what may be sent now, up to a bound.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        core: &mut Core,
    ) -> Progress {
        if let Some(writable) = &mut self.writable {
            if writable.as_mut().poll(cx).is_pending() {
                return Progress::Full;
            }
            self.writable = None;
        }
        for _ in 0..TRANSMITS_PER_TURN {
            let waiting = self.waiting.take();
            let Some(next) =
                waiting.or_else(|| core.transmit(now, self.segments_max, &mut self.buf))
            else {
                return Progress::Done;
            };
            if self.send(&next).is_pending() {
                self.waiting = Some(next);
                let socket = self.socket;
                let mut writable = Box::pin(async move { socket.writable().await });
                if writable.as_mut().poll(cx).is_pending() {
                    self.writable = Some(writable);
                    return Progress::Full;
                }
            }
        }
        Progress::More
    }

    /// Pending where the socket is full. Other errors are as if the network had lost it: a route that is gone, a
    /// probe that is too long for the device.
    fn send(&mut self, transmit: &Transmit) -> Poll<()> {
        let train = Train {
            bytes: &self.buf,
            segment_len: transmit.segment_len.and_then(|len| u16::try_from(len).ok()),
            to: transmit.destination,
            source: transmit.source,
            ecn: transmit.ecn,
        };
        match self.socket.try_send_train(&train) {
            Err(error) if error.error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) if error.is_of_segmentation() => {
                let segment_len = transmit.segment_len.unwrap_or(self.buf.len()).max(1);
                let mut singles = self.buf.chunks(segment_len).map(|bytes| {
                    let single = Train {
                        bytes,
                        segment_len: None,
                        ..train
                    };
                    self.socket.try_send_train(&single).is_ok()
                });
                // Where one alone is refused too, segmentation is not the reason.
                if singles.next() == Some(true) {
                    self.segments_max = 1;
                }
                singles.for_each(drop);
                Poll::Ready(())
            }
            _ => Poll::Ready(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use ringloop::sys::socket::set_option_int;
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::AsRawFd;

    /// Send two datagrams as a train; gives what is received of them, and how many the next train may have.
    fn sent(socket: &UdpSocket, source: Option<IpAddr>) -> (usize, usize) {
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_nonblocking(true).unwrap();
        let mut transmitter = Transmitter::new(socket);
        transmitter.buf.resize(200, 7);
        let transmit = Transmit {
            destination: peer.local_addr().unwrap(),
            source,
            ecn: 0,
            segment_len: Some(100),
        };
        assert!(transmitter.send(&transmit).is_ready());
        let received = std::iter::from_fn(|| peer.recv(&mut [0; 200]).ok());
        (received.count(), transmitter.segments_max)
    }

    #[test]
    fn what_is_refused_one_by_one_too_says_nothing_of_trains() {
        let runtime = ringloop::Runtime::new().unwrap();
        let sending = async {
            let any: SocketAddr = ([127, 0, 0, 1], 0).into();
            let socket = UdpSocket::bind(any).unwrap();
            assert_eq!(sent(&socket, None), (2, SEGMENTS_MAX));
            // No packet's source (RFC 1122 §3.2.1.3), which is EINVAL, too.
            let group = Some([224, 0, 0, 1].into());
            assert_eq!(sent(&socket, group), (0, SEGMENTS_MAX));
            // SOL_SOCKET, SO_NO_CHECK: without checksums the kernel takes no trains.
            set_option_int(socket.as_raw_fd(), 1, 11, 1).unwrap();
            assert_eq!(sent(&socket, None), (2, 1));
        };
        runtime.block_on(sending).unwrap();
    }
}
