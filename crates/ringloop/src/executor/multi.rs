//! A multishot operation as a sequence of completions, and the buffers that come with them.
//!
//! Owns: [`Multi`] (one operation, submitted again after it ended) and [`Received`] (a pool buffer with
//! received bytes). Called by: `net`'s streams. Never does: decide what a completion means, or when a
//! sequence is over.
//!
//! Bounded: as many completions as `op::Shape::untaken_max` says wait for their taker; then the driver
//! stops the operation until they are taken.

use super::{Home, Local};
use crate::driver::{Completion, Key, Lease, Sink};
use crate::op::Request;
use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::task::{Context, Poll};

/// A multishot operation, or none before the first poll and after its last completion.
/// Dropping it cancels the operation; what had arrived is closed or given back.
#[derive(Debug, Default)]
pub(crate) struct Multi {
    in_flight: Option<(Local, Key)>,
}

/// One completion of a multishot operation.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub result: io::Result<u32>,
    pub buffer: Option<Received>,
    /// The request, with the last one.
    pub request: Option<Request>,
}

impl Multi {
    /// Whether the next poll submits.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    /// The next completion; `request` is asked for where no operation is in flight.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        request: impl FnOnce() -> Request,
    ) -> Poll<Arrival> {
        let Some((local, key)) = &self.in_flight else {
            let local = Local::current();
            let sink = Sink::Waker(cx.waker().clone());
            let key = local.engine().driver_mut().submit(request(), sink);
            self.in_flight = Some((local, key));
            return Poll::Pending;
        };
        let mut engine = local.engine();
        match engine.driver_mut().poll(*key, cx.waker()) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(mut completion)) => {
                let lease = completion
                    .buffer
                    .take()
                    .and_then(|id| engine.driver_mut().lease(id));
                drop(engine);
                let buffer = lease.map(|lease| Received::new(local.home(), lease, &completion));
                if !completion.more {
                    self.in_flight = None;
                }
                Poll::Ready(Arrival {
                    result: completion.result(),
                    buffer,
                    request: completion.request.take(),
                })
            }
            // The driver was torn down under the stream.
            Poll::Ready(None) => {
                drop(engine);
                self.in_flight = None;
                Poll::Ready(Arrival {
                    result: Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    buffer: None,
                    request: None,
                })
            }
        }
    }
}

impl Drop for Multi {
    fn drop(&mut self) {
        if let Some((local, key)) = self.in_flight.take() {
            local.forget(key);
        }
    }
}

/// Received bytes in a buffer of the loop's pool, which gets it back when this is dropped.
///
/// Shape: reads as `[u8]`. One that is forgotten (`mem::forget`) loses its buffer to the pool
/// (`limits::POOL_BUFFERS`), and keeps the pool's memory after the runtime's end; nothing else.
/// Cost: no copy. Hold it shortly: while every buffer of the pool is held, all streams of the loop wait.
pub struct Received {
    home: Home,
    lease: Option<Lease>,
    filled: Range<usize>,
}

impl Received {
    fn new(home: Home, lease: Lease, completion: &Completion) -> Self {
        let len = usize::try_from(completion.result).unwrap_or(0);
        Self {
            filled: 0..len.min(lease.bytes().len()),
            home,
            lease: Some(lease),
        }
    }

    /// Drop the first `count` bytes, which have been used; more than there are counts as all.
    pub fn advance(&mut self, count: usize) {
        self.filled.start += count.min(self.filled.len());
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.lease {
            Some(lease) => &lease.bytes()[self.filled.clone()],
            None => &[],
        }
    }
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.home.give_back(lease);
        }
    }
}
