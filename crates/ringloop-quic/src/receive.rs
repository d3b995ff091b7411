//! Receives datagrams from the socket for the core: GRO batches by a multishot receive.
//!
//! Byte path: from the pool of datagram buffers, by one copy per batch, into memory that the
//! protocol engine decrypts in place and passes to readers.

use crate::core::{Core, Datagram};
use crate::limits::{RECEIVES_PER_TURN, REFUSED_PAUSE};
use crate::workers::Place;
use ringloop::embed::sys::socket::is_exhaustion;
use ringloop::net::{Datagrams, Message, UdpSocket};
use ringloop::time::{Sleep, sleep};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

pub(crate) struct Receiver<'a> {
    datagrams: Datagrams<'a>,
    /// The kernel had no memory to receive, or to wait.
    pause: Option<Sleep>,
}

impl<'a> Receiver<'a> {
    pub(crate) fn new(socket: &'a UdpSocket) -> Self {
        Self { datagrams: socket.datagrams(), pause: None }
    }

    /// Receives up to a budget; whether there may be more. The task is woken for later arrivals.
    /// With `place`, datagrams of other workers are passed on to them.
    pub(crate) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        core: &mut Core,
        place: Option<&Place>,
    ) -> bool {
        for _ in 0..RECEIVES_PER_TURN {
            if let Some(pause) = &mut self.pause
                && Pin::new(pause).poll(cx).is_pending()
            {
                return false;
            }
            self.pause = None;
            match self.datagrams.poll_next(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(batch)) => feed(core, now, &batch.message(), place),
                Poll::Ready(Err(error)) if is_exhaustion(&error) => {
                    self.pause = Some(sleep(REFUSED_PAUSE));
                }
                // An ICMP error of an earlier send: like a lost datagram.
                Poll::Ready(Err(_)) => {}
            }
        }
        true
    }
}

fn feed(core: &mut Core, now: Instant, message: &Message<'_>, place: Option<&Place>) {
    for datagram in Datagram::received(message) {
        let ours = match place {
            Some(place) => place.sort(datagram),
            None => Some(datagram),
        };
        if let Some(datagram) = ours {
            core.receive(now, datagram);
        }
    }
}
