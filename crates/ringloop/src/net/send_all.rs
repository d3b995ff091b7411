//! All of some bytes on their way, as a future.
//!
//! Owns: [`SendAll`]. Called by: the streams' `write_all`. Never does: keep what a dropped send was given.
//!
//! Written out, and no `async fn`: one of those keeps its arguments beside what it makes of them, once more in each that
//! wraps it, and the future of a connection is memory that each of its messages has to touch.

use super::socket::Socket;
use crate::buf::{Outgoing, SendBuf};
use crate::executor::{Local, Op};
use crate::limits;
use crate::op::Send;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Bytes that are sent to the end, or to an error; ready with them.
#[must_use = "nothing is sent until it is awaited"]
pub struct SendAll<'a, B: Outgoing> {
    socket: &'a Socket,
    state: State<B>,
}

enum State<B: Outgoing> {
    Unsent(B),
    /// What is left, and behind it what it is part of: the operation goes first.
    Sending(Op<Send>, B::Kept),
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

    /// Begin; what is over at once is returned.
    fn begin(&mut self, bytes: B) -> Option<Sent<B>> {
        let mut sent_count = 0;
        if let Some(received) = bytes.just_received()
            && received.len() >= limits::EAGER_SEND_BYTES_MIN
            && let Some(result) = send_now(self.socket, received)
        {
            match result {
                Ok(count) if count == received.len() => return Some((Ok(()), bytes)),
                Ok(count) => sent_count = count,
                Err(error) => return Some((Err(error), bytes)),
            }
        }
        let (mut buf, kept) = bytes.lend();
        buf.advance(sent_count);
        if buf.is_empty() {
            return Some((Ok(()), B::restore(kept, buf)));
        }
        self.state = State::Sending(self.rest(buf), kept);
        None
    }

    fn rest(&self, buf: SendBuf) -> Op<Send> {
        let fd = self.socket.on_loop();
        Op::new(Send { fd, buf })
    }

    fn poll_sending(&mut self, cx: &mut Context<'_>) -> Poll<Sent<B>> {
        loop {
            let State::Sending(op, _) = &mut self.state else {
                panic!("a send was polled after it was over");
            };
            let (result, mut buf) = ready!(Pin::new(op).poll(cx));
            let sent = result.map(|count| buf.advance(count));
            let is_over = sent.is_err() || buf.is_empty();
            let State::Sending(_, kept) = std::mem::replace(&mut self.state, State::Over) else {
                panic!("a send was polled after it was over");
            };
            if is_over {
                return Poll::Ready((sent, B::restore(kept, buf)));
            }
            self.state = State::Sending(self.rest(buf), kept);
        }
    }
}

impl<B: Outgoing> Future for SendAll<'_, B> {
    type Output = Sent<B>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Sent<B>> {
        if matches!(self.state, State::Unsent(_)) {
            let unsent = std::mem::replace(&mut self.state, State::Over);
            if let State::Unsent(bytes) = unsent
                && let Some(sent) = self.begin(bytes)
            {
                return Poll::Ready(sent);
            }
        }
        self.poll_sending(cx)
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
