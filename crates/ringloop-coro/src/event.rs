//! Event sources of other libraries: values with a descriptor that can be polled.
//!
//! Owns: [`EventSource`]. Called by: coroutines. It neither reads nor writes.
//!
//! A library with futures or callbacks needs none: [`crate::block_on`] waits for the future, a
//! callback sends to a [`crate::sync::oneshot`] or [`crate::sync::channel`].

use crate::coop;
use crate::shared_fd::SharedFd;
use crate::wait::block_on;
use ringloop::embed::Op;
use ringloop::embed::op::Poll;
use ringloop::embed::sys::fd::{AsFd, OwnedFd};
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::{Deref, DerefMut};

pub use ringloop::embed::sys::interest::Interest;

/// A value whose descriptor coroutines wait for.
///
/// The driver polls a duplicate of the descriptor: the value may close its own at any time, and may
/// move between threads if its type allows.
///
/// ```
/// use ringloop_coro::event::{EventSource, Interest};
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// ringloop_coro::start(1, || -> std::io::Result<()> {
///     let (mut ours, theirs) = UnixStream::pair()?;
///     theirs.set_nonblocking(true)?;
///     let source = EventSource::new(theirs)?;
///     drop(ringloop_coro::spawn(move || ours.write_all(b"!")));
///     let mut byte = [0];
///     let count = source.when(Interest::READ, |mut stream| stream.read(&mut byte))?;
///     assert_eq!((count, byte), (1, *b"!"));
///     Ok(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EventSource<S> {
    source: S,
    polled: SharedFd<OwnedFd>,
}

impl<S: AsFd> EventSource<S> {
    /// Wraps `source`, whose calls do not block (`O_NONBLOCK`).
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn new(source: S) -> io::Result<Self> {
        let polled = SharedFd::new(source.as_fd().try_clone_to_owned()?);
        Ok(Self { source, polled })
    }
}

impl<S> EventSource<S> {
    /// Parks until it is ready; returns for what.
    ///
    /// # Errors
    /// `EPERM` for what cannot be polled, such as a regular file (epoll).
    #[track_caller]
    pub fn wait(&self, interest: Interest) -> io::Result<Interest> {
        block_on(self.ready(interest))
    }

    /// As [`EventSource::wait`]: for `select!`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        let poll = Poll { fd: self.polled.on_loop(), interest, level: false };
        Op::new(poll).await
    }

    /// Repeats a call while it returns `WouldBlock`, and parks in between.
    pub fn when<T>(
        &self,
        interest: Interest,
        mut call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        coop::consume_budget();
        loop {
            match call(&self.source) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    coop::reset_budget();
                    self.wait(interest)?;
                }
                done => return done,
            }
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> S {
        self.source
    }
}

impl<S> Deref for EventSource<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.source
    }
}

impl<S> DerefMut for EventSource<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.source
    }
}

impl<S: fmt::Debug> fmt::Debug for EventSource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSource").field("source", &self.source).finish_non_exhaustive()
    }
}
