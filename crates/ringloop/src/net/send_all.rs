//! Sending a whole buffer, as a future.
//!
//! Owns: [`SendAll`]. Called by: the streams' `write_all`. A dropped send drops its bytes.
//!
//! Hand-written: an `async fn` would store its arguments twice, once more in each wrapper, and every
//! message of a connection touches that memory.

use super::socket::Socket;
use crate::buf::{Outgoing, SendBuf};
use crate::executor::{Flight, Local, StartMode};
use crate::op::Send;
use crate::sys::libc;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

/// Sends bytes until all are sent or an error; returns them.
#[must_use = "nothing is sent until it is awaited"]
pub struct SendAll<'a, B: Outgoing> {
    socket: &'a Socket,
    stage: Stage,
    /// [`Socket::cancels`] at the start: a later cancel ends this send.
    cancels: u32,
    /// `Some` in the state `Unsent`.
    bytes: Option<B>,
    /// The unsent rest.
    kept: Option<B::Kept>,
    /// The operation, in the state `Sending`.
    flight: Option<Flight<Send>>,
}

/// Progress of the send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unsent,
    Sending,
    Over,
}

impl Socket {
    /// Sends all of `bytes`.
    pub fn send_all<B: Outgoing>(&self, bytes: B) -> SendAll<'_, B> {
        SendAll::new(self, bytes)
    }
}

// No field is pinned.
impl<B: Outgoing> Unpin for SendAll<'_, B> {}

type Sent<B> = (io::Result<()>, B);

impl<'a, B: Outgoing> SendAll<'a, B> {
    #[inline]
    pub(super) fn new(socket: &'a Socket, bytes: B) -> Self {
        Self {
            socket,
            stage: Stage::Unsent,
            cancels: 0,
            bytes: Some(bytes),
            kept: None,
            flight: None,
        }
    }

    #[inline(always)]
    fn begin(&mut self, bytes: B, waker: &Waker) -> Poll<Sent<B>> {
        let local = Local::current();
        self.cancels = self.socket.cancels_on(&local);
        let is_alone = local.is_alone();
        if is_alone || bytes.is_urgent() {
            return self.begin_at_once(bytes, is_alone, waker);
        }
        let (buf, kept) = bytes.lend();
        self.send_rest(buf, kept, StartMode::DriverDefault, waker)
    }

    /// Sends bytes that were just received by the system call, as far as the socket has room.
    fn begin_at_once(&mut self, bytes: B, is_alone: bool, waker: &Waker) -> Poll<Sent<B>> {
        let mut mode = if is_alone { StartMode::TryFirst } else { StartMode::DriverDefault };
        let mut sent_count = 0;
        if let Some(received) = bytes.just_received() {
            // The rest waits for room.
            mode = StartMode::DriverDefault;
            match send_now(self.socket, received) {
                Some(Ok(count)) if count == received.len() => {
                    return Poll::Ready((Ok(()), bytes));
                }
                Some(Ok(count)) => sent_count = count,
                Some(Err(error)) => return Poll::Ready((Err(error), bytes)),
                None => {}
            }
        }
        let (mut buf, kept) = bytes.lend();
        buf.advance(sent_count);
        self.send_rest(buf, kept, mode, waker)
    }

    /// Handles a completed operation.
    #[inline(always)]
    fn end(&mut self, sent: io::Result<usize>, mut buf: SendBuf, waker: &Waker) -> Poll<Sent<B>> {
        self.stage = Stage::Over;
        let Some(kept) = self.kept.take() else {
            panic!("a send was polled after it was over");
        };
        match sent {
            Ok(count) if count == buf.len() => {
                buf.advance(count);
                Poll::Ready((Ok(()), B::restore(kept, buf)))
            }
            Ok(count) => {
                buf.advance(count);
                self.go_on(buf, kept, waker)
            }
            Err(error) => Poll::Ready((Err(error), B::restore(kept, buf))),
        }
    }

    /// Handles a partial send: the socket is full, or the operation was cancelled after it.
    #[cold]
    fn go_on(&mut self, buf: SendBuf, kept: B::Kept, waker: &Waker) -> Poll<Sent<B>> {
        if self.socket.cancels() != self.cancels {
            let cancelled = io::Error::from_raw_os_error(libc::ECANCELED);
            return Poll::Ready((Err(cancelled), B::restore(kept, buf)));
        }
        self.send_rest(buf, kept, StartMode::DriverDefault, waker)
    }

    /// Sends the rest.
    fn send_rest(
        &mut self,
        mut buf: SendBuf,
        kept: B::Kept,
        mode: StartMode,
        waker: &Waker,
    ) -> Poll<Sent<B>> {
        while !buf.is_empty() {
            let local = Local::current();
            let fd = self.socket.on(&local);
            match Flight::begin(local, Send { fd, buf }, mode, waker) {
                Ok(flight) => {
                    self.stage = Stage::Sending;
                    self.kept = Some(kept);
                    self.flight = Some(flight);
                    return Poll::Pending;
                }
                Err((Ok(count), back)) => {
                    buf = back;
                    buf.advance(count);
                }
                Err((Err(error), back)) => {
                    return Poll::Ready((Err(error), B::restore(kept, back)));
                }
            }
        }
        Poll::Ready((Ok(()), B::restore(kept, buf)))
    }

    fn poll_sending(&mut self, waker: &Waker) -> Poll<Sent<B>> {
        let Some(flight) = &mut self.flight else {
            panic!("a send was polled after it was over");
        };
        let (sent, buf) = ready!(flight.poll(waker));
        self.flight = None;
        self.end(sent, buf, waker)
    }
}

impl<B: Outgoing> Future for SendAll<'_, B> {
    type Output = Sent<B>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Sent<B>> {
        match self.stage {
            Stage::Sending => return self.poll_sending(cx.waker()),
            Stage::Unsent => {
                self.stage = Stage::Over;
                if let Some(bytes) = self.bytes.take() {
                    return self.begin(bytes, cx.waker());
                }
            }
            Stage::Over => {}
        }
        panic!("a send was polled after it was over");
    }
}

/// Sends some of `bytes` by the system call; `None` if it would block, an earlier send waits, or the
/// task has used its budget of such calls in this poll.
fn send_now(socket: &Socket, bytes: &[u8]) -> Option<io::Result<usize>> {
    let fd = socket.on_loop();
    Local::with_current(|local| {
        let may = local.spend_attempt();
        may.then(|| local.engine().driver_mut().send_first(fd, bytes))?
    })
}

#[cfg(test)]
mod tests;
