//! From the socket to the core: trains of datagrams by one multishot receive.
//!
//! Byte path: from the engine's pool of datagram buffers, by one copy a train into memory that the engine of
//! the protocol decrypts in place and hands on to readers.

use crate::core::{Core, Datagram};
use crate::limits::RECEIVES_PER_TURN;
use crate::workers::Place;
use ringloop::net::{Datagrams, Message, UdpSocket};
use std::task::{Context, Poll};
use std::time::Instant;

pub(crate) struct Receiver<'a> {
    datagrams: Datagrams<'a>,
}

impl<'a> Receiver<'a> {
    pub(crate) fn new(socket: &'a UdpSocket) -> Self {
        Self {
            datagrams: socket.datagrams(),
        }
    }

    /// Take what has come, up to a bound; tells whether there may be more. The task is woken for what comes later.
    /// With `place`, what is another worker's goes there.
    pub(crate) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        core: &mut Core,
        place: Option<&Place>,
    ) -> bool {
        for _ in 0..RECEIVES_PER_TURN {
            match self.datagrams.poll_next(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(train)) => feed(core, now, &train.message(), place),
                // An error of an earlier send (ICMP), or no memory for a moment: like a lost datagram.
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
