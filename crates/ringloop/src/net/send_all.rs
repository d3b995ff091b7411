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
    state: State<B>,
}

enum State<B: Outgoing> {
    Unsent(B),
    /// What is left, and behind it what it is part of: the operation goes first.
    Sending(Flight<Send>, B::Kept),
    Over,
}

// Nothing in it is pinned.
impl<B: Outgoing> Unpin for SendAll<'_, B> {}

type Sent<B> = (io::Result<()>, B);

impl<'a, B: Outgoing> SendAll<'a, B> {
    pub(super) fn new(socket: &'a Socket, bytes: B) -> Self {
        Self {
            socket,
            state: State::Unsent(bytes),
        }
    }

    fn begin(&mut self, bytes: B, waker: &Waker) -> Poll<Sent<B>> {
        let is_alone = Local::with_current(Local::is_alone);
        let mut beginning = if is_alone {
            Beginning::Eager
        } else {
            Beginning::Plain
        };
        let mut sent_count = 0;
        if let Some(received) = bytes.just_received()
            && (is_alone || bytes.is_urgent())
        {
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

    #[inline]
    fn send(&mut self, flight: Flight<Send>, kept: B::Kept) {
        let over = std::mem::replace(&mut self.state, State::Sending(flight, kept));
        debug_assert!(matches!(over, State::Over));
        // There is nothing in it to drop, which the compiler does not see.
        std::mem::forget(over);
    }

    /// The kernel took a part.
    #[cold]
    fn go_on(&mut self, buf: SendBuf, kept: B::Kept, waker: &Waker) -> Poll<Sent<B>> {
        self.send_rest(buf, kept, Beginning::Plain, waker)
    }

    /// Send what is left.
    #[inline(always)]
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
                    self.send(flight, kept);
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
}

impl<B: Outgoing> Future for SendAll<'_, B> {
    type Output = Sent<B>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Sent<B>> {
        if let State::Sending(flight, _) = &mut self.state {
            let (sent, mut buf) = ready!(flight.poll(cx.waker()));
            if let State::Sending(_, kept) = std::mem::replace(&mut self.state, State::Over) {
                return match sent {
                    Ok(count) if count == buf.len() => {
                        buf.advance(count);
                        Poll::Ready((Ok(()), B::restore(kept, buf)))
                    }
                    Ok(count) => {
                        buf.advance(count);
                        self.go_on(buf, kept, cx.waker())
                    }
                    Err(error) => Poll::Ready((Err(error), B::restore(kept, buf))),
                };
            }
        } else if let State::Unsent(bytes) = std::mem::replace(&mut self.state, State::Over) {
            return self.begin(bytes, cx.waker());
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
