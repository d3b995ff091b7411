//! Reads the rest of a closed endpoint's socket: clients that arrived before the close are refused.
//!
//! Owns: [`SocketDrain`]. Called by: `endpoint`, which receives and refuses.
//!
//! The socket counts as empty after two passes of the loop in a row that found nothing: what the
//! kernel took out of it in the first pass arrives in the second. Turns of the endpoint's task do
//! not count, since a pass may have many of them.

use crate::limits::{LAST_READ_PAUSE, LAST_READS_MAX};
use ringloop::embed::sys::fd::AsRawFd;
use ringloop::embed::sys::file;
use ringloop::embed::sys::interest::Interest;
use ringloop::net::UdpSocket;
use ringloop::time::{Sleep, sleep};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

#[derive(Default)]
pub(crate) struct SocketDrain {
    /// Passes left.
    left: u32,
    /// The last one found the socket empty.
    was_empty: bool,
    /// Ready in the next pass.
    pause: Option<Sleep>,
}

impl SocketDrain {
    /// The endpoint is closed.
    pub fn begin(&mut self) {
        *self = Self { left: LAST_READS_MAX, ..Self::default() };
    }

    /// Whether nothing is left to read, or the endpoint is open.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The task has received, and `more_in` says whether more is there; it is woken again until
    /// draining is over.
    pub fn received(&mut self, cx: &mut Context<'_>, socket: &UdpSocket, more_in: bool) {
        while !self.is_over() {
            let pause = self.pause.get_or_insert_with(|| sleep(LAST_READ_PAUSE));
            if Pin::new(pause).poll(cx) == Poll::Pending {
                return;
            }
            self.pause = None;
            self.left -= 1;
            let ready = file::poll_now(socket.as_raw_fd(), Interest::READ);
            let is_empty = !more_in && ready.is_ok_and(Interest::is_none);
            if std::mem::replace(&mut self.was_empty, is_empty) && is_empty {
                self.left = 0;
            }
        }
    }
}
