//! Reads the rest of a closed endpoint's socket: clients that came before the close are to be refused.
//!
//! Owns: [`SocketDrain`]. Called by: `endpoint`. Never does: receive, or refuse.
//!
//! The socket is empty when two passes of the loop in a row found it so: what the kernel has taken out of it by the first
//! one comes with the second. Turns of the endpoint's task do not count: there may be many of them in a pass.

use crate::limits::{LAST_READ_PAUSE, LAST_READS_MAX};
use ringloop::embed::sys::file;
use ringloop::embed::sys::interest::Interest;
use ringloop::net::UdpSocket;
use ringloop::time::{Sleep, sleep};
use std::future::Future;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll};

#[derive(Default)]
pub(crate) struct SocketDrain {
    /// Passes that may look.
    left: u32,
    /// The last one found the socket empty.
    was_empty: bool,
    /// Over with the next pass.
    pause: Option<Sleep>,
}

impl SocketDrain {
    /// The endpoint is closed.
    pub fn begin(&mut self) {
        *self = Self {
            left: LAST_READS_MAX,
            ..Self::default()
        };
    }

    /// Whether nothing is left to be read, or the endpoint is open.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The task has received, and knows whether more has come; it is woken to do so again until this is over.
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
