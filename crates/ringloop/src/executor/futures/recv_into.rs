//! A receive into the caller's own memory, which the kernel never gets.
//!
//! Owns: [`RecvInto`]. Called by: runtimes whose readers pass a slice and may end at any time
//! (`ringloop-coro`). Uses the slice only during a system call or a copy.
//!
//! Byte path: on the ring from a pool buffer to the slice, by a copy when the future is polled; on the
//! readiness driver by recv(2) into the slice if that does not block, otherwise as on the ring.

use crate::driver::{Key, Sink};
use crate::executor::runtime::local::Local;
use crate::executor::task::listed::waiting;
use crate::op::{RecvPooled, Request};
use crate::sys::fd::RawFd;
use crate::sys::libc;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Receives some bytes of a stream into a slice; 0 is the end of the stream.
///
/// At most [`crate::limits::SINGLE_POOL_BUFFER_BYTES`] at a time. Costs a copy; a receive that waits
/// holds no memory.
///
/// # Errors
/// `ECONNRESET` and those of recv(2).
///
/// # Cancel safety
/// Bytes that had arrived when it is dropped are lost.
#[derive(Debug)]
#[must_use = "nothing is received until it is awaited"]
pub struct RecvInto<'a> {
    into: &'a mut [u8],
    state: State,
}

#[derive(Debug)]
enum State {
    Unsubmitted(RawFd),
    InFlight(Local, Key),
    Over,
}

impl<'a> RecvInto<'a> {
    /// Receives from the socket `fd`.
    pub fn new(fd: RawFd, into: &'a mut [u8]) -> Self {
        Self { into, state: State::Unsubmitted(fd) }
    }

    fn begin(&mut self, fd: RawFd, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        if self.into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let local = Local::current();
        let mut engine = local.engine();
        let driver = engine.driver_mut();
        let receive = RecvPooled::new(fd, self.into.len());
        let into = &mut self.into[..receive.len_max()];
        if driver.tries_first()
            && local.spend_attempt()
            && let Some(received) = driver.receive_first(fd, into)
        {
            return Poll::Ready(received);
        }
        let sink = Sink::Waker(cx.waker().clone());
        let key = driver.submit(Request::RecvPooled(receive), sink);
        drop(engine);
        self.state = State::InFlight(local, key);
        waiting("Recv")
    }
}

impl Future for RecvInto<'_> {
    type Output = io::Result<usize>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (local, key) = match &this.state {
            State::InFlight(local, key) => (local, *key),
            State::Unsubmitted(fd) => {
                let fd = *fd;
                this.state = State::Over;
                return this.begin(fd, cx);
            }
            State::Over => panic!("a receive was polled after it was over"),
        };
        let mut engine = local.engine();
        let driver = engine.driver_mut();
        let result = match ready!(driver.poll(key, cx.waker(), drop)) {
            Some((taken, _)) => {
                let result = taken.result().map(|count| count as usize);
                if let Some(bytes) = taken.buffer {
                    // The submission limited the length to the slice's.
                    let (into, _) = this.into.split_at_mut(bytes.len());
                    into.copy_from_slice(&bytes);
                }
                result
            }
            // The driver was closed under the future.
            None => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        };
        drop(engine);
        this.state = State::Over;
        Poll::Ready(result)
    }
}

impl Drop for RecvInto<'_> {
    fn drop(&mut self) {
        if let State::InFlight(local, key) = &self.state {
            local.forget(*key);
        }
    }
}
