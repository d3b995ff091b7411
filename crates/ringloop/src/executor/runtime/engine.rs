//! An engine: a driver with timers, whose wait other threads can interrupt.
//!
//! Owns: [`Engine`], [`Options`]. Called by: `local`, and embedders, which run the turn themselves.

use super::busy::BusyPolling;
use super::timer::Timers;
use crate::driver::{BlockingPool, Choice, Driver, Event, Kind};
use crate::error::Error;
use crate::executor::task::park::Unpark;
use crate::limits;
use crate::sys::clock;
use crate::sys::fork::Generation;
use crate::sys::uring::{Config, Feature};
use std::hint;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Settings of an engine.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which driver to use.
    pub driver: Choice,
    /// Submission polling: a kernel thread takes submissions (`IORING_SETUP_SQPOLL`), so that a
    /// busy loop makes no system call for them. The thread spins, which costs a core, and sleeps
    /// after this long without submissions. Needs no privilege since Linux 5.13, but room under
    /// `RLIMIT_NPROC` and a security policy that allows it. If refused: an error with
    /// [`Choice::Uring`], a ring without it with [`Choice::Auto`] ([`Engine::reason`] says so). No
    /// effect on epoll.
    pub submission_polling: Option<Duration>,
    /// Polls for completions for at most this long before the loop sleeps, if most waits end within
    /// it (`None`, the default: sleep at once). For few connections with short response times: a
    /// polling thread need not be woken, which on a virtual machine can take longer than the
    /// request. Costs the CPU time of the wait; an idle loop sleeps after a few longer waits. A
    /// poll is a memory load on the ring, a system call on epoll. 50 µs is a good start. Not for
    /// machines whose CPUs are all busy.
    pub busy_polling: Option<Duration>,
    /// Entries of the ring's submission queue; a fuller turn submits twice.
    pub ring_entries: u32,
    /// Entries of the ring's completion queue.
    pub completion_entries: u32,
    /// Messages from other threads that a `Local` may have queued.
    pub inbox_messages: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            driver: Choice::Auto,
            submission_polling: None,
            busy_polling: None,
            ring_entries: limits::RING_ENTRIES,
            completion_entries: limits::COMPLETION_ENTRIES,
            inbox_messages: limits::INBOX_MESSAGES,
        }
    }
}

impl Options {
    /// Reads the environment: `RINGLOOP_DRIVER` is auto (also if unset), uring or epoll.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self { driver: Choice::from_env()?, ..Self::default() })
    }

    fn ring(&self) -> Config {
        Config {
            entries: self.ring_entries,
            cq_entries: self.completion_entries,
            polling: self.submission_polling,
        }
    }
}

/// A driver with timers, whose wait other threads can interrupt.
#[derive(Debug)]
pub struct Engine {
    driver: Driver,
    reason: String,
    timers: Timers,
    unpark: Unpark,
    busy: BusyPolling,
    pool: BlockingPool,
    generation: Generation,
}

impl Engine {
    /// Opens the driver; it is bound to no thread before [`Engine::bind`].
    pub fn new(options: Options) -> Result<Self, Error> {
        let (unpark, event) = Unpark::new()?;
        let pool = BlockingPool::new(Arc::downgrade(&event));
        let (driver, reason) = Driver::new(options.driver, &options.ring(), event, &pool)?;
        Ok(Self {
            driver,
            reason,
            timers: Timers::new(),
            unpark,
            busy: BusyPolling::new(options.busy_polling),
            pool,
            generation: Generation::current(),
        })
    }

    /// Binds the engine to the calling thread, until [`Driver::unbind`].
    ///
    /// # Errors
    /// The ring is bound to another thread; [`Error::Inherited`] in a forked child.
    pub fn bind(&mut self) -> io::Result<()> {
        self.driver_mut().bind()
    }

    /// The driver in use.
    pub fn kind(&self) -> Kind {
        self.driver.kind()
    }

    /// Why this driver is in use, in one sentence.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The driver, for submitting operations.
    #[inline]
    pub fn driver_mut(&mut self) -> &mut Driver {
        if self.generation.is_inherited() {
            self.leave_to_parent();
        }
        &mut self.driver
    }

    /// After a fork(2), in the child: drops the driver's state, which is the parent's.
    #[cold]
    fn leave_to_parent(&mut self) {
        if !matches!(self.driver, Driver::Inherited(..)) {
            self.driver.leave_to_parent();
            self.pool.leave_to_parent();
        }
    }

    /// True if the driver can send without copying.
    pub fn sends_zero_copy(&self) -> bool {
        self.driver.features().has(Feature::SendZeroCopy)
    }

    /// The pool threads for blocking calls.
    pub(crate) fn blocking_pool(&mut self) -> &BlockingPool {
        if self.generation.is_inherited() {
            self.leave_to_parent();
        }
        &self.pool
    }

    /// True if the driver has an operation that waits for a child; otherwise poll its pidfd.
    pub fn waits_for_children(&self) -> bool {
        match &self.driver {
            Driver::Uring(_) => self.driver.features().has(Feature::Waitid),
            Driver::Readiness(_) | Driver::Inherited(..) => true,
        }
    }

    /// The timers that wake futures.
    pub fn timers_mut(&mut self) -> &mut Timers {
        &mut self.timers
    }

    /// A handle by which any thread ends the current or the next wait.
    pub fn unpark(&self) -> Unpark {
        self.unpark.clone()
    }

    /// Submits what is queued and waits for completions, until `timeout` (`None`: no limit; zero:
    /// only polls), the next timer of this engine, a signal, or an unpark. Makes no callbacks, so
    /// an embedder may release its own lock around it.
    ///
    /// # Errors
    /// [`Error::Inherited`] in a forked child; errors of the driver's wait.
    pub fn park(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.generation.is_inherited() {
            return Err(Error::Inherited.into());
        }
        let timeout = self.timers.bound(timeout);
        if timeout == Some(Duration::ZERO) {
            self.driver.wait(timeout)
        } else if self.busy.is_on() {
            self.poll_then_sleep(timeout)
        } else {
            self.sleep(timeout)
        }
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if !self.unpark.prepare_to_sleep() {
            return self.driver.wait(Some(Duration::ZERO));
        }
        let waited = self.driver.wait(timeout);
        self.unpark.awake();
        waited
    }

    /// Polls for completions while that pays off, then sleeps. A notification meanwhile makes no
    /// system call.
    fn poll_then_sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let began_ns = clock::monotonic_ns();
        let span_ns = self.busy.span_ns();
        let mut passed_ns = 0;
        while passed_ns < span_ns {
            self.driver.wait(Some(Duration::ZERO))?;
            let left =
                timeout.map(|timeout| timeout.saturating_sub(Duration::from_nanos(passed_ns)));
            if self.driver.has_events() || left == Some(Duration::ZERO) {
                self.busy.learn(passed_ns);
                return Ok(());
            }
            if self.unpark.is_notified() {
                break;
            }
            hint::spin_loop();
            passed_ns = clock::monotonic_ns() - began_ns;
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(Duration::from_nanos(passed_ns)));
        let slept = self.sleep(left);
        self.busy.learn(clock::monotonic_ns() - began_ns);
        slept
    }

    /// True if the driver may have completions or entries; `false` saves a call to
    /// [`Engine::park`].
    pub fn has_work(&self) -> bool {
        !self.generation.is_inherited() && self.driver.has_work()
    }

    /// The next completion for the embedder. Wakes the tasks of futures' completions on the way.
    pub fn next_event(&mut self) -> Option<Event> {
        self.driver_mut().next_event()
    }

    /// Wakes the futures whose timers are due.
    pub fn fire_timers(&mut self) {
        self.timers.fire();
    }
}

impl Drop for Engine {
    /// No more calls begin; the driver waits for its own requests.
    fn drop(&mut self) {
        if self.generation.is_inherited() {
            self.leave_to_parent();
        }
        self.pool.close();
    }
}
