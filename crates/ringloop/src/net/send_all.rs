//! All of some bytes on their way, as a future.
//!
//! Owns: [`SendAll`]. Called by: the streams' `write_all`. Never does: keep what a dropped send was given.
//!
//! Written out, and no `async fn`: one of those keeps its arguments beside what it makes of them, once more in each that
//! wraps it, and the future of a connection is memory that each of its messages has to touch.

use super::socket::Socket;
use crate::buf::{Outgoing, SendBuf};
use crate::executor::{Beginning, Flight, Local};
use crate::op::Send;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

/// Bytes that are sent to the end, or to an error; ready with them.
#[must_use = "nothing is sent until it is awaited"]
pub struct SendAll<'a, B: Outgoing> {
    socket: &'a Socket,
    stage: Stage,
    /// [`Socket::cancels`] when it began: a later one is of this send.
    cancels: u32,
    /// There while it is `Unsent`.
    bytes: Option<B>,
    /// What is left of them while they are being sent.
    kept: Option<B::Kept>,
    /// The operation, while it is `Sending`.
    flight: Option<Flight<Send>>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unsent,
    Sending,
    Over,
}

impl Socket {
    /// Send all of `bytes`.
    pub fn send_all<B: Outgoing>(&self, bytes: B) -> SendAll<'_, B> {
        SendAll::new(self, bytes)
    }
}

// Nothing in it is pinned.
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
        self.send_rest(buf, kept, Beginning::Plain, waker)
    }

    /// Bytes that were received a moment ago go by the system call, as many as the socket takes.
    fn begin_at_once(&mut self, bytes: B, is_alone: bool, waker: &Waker) -> Poll<Sent<B>> {
        let mut beginning = if is_alone {
            Beginning::Eager
        } else {
            Beginning::Plain
        };
        let mut sent_count = 0;
        if let Some(received) = bytes.just_received() {
            // What the socket does not take now waits for room.
            beginning = Beginning::Plain;
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
        self.send_rest(buf, kept, beginning, waker)
    }

    /// An operation is over.
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

    /// The kernel took a part: the socket has room for no more, or the operation was cancelled after it.
    #[cold]
    fn go_on(&mut self, buf: SendBuf, kept: B::Kept, waker: &Waker) -> Poll<Sent<B>> {
        if self.socket.cancels() != self.cancels {
            let cancelled = io::Error::from_raw_os_error(libc::ECANCELED);
            return Poll::Ready((Err(cancelled), B::restore(kept, buf)));
        }
        self.send_rest(buf, kept, Beginning::Plain, waker)
    }

    /// Send what is left.
    fn send_rest(
        &mut self,
        mut buf: SendBuf,
        kept: B::Kept,
        beginning: Beginning,
        waker: &Waker,
    ) -> Poll<Sent<B>> {
        while !buf.is_empty() {
            let local = Local::current();
            let fd = self.socket.on(&local);
            match Flight::begin(local, Send { fd, buf }, beginning, waker) {
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

/// Send some of `bytes` by the system call; `None` where it would block, others wait before it, or this poll of
/// the task has had its share of such calls.
fn send_now(socket: &Socket, bytes: &[u8]) -> Option<io::Result<usize>> {
    let fd = socket.on_loop();
    Local::with_current(|local| {
        let may = local.spend_attempt();
        may.then(|| local.engine().driver_mut().send_first(fd, bytes))?
    })
}

#[cfg(test)]
mod tests;
