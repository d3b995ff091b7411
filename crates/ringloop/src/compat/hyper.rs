//! hyper on this runtime: streams by [`crate::net::Polled`], tasks by [`Executor`], timers by [`Timer`].
//!
//! Tasks stay on their thread, so services and bodies need not be `Send`.

use crate::executor::{Local, RemoteJoinHandle};
use crate::net::{Polled, Stream};
use crate::time;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

impl<S: Stream> Read for Polled<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let room = into.remaining();
        let read = self.get_mut().poll_read_with(cx, room, |bytes| into.put_slice(bytes));
        read.map_ok(drop)
    }
}

impl<S: Stream> Write for Polled<S> {
    super::writes!(poll_shutdown);

    fn is_write_vectored(&self) -> bool {
        true
    }
}

/// Spawns hyper's tasks on the current loop; HTTP/2 needs some.
#[derive(Debug, Clone, Copy, Default)]
pub struct Executor;

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        drop(crate::spawn(future));
    }
}

/// hyper's timers by the loop's timers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timer;

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep::new(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }
}

/// A sleep that is `Send` and `Sync`, as hyper requires: a task of the loop sleeps for it.
struct Sleep {
    task: RemoteJoinHandle<()>,
    is_over: bool,
}

impl Sleep {
    fn new(duration: Duration) -> Self {
        Self { task: Local::current().spawn_remote(time::sleep(duration)), is_over: false }
    }
}

impl hyper::rt::Sleep for Sleep {}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_over {
            // The end of the runtime ends the sleep too.
            let _ = ready!(Pin::new(&mut self.task).poll(cx));
            self.is_over = true;
        }
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.task.abort();
    }
}
