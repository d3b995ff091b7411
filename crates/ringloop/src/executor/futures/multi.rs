//! A multishot operation as a sequence of completions.
//!
//! Owns: [`Multi`], one operation, resubmitted after it has ended. Called by: `net`'s streams,
//! which interpret the completions and decide when a sequence ends.
//!
//! Bounded: at most `op::Shape::untaken_max` completions are queued; then the driver stops the
//! operation until they are taken.

use super::received::Received;
use crate::driver::{Key, Sink};
use crate::executor::runtime::local::Local;
use crate::executor::task::listed::waiting;
use crate::op::{Request, result_of};
use crate::sys::libc;
use std::io;
use std::task::{Context, Poll};

/// A multishot operation, or none before the first poll and after its last completion. Dropping it
/// cancels the operation; results that have arrived are closed or recycled.
#[derive(Debug, Default)]
pub(crate) struct Multi {
    in_flight: Option<(Local, Key)>,
}

/// One completion of a multishot operation.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// As the kernel reports it.
    pub result: i32,
    pub buffer: Option<Received>,
}

impl Arrival {
    /// The result as an [`io::Result`].
    pub fn result(&self) -> io::Result<u32> {
        result_of(self.result)
    }
}

impl Multi {
    /// True if the next poll submits.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    /// Cancels it: results that have arrived still come, then `ECANCELED`, or what ended it before.
    pub fn stop(&self) {
        if let Some((local, key)) = &self.in_flight {
            local.engine().driver_mut().cancel(*key);
        }
    }

    /// The next completion; `request` is called if no operation is in flight.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        request: impl FnOnce() -> Request,
    ) -> Poll<Arrival> {
        self.poll_to_the_end(cx, request, drop)
    }

    /// Like [`Multi::poll_next`]; passes the request, with the last completion, to `ended`, which
    /// must not call back.
    #[inline]
    pub fn poll_to_the_end(
        &mut self,
        cx: &mut Context<'_>,
        request: impl FnOnce() -> Request,
        ended: impl FnOnce(Option<Request>),
    ) -> Poll<Arrival> {
        let Some((local, key)) = &self.in_flight else {
            let local = Local::current();
            let sink = Sink::Waker(cx.waker().clone());
            let key = local.engine().driver_mut().submit(request(), sink);
            self.in_flight = Some((local, key));
            return waiting("a multishot operation");
        };
        let mut engine = local.engine();
        let driver = engine.driver_mut();
        let Poll::Ready(polled) = driver.poll(*key, cx.waker(), ended) else {
            return waiting("a multishot operation");
        };
        let Some((taken, _)) = polled else {
            // The driver was closed under the stream.
            drop(engine);
            self.in_flight = None;
            return Poll::Ready(Arrival { result: -libc::ECANCELED, buffer: None });
        };
        drop(engine);
        let buffer = taken.buffer.map(|buffer| Received::new(local, buffer));
        if !taken.more {
            self.in_flight = None;
        }
        Poll::Ready(Arrival { result: taken.result, buffer })
    }
}

impl Drop for Multi {
    fn drop(&mut self) {
        if let Some((local, key)) = self.in_flight.take() {
            local.forget(key);
        }
    }
}
