//! A multishot operation as a sequence of completions, and the buffers that come with them.
//!
//! Owns: [`Multi`] (one operation, submitted again after it ended) and [`Received`] (a pool buffer with
//! received bytes). Called by: `net`'s streams. Never does: decide what a completion means, or when a
//! sequence is over.
//!
//! Bounded: as many completions as `op::Shape::untaken_max` says wait for their taker; then the driver
//! stops the operation until they are taken.

use super::large::lead_len;
use super::{Home, Local};
use crate::buf::{Outgoing, SendBuf};
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

    /// Whether more may have come than was taken.
    pub fn may_be_followed(&self) -> bool {
        self.in_flight
            .as_ref()
            .is_some_and(|(local, key)| local.engine().driver_mut().may_be_followed(*key))
    }

    /// Ask it to stop: what has arrived still comes, and behind it `ECANCELED`, or what ended it before.
    pub fn stop(&self) {
        if let Some((local, key)) = &self.in_flight {
            local.engine().driver_mut().cancel(*key);
        }
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

/// Received bytes in a buffer of the loop's, which gets it back when this is dropped.
///
/// Shape: reads as `[u8]`, and can be sent as it is (`write_all`). One that is forgotten (`mem::forget`) loses its
/// buffer to the pool (`limits::POOL_BUFFERS`), and keeps the pool's memory after the runtime's end; nothing else.
/// Cost: no copy. Hold it shortly: while every buffer of the pool is held, all streams of the loop wait.
pub struct Received {
    home: Home,
    memory: Memory,
    filled: Range<usize>,
}

/// Where received bytes are.
enum Memory {
    Pool(Lease),
    /// One of the loop's few large ones.
    Large(Vec<u8>),
    /// Memory of its own, after they were sent.
    Copied(Vec<u8>),
    Nowhere,
}

impl Received {
    fn new(home: Home, lease: Lease, completion: &Completion) -> Self {
        let len = usize::try_from(completion.result).unwrap_or(0);
        Self {
            filled: 0..len.min(lease.bytes().len()),
            home,
            memory: Memory::Pool(lease),
        }
    }

    /// The bytes of one of `local`'s large buffers.
    pub(crate) fn large(local: &Local, bytes: Vec<u8>) -> Self {
        Self {
            filled: lead_len(&bytes)..bytes.len(),
            home: local.home(),
            memory: Memory::Large(bytes),
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
        match &self.memory {
            Memory::Pool(lease) => &lease.bytes()[self.filled.clone()],
            Memory::Large(bytes) | Memory::Copied(bytes) => &bytes[self.filled.clone()],
            Memory::Nowhere => &[],
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
        match std::mem::replace(&mut self.memory, Memory::Nowhere) {
            Memory::Pool(lease) => self.home.give_back(lease),
            Memory::Large(buffer) => self.home.give_back_large(buffer),
            Memory::Copied(_) | Memory::Nowhere => {}
        }
    }
}

/// What received bytes that are being sent leave behind.
#[derive(Debug)]
pub struct Sending {
    home: Home,
    /// One of the large buffers is on its way.
    is_large: bool,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.is_large {
            // The future was dropped: the operation frees it.
            self.home.give_back_large(Vec::new());
        }
    }
}

impl Outgoing for Received {
    type Kept = Sending;

    fn just_received(&self) -> Option<&[u8]> {
        Some(self)
    }

    /// What lies in a buffer of the pool is copied, and the buffer given back: held until the bytes are sent, the few
    /// of the pool would be what all streams wait for.
    fn lend(mut self) -> (SendBuf, Sending) {
        let home = self.home.clone();
        let (bytes, is_large) = match std::mem::replace(&mut self.memory, Memory::Nowhere) {
            Memory::Pool(lease) => {
                let bytes = lease.bytes()[self.filled.clone()].to_vec();
                home.give_back(lease);
                return (
                    bytes.into(),
                    Sending {
                        home,
                        is_large: false,
                    },
                );
            }
            Memory::Large(bytes) => (bytes, true),
            Memory::Copied(bytes) => (bytes, false),
            Memory::Nowhere => (Vec::new(), false),
        };
        let mut buf = SendBuf::from(bytes);
        buf.advance(self.filled.start);
        (buf, Sending { home, is_large })
    }

    fn restore(mut kept: Sending, buf: SendBuf) -> Self {
        let bytes = buf.into_vec().unwrap_or_default();
        let home = kept.home.clone();
        if std::mem::take(&mut kept.is_large) {
            let filled = lead_len(&bytes)..bytes.len();
            let memory = Memory::Large(bytes);
            return Self {
                home,
                memory,
                filled,
            };
        }
        Self {
            home,
            filled: 0..bytes.len(),
            memory: Memory::Copied(bytes),
        }
    }
}
