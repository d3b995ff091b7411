//! A thread's own loop: `block_on` and `spawn`.
//!
//! Called by: Rust programs. Never does: start threads.

use super::join::JoinHandle;
use super::local::Local;
use super::{Options, Unpark};
use crate::driver::Kind;
use crate::error::Error;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A runtime for one thread.
#[derive(Debug)]
pub struct Runtime {
    local: Local,
}

/// Wakes the future given to `block_on`.
#[derive(Debug)]
struct RootWaker {
    woken: AtomicBool,
    unpark: Unpark,
}

impl Wake for RootWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.unpark.notify();
        }
    }
}

impl Runtime {
    /// A runtime as the environment says (`RINGLOOP_DRIVER`).
    pub fn new() -> Result<Self, Error> {
        Self::with_options(Options::from_env()?)
    }

    /// A runtime with these options.
    pub fn with_options(options: Options) -> Result<Self, Error> {
        Ok(Self {
            local: Local::new(options)?,
        })
    }

    /// Which driver runs it.
    pub fn kind(&self) -> Kind {
        self.local.engine().kind()
    }

    /// Why this driver, in one sentence.
    pub fn reason(&self) -> String {
        self.local.engine().reason().to_owned()
    }

    /// Start a task; it runs while `block_on` does.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.local.spawn(future)
    }

    /// Run until `future` is ready, and everything spawned beside it. The first call binds the
    /// runtime to the calling thread.
    ///
    /// # Errors
    /// Where the driver fails; a task's own errors are its own.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let _entered = self.local.enter();
        self.local.engine().bind()?;
        let ended = self.run(future);
        // What the future's end cancelled and closed must not wait for the next call.
        ended.and_then(|value| {
            self.local.engine().park(Some(Duration::ZERO))?;
            Ok(value)
        })
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let unpark = self.local.engine().unpark();
        let root = Arc::new(RootWaker {
            woken: AtomicBool::new(true),
            unpark,
        });
        let waker = Waker::from(Arc::clone(&root));
        let mut future = pin!(future);
        loop {
            if root.woken.swap(false, Ordering::AcqRel)
                && let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Ok(value);
            }
            let more = self.local.run_tasks() || root.woken.load(Ordering::Acquire);
            let mut engine = self.local.engine();
            engine.park(if more { Some(Duration::ZERO) } else { None })?;
            engine.fire_timers();
            // Only futures submit here, so a completion never comes out as an event.
            while engine.next_event().is_some() {}
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _entered = self.local.enter();
        self.local.shut_down();
    }
}

/// Start a task on the runtime that the calling code runs in.
///
/// # Panics
/// Outside of a runtime.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    Local::current().spawn(future)
}
