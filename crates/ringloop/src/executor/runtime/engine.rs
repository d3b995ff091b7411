//! An engine: a driver with timers, and a way for other threads to interrupt its wait.
//!
//! Owns: [`Engine`], [`Options`]. Called by: `local`, and embedders, which run the turn themselves.

use super::busy::BusyPolling;
use super::timer::Timers;
use crate::driver::{BlockingPool, Choice, Driver, Event, Kind, Setup};
use crate::error::Error;
use crate::executor::task::park::Unpark;
use crate::limits;
use crate::sys::clock;
use crate::sys::fork::Generation;
use crate::sys::uring::Feature;
use std::hint;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How an engine is set up.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which driver to use.
    pub driver: Choice,
    /// On the ring: have a thread of the kernel take submissions (`IORING_SETUP_SQPOLL`), so that a busy
    /// loop makes no system call for them. The thread spins, and sleeps once nothing came for this
    /// long; it costs a core while it spins. Needs no privilege since Linux 5.13, but room under
    /// `RLIMIT_NPROC` and a security policy that allows it. Refused: an error with
    /// [`Choice::Uring`], a ring without it with [`Choice::Auto`] ([`Engine::reason`] says so).
    /// Without effect on epoll.
    pub submission_polling: Option<Duration>,
    /// Look for completions for so long at most before the loop sleeps, where its waits are mostly over by then
    /// (`None`, the default: sleep at once). For few connections whose answers come soon: a thread that looks
    /// need not be woken, which on a virtual machine can take longer than the request. It costs the processor time
    /// of the wait; an idle loop sleeps after a few waits that were longer. On the ring a look is a load from
    /// memory, on epoll a system call. 50 µs are a good beginning. Nothing for a machine whose every processor is
    /// needed by somebody else.
    pub busy_polling: Option<Duration>,
    /// Entries of the ring's submission queue; a fuller turn submits twice.
    pub ring_entries: u32,
    /// Entries of the ring's completion queue.
    pub completion_entries: u32,
    /// Messages that other threads may have waiting for a [`Local`].
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
    /// As the environment says: `RINGLOOP_DRIVER` is auto (also where unset), uring or epoll.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self {
            driver: Choice::from_env()?,
            ..Self::default()
        })
    }

    fn setup(&self) -> Setup {
        Setup {
            choice: self.driver,
            polling: self.submission_polling,
            entries: self.ring_entries,
            completion_entries: self.completion_entries,
        }
    }
}

/// A driver with timers, and a way for other threads to interrupt its wait.
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
    /// Set up the driver; it belongs to no thread until [`Engine::bind`].
    pub fn new(options: Options) -> Result<Self, Error> {
        let (unpark, event) = Unpark::new()?;
        let pool = BlockingPool::new(Arc::downgrade(&event));
        let (driver, reason) = Driver::new(&options.setup(), event, &pool)?;
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

    /// Make the calling thread the engine's own. On a ring the first thread stays the owner; another
    /// one gets an error and needs an engine of its own.
    ///
    /// # Errors
    /// [`Error::Inherited`] in a forked child.
    pub fn bind(&mut self) -> io::Result<()> {
        self.driver_mut().bind()
    }

    /// Which driver is in use.
    pub fn kind(&self) -> Kind {
        self.driver.kind()
    }

    /// Why this driver is in use, in one sentence.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The driver, to submit operations.
    #[inline]
    pub fn driver_mut(&mut self) -> &mut Driver {
        if self.generation.is_inherited() {
            self.leave_to_parent();
        }
        &mut self.driver
    }

    /// The process is a fork of the one that made this engine: it keeps the child's memory, and no more.
    #[cold]
    fn leave_to_parent(&mut self) {
        if !matches!(self.driver, Driver::Inherited(..)) {
            self.driver.leave_to_parent();
            self.pool.leave_to_parent();
        }
    }

    /// Whether the driver can send without copying.
    pub fn sends_zero_copy(&self) -> bool {
        self.driver.features().has(Feature::SendZeroCopy)
    }

    /// The threads for what blocks.
    pub(crate) fn blocking_pool(&mut self) -> &BlockingPool {
        if self.generation.is_inherited() {
            self.leave_to_parent();
        }
        &self.pool
    }

    /// Whether the driver waits for a child by an operation of its own; polling its pidfd does where not.
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

    /// Submit what is queued and wait for completions, until `timeout` (`None`: for ever; zero: only
    /// look), the next timer of this engine, a signal, or an unpark. Calls nothing back, so an
    /// embedder may give up its own lock around it.
    ///
    /// # Errors
    /// [`Error::Inherited`] in a forked child; what the driver's wait fails with.
    pub fn park(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.generation.is_inherited() {
            return Err(Error::Inherited.into());
        }
        let timeout = self.timers.bound(timeout);
        if timeout == Some(Duration::ZERO) {
            self.driver.wait(timeout)
        } else if self.busy.is_on() {
            self.look_then_sleep(timeout)
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

    /// Look for completions, as long as that is worth it, and only then sleep. Whoever notifies meanwhile makes no
    /// system call.
    fn look_then_sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let began_ns = clock::monotonic_ns();
        let span_ns = self.busy.span_ns();
        let mut passed_ns = 0;
        while passed_ns < span_ns {
            self.driver.wait(Some(Duration::ZERO))?;
            let left =
                timeout.map(|timeout| timeout.saturating_sub(Duration::from_nanos(passed_ns)));
            if self.driver.has_news() || left == Some(Duration::ZERO) {
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

    /// Whether a look at the driver could find anything; `false` saves the call.
    pub fn has_work(&self) -> bool {
        !self.generation.is_inherited() && self.driver.has_work()
    }

    /// The next completion for the embedder. Futures' completions wake their tasks on the way.
    pub fn next_event(&mut self) -> Option<Event> {
        self.driver_mut().next_event()
    }

    /// Wake the futures whose timers are due.
    pub fn fire_timers(&mut self) {
        self.timers.fire();
    }
}

impl Drop for Engine {
    /// No more calls begin; the driver's own requests are its to wait for.
    fn drop(&mut self) {
        if self.generation.is_inherited() {
            self.leave_to_parent();
        }
        self.pool.close();
    }
}
