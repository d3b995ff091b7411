//! A runtime: `block_on` and `spawn`, on one thread or several.
//!
//! Called by: applications.

use super::engine::Options;
use super::local::Local;
use super::turn;
use super::workers::{self, Plan, Threads, Workers};
use crate::driver::{Choice, Kind};
use crate::error::Error;
use crate::executor::task::join::JoinHandle;
use crate::executor::task::listed::listed;

use std::future::Future;
use std::io;
use std::panic::Location;
use std::time::Duration;

/// A runtime. It belongs to the thread that created it, which is worker 0.
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

/// Configures a runtime; [`Runtime::builder`] starts with the defaults.
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
    /// Which driver to use. Default: `RINGLOOP_DRIVER`, or the best that the kernel supports.
    pub fn driver(mut self, driver: Choice) -> Self {
        self.driver = Some(driver);
        self
    }

    /// Number of threads, each with its own loop and ring. The calling thread is one of them, so 1
    /// (the default, and the minimum) starts none.
    pub fn workers(mut self, count: usize) -> Self {
        self.plan.workers = count.max(1);
        self
    }

    /// Name of the threads, followed by their number: `ringloop-1` and so on. The kernel shows 15
    /// bytes.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.plan.thread_name = name.into();
        self
    }

    /// Pins each worker, the calling thread too, to its own CPU, in the order of the CPUs that the
    /// process may use. Pays off if nothing else runs on them.
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

    /// Tasks that may be queued for a worker to start (default [`crate::limits::INBOX_MESSAGES`]).
    pub fn inbox_messages(mut self, count: usize) -> Self {
        self.plan.options.inbox_messages = count;
        self
    }

    /// Submission polling by a kernel thread; see [`Options::submission_polling`].
    pub fn submission_polling(mut self, idle: Option<Duration>) -> Self {
        self.plan.options.submission_polling = idle;
        self
    }

    /// How long a worker polls for completions before it sleeps; see [`Options::busy_polling`].
    pub fn busy_polling(mut self, bound: Option<Duration>) -> Self {
        self.plan.options.busy_polling = bound;
        self
    }

    /// Creates the runtime and starts its other workers.
    ///
    /// # Errors
    /// An unknown value of `RINGLOOP_DRIVER`; a driver that cannot run here; threads or rings that cannot
    /// be created. Workers that have started are stopped.
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
    /// Creates a runtime of one thread, configured by the environment (`RINGLOOP_DRIVER`).
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Configures a runtime.
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

    /// Creates a runtime of one thread with these options.
    pub fn with_options(options: Options) -> Result<Self, Error> {
        let mut builder = Self::builder().driver(options.driver);
        builder.plan.options = options;
        builder.build()
    }

    /// The driver in use.
    pub fn kind(&self) -> Kind {
        self.local.engine().kind()
    }

    /// Why this driver is in use, in one sentence.
    pub fn reason(&self) -> String {
        self.local.engine().reason().to_owned()
    }

    /// All workers; this thread is number 0.
    pub fn workers(&self) -> Workers {
        Workers::of(self.local.member().team)
    }

    /// Starts a task on this thread; it runs during `block_on`.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.local.spawn_unlisted(listed(future, Location::caller()))
    }

    /// Runs until `future` is ready, along with everything spawned. The first call binds the
    /// runtime to the calling thread.
    ///
    /// # Errors
    /// If the driver fails; a task's own errors are not reported here.
    #[track_caller]
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let future = listed(future, Location::caller());
        self.local.engine().bind()?;
        turn::run(&self.local, future)
    }

    /// Stops every worker and drops all tasks, as dropping the runtime does, and reports failures.
    ///
    /// # Errors
    /// [`Error::WorkerFailed`]: the first worker whose loop ended early.
    pub fn shut_down(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Ends the calling thread's tasks while the other workers stop: a task's drop may wait for one
    /// of them.
    fn end(&mut self) -> Result<(), Error> {
        let local = &self.local;
        self.threads.end(|| turn::shut_down(local))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Reported already, on standard error.
        drop(self.end());
    }
}
