//! A runtime: `block_on` and `spawn`, on one thread or several.
//!
//! Called by: Rust programs. Never does: start a thread that was not asked for.

use super::engine::Options;
use super::local::Local;
use super::turn;
use super::workers::{self, Plan, Threads, Workers};
use crate::driver::{Choice, Kind};
use crate::error::Error;
use crate::executor::task::join::JoinHandle;

use std::future::Future;
use std::io;
use std::time::Duration;

/// A runtime; it belongs to the thread that made it, which is worker 0.
///
/// ```compile_fail,E0277
/// fn may_leave_the_thread<T: Send>() {}
/// may_leave_the_thread::<ringloop::Runtime>();
/// ```
#[derive(Debug)]
pub struct Runtime {
    // Fields are dropped in this order: the other workers end first.
    threads: Threads,
    local: Local,
}

/// How a runtime is set up; [`Runtime::builder`] makes one with every choice at its default.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until build() is called"]
pub struct Builder {
    plan: Plan,
    driver: Option<Choice>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            plan: Plan {
                options: Options::default(),
                workers: 1,
                thread_name: "ringloop".to_owned(),
                pinned: false,
            },
            driver: None,
        }
    }
}

impl Builder {
    /// Which driver to use; else the one in `RINGLOOP_DRIVER`, or the best that the kernel has.
    pub fn driver(mut self, driver: Choice) -> Self {
        self.driver = Some(driver);
        self
    }

    /// How many threads, each with a loop and a ring of its own. The calling thread is one of them, so 1
    /// (the default, and the least) starts none.
    pub fn workers(mut self, count: usize) -> Self {
        self.plan.workers = count.max(1);
        self
    }

    /// What the threads are named before their number: `ringloop-1` and so on. The kernel shows 15 bytes.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.plan.thread_name = name.into();
        self
    }

    /// Tie each worker to a processor of its own (the calling thread too), in the order of those that the
    /// process may use. Pays off where nothing else runs on them.
    pub fn pin_to_processors(mut self, pinned: bool) -> Self {
        self.plan.pinned = pinned;
        self
    }

    /// Entries of each ring's submission queue (default [`crate::limits::RING_ENTRIES`]).
    pub fn ring_entries(mut self, count: u32) -> Self {
        self.plan.options.ring_entries = count;
        self
    }

    /// Entries of each ring's completion queue (default [`crate::limits::COMPLETION_ENTRIES`]).
    pub fn completion_entries(mut self, count: u32) -> Self {
        self.plan.options.completion_entries = count;
        self
    }

    /// How many tasks may wait for one worker to start them (default [`crate::limits::INBOX_MESSAGES`]).
    pub fn inbox_messages(mut self, count: usize) -> Self {
        self.plan.options.inbox_messages = count;
        self
    }

    /// Submissions taken by a thread of the kernel; see [`Options::submission_polling`].
    pub fn submission_polling(mut self, idle: Option<Duration>) -> Self {
        self.plan.options.submission_polling = idle;
        self
    }

    /// How long to look for completions before a worker sleeps; see [`Options::busy_polling`].
    pub fn busy_polling(mut self, bound: Option<Duration>) -> Self {
        self.plan.options.busy_polling = bound;
        self
    }

    /// Make the runtime and start its other workers.
    ///
    /// Errors: an unknown word in `RINGLOOP_DRIVER`; a driver that cannot run here; threads or rings that
    /// cannot be made. Workers that had started by then are ended.
    pub fn build(mut self) -> Result<Runtime, Error> {
        self.plan.options.driver = match self.driver {
            Some(driver) => driver,
            None => Choice::from_env()?,
        };
        let local = Local::new(self.plan.options)?;
        let threads = workers::start(&self.plan, &local)?;
        Ok(Runtime { threads, local })
    }
}

impl Runtime {
    /// A runtime of one thread, as the environment says (`RINGLOOP_DRIVER`).
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// A runtime with more to say about it.
    ///
    /// ```
    /// let runtime = ringloop::Runtime::builder()
    ///     .workers(2)
    ///     .thread_name("service")
    ///     .build()?;
    /// assert_eq!(runtime.workers().count(), 2);
    /// # Ok::<(), ringloop::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A runtime of one thread with these options.
    pub fn with_options(options: Options) -> Result<Self, Error> {
        let mut builder = Self::builder().driver(options.driver);
        builder.plan.options = options;
        builder.build()
    }

    /// Which driver runs it.
    pub fn kind(&self) -> Kind {
        self.local.engine().kind()
    }

    /// Why this driver, in one sentence.
    pub fn reason(&self) -> String {
        self.local.engine().reason().to_owned()
    }

    /// All workers, this thread being number 0.
    pub fn workers(&self) -> Workers {
        Workers::of(self.local.seat().team)
    }

    /// Start a task on this thread; it runs while `block_on` does.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.local.spawn(future)
    }

    /// Run until `future` is ready, and everything spawned beside it. The first call binds the
    /// runtime to the calling thread.
    ///
    /// # Errors
    /// Where the driver fails; a task's own errors are its own.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        self.local.engine().bind()?;
        turn::run(&self.local, future)
    }

    /// End every worker and drop all tasks, as dropping the runtime does, and say whether all went well.
    ///
    /// # Errors
    /// [`Error::WorkerFailed`]: the first worker whose loop had ended before its time.
    pub fn shut_down(mut self) -> Result<(), Error> {
        self.end()
    }

    /// The calling thread's tasks end while the others' do: what a task's drop waits for may be on another worker.
    fn end(&mut self) -> Result<(), Error> {
        let local = &self.local;
        self.threads.end(|| turn::shut_down(local))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Said already, on standard error.
        drop(self.end());
    }
}
