//! All of some bytes on their way, as a future.
//!
//! Owns: [`SendAll`]. Called by: the streams' `write_all`. Never does: keep what a dropped send was given.
//!
//! Written out, and no `async fn`: one of those keeps its arguments beside what it makes of them, once more in each that
//! wraps it, and the future of a connection is memory that each of its messages has to touch.

use super::socket::Socket;
use crate::buf::{Outgoing, SendBuf};
use crate::executor::{Beginning, Flight, Local};
use crate::limits;
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
        let mut sent_count = 0;
        if let Some(received) = bytes.just_received()
            && received.len() >= limits::EAGER_SEND_BYTES_MIN
            && let Some(result) = send_now(self.socket, received)
        {
            match result {
                Ok(count) if count == received.len() => return Poll::Ready((Ok(()), bytes)),
                Ok(count) => sent_count = count,
                Err(error) => return Poll::Ready((Err(error), bytes)),
            }
        }
        let (mut buf, kept) = bytes.lend();
        buf.advance(sent_count);
        self.send_rest(buf, kept, waker)
    }

    /// Send what is left.
    fn send_rest(&mut self, mut buf: SendBuf, kept: B::Kept, waker: &Waker) -> Poll<Sent<B>> {
        while !buf.is_empty() {
            let fd = self.socket.on_loop();
            match Flight::begin(Send { fd, buf }, Beginning::Plain, waker) {
                Ok(flight) => {
                    self.state = State::Sending(flight, kept);
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
        let output = match &mut self.state {
            State::Sending(flight, _) => Some(ready!(flight.poll(cx.waker()))),
            _ => None,
        };
        match (std::mem::replace(&mut self.state, State::Over), output) {
            (State::Unsent(bytes), _) => self.begin(bytes, cx.waker()),
            (State::Sending(_, kept), Some((Ok(count), mut buf))) => {
                buf.advance(count);
                self.send_rest(buf, kept, cx.waker())
            }
            (State::Sending(_, kept), Some((Err(error), buf))) => {
                Poll::Ready((Err(error), B::restore(kept, buf)))
            }
            _ => panic!("a send was polled after it was over"),
        }
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
