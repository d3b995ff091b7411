//! Event sources of other libraries: whatever has a descriptor that can be polled.
//!
//! Owns: [`EventSource`]. Called by: coroutines. Never does: read or write.
//!
//! What has no descriptor but a future or a callback needs nothing of its own: [`crate::block_on`] waits for the
//! future, a [`crate::sync::oneshot`] or [`crate::sync::channel`] takes what the callback brings.

use crate::shared_fd::SharedFd;
use crate::{block_on, coop};
use ringloop::executor::Op;
use ringloop::op::Poll;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};

pub use ringloop::sys::interest::Interest;

/// A value with a descriptor, and waiting for it.
///
/// The driver watches a duplicate of the descriptor, so the value may close its own at any time, and may go between
/// threads as it would without us.
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
    watched: SharedFd<OwnedFd>,
}

impl<S: AsFd> EventSource<S> {
    /// Watch `source`, whose calls do not block (`O_NONBLOCK`).
    ///
    /// Errors: `EMFILE`.
    pub fn new(source: S) -> io::Result<Self> {
        let watched = SharedFd::new(source.as_fd().try_clone_to_owned()?);
        Ok(Self { source, watched })
    }
}

impl<S> EventSource<S> {
    /// Park until it is ready for one of these; tells for which.
    ///
    /// Errors: `EPERM` for what cannot be waited for, such as a regular file (epoll).
    #[track_caller]
    pub fn wait(&self, interest: Interest) -> io::Result<Interest> {
        block_on(self.ready(interest))
    }

    /// As [`EventSource::wait`], as a future: for `select!`. Cancel safety: safe.
    pub async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        let poll = Poll {
            fd: self.watched.on_loop(),
            interest,
            level: false,
        };
        Op::new(poll).await
    }

    /// Make a call again and again, as often as it says `WouldBlock`, and park in between.
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

    /// The value.
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
        f.debug_struct("EventSource")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
