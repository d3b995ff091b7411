//! Sends the core's messages on the socket: each a GSO batch with ECN bits and source address.
//!
//! Byte path: from the packets, sealed in one reused buffer, by sendmsg(2) to the kernel.

use crate::core::{Core, Transmit};
use crate::limits::{MESSAGE_BYTES_MAX, SEGMENTS_MAX, TRANSMITS_PER_TURN};
use crate::sender::Sender;
use ringloop::net::UdpSocket;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::Context;
use std::time::Instant;

/// Progress of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything that may be sent now was sent.
    Done,
    /// There is more; other tasks run first.
    More,
    /// The socket is full; the task is woken once it is writable.
    Full,
}

pub(crate) struct Transmitter<'a> {
    socket: &'a UdpSocket,
    sender: Sender,
    buf: Vec<u8>,
    /// The message in `buf` that was not sent.
    waiting: Option<Transmit>,
    writable: Option<Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>>,
}

impl<'a> Transmitter<'a> {
    pub(crate) fn new(socket: &'a UdpSocket) -> Self {
        Self {
            socket,
            sender: Sender::new(socket.as_raw_fd(), SEGMENTS_MAX, true),
            buf: Vec::with_capacity(MESSAGE_BYTES_MAX),
            waiting: None,
            writable: None,
        }
    }

    /// Whether a message waits for the socket.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Reads ICMP errors of first messages.
    pub(crate) fn hear(&mut self, now: Instant, core: &mut Core) {
        self.sender.hear(now, core);
    }

    /// Sends what may be sent now, up to a budget.
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
        self.sender.hear(now, core);
        for _ in 0..TRANSMITS_PER_TURN {
            let waiting = self.waiting.take();
            let segments_max = self.sender.segments_max();
            let Some(next) = waiting.or_else(|| core.transmit(now, segments_max, &mut self.buf))
            else {
                return Progress::Done;
            };
            if self.sender.send(now, core, &next, &self.buf).is_err() {
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
}
