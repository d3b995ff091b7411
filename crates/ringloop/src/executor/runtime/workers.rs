//! Several threads with a loop each, and how tasks are sent between them.
//!
//! Owns: the threads of a runtime, and the table of its loops' inboxes. Called by: `runtime`. A
//! task that has started never moves to another thread, so it need not be `Send`.
//!
//! Worker 0 is the thread that calls `block_on`; the others run from `build` until the runtime is
//! dropped.
//!
//! Shutdown, in this order: each worker is notified, drops its tasks (cancelling their operations and
//! completing their handles), closes its inbox, and closes its ring, all on its own thread; the
//! threads are joined; worker 0's tasks go last, on the thread that drops the runtime.

use super::engine::Options;
use super::local::Local;
use super::team::Team;
use super::turn;
use crate::error::Error;
use crate::executor::task::core::{self, Hub};
use crate::executor::task::error::{JoinError, panic_message};
use crate::executor::task::listed::listed;
use crate::executor::task::remote::{self, RemoteJoinHandle, Settle};
use crate::sys::fork::Generation;
use crate::sys::thread as sys_thread;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

/// The workers of a runtime: starts tasks on any of them, from any thread.
///
/// A worker runs the tasks sent to it until the runtime ends; worker 0 runs during
/// [`crate::Runtime::block_on`].
#[derive(Debug, Clone)]
pub struct Workers {
    team: Arc<Team>,
}

impl Workers {
    pub(crate) fn of(team: Arc<Team>) -> Self {
        Self { team }
    }

    /// The workers of the current runtime.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn current() -> Self {
        Self::of(Local::current().member().team)
    }

    /// Number of workers.
    pub fn count(&self) -> usize {
        self.team.hubs.len()
    }

    /// Starts a task on a worker: `make` runs there, and the future it returns need not be `Send`.
    ///
    /// The closure and the result cross threads, the future does not. The handle may be awaited anywhere.
    ///
    /// # Errors
    /// [`Error::NoSuchWorker`]; [`Error::InboxFull`], if the worker is stuck or the sender never waits;
    /// [`Error::Closed`] once the worker has ended.
    ///
    /// ```
    /// use std::rc::Rc;
    /// let runtime = ringloop::Runtime::builder().workers(2).build()?;
    /// let handle = runtime.workers().spawn_on(1, || async {
    ///     let local = Rc::new(6); // never leaves worker 1
    ///     *local * 7
    /// })?;
    /// assert_eq!(runtime.block_on(handle)?.unwrap(), 42);
    /// # Ok::<(), ringloop::Error>(())
    /// ```
    /// Values that are not `Send` cannot go into the closure:
    /// ```compile_fail,E0277
    /// # let runtime = ringloop::Runtime::new().unwrap();
    /// let local = std::rc::Rc::new(1);
    /// runtime.workers().spawn_on(0, move || async move { *local });
    /// ```
    /// Nor come back as the result:
    /// ```compile_fail,E0277
    /// # let runtime = ringloop::Runtime::new().unwrap();
    /// runtime.workers().spawn_on(0, || async { std::rc::Rc::new(1) });
    /// ```
    #[track_caller]
    pub fn spawn_on<F, Fut>(
        &self,
        worker: usize,
        make: F,
    ) -> Result<RemoteJoinHandle<Fut::Output>, Error>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        let Some(hub) = self.team.hubs.get(worker) else {
            let count = self.count();
            return Err(Error::NoSuchWorker { worker, count });
        };
        let (settle, handle) = remote::pair();
        let spawned_at = Location::caller();
        hub.send_start(Box::new(move |hub: &Arc<Hub>| {
            // Called inside the task, so that a panic of `make` is the task's.
            let task = remote::drive(async move { make().await }, settle);
            drop(core::start(hub, listed(task, spawned_at)));
        }))?;
        Ok(handle)
    }

    /// Starts the same on every worker; `make` gets the worker's number. The handles come in that
    /// order.
    ///
    /// # Errors
    /// As [`Workers::spawn_on`]; tasks that have started run on.
    pub fn spawn_on_all<F, Fut>(&self, make: F) -> Result<Vec<RemoteJoinHandle<Fut::Output>>, Error>
    where
        F: FnOnce(usize) -> Fut + Clone + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        let start = |worker| {
            let make = make.clone();
            self.spawn_on(worker, move || make(worker))
        };
        (0..self.count()).map(start).collect()
    }
}

/// Starts a task on a worker of the current runtime; see [`Workers::spawn_on`].
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn spawn_on<F, Fut>(worker: usize, make: F) -> Result<RemoteJoinHandle<Fut::Output>, Error>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    Workers::current().spawn_on(worker, make)
}

/// The number of the current worker; 0 in a runtime of one thread.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn worker() -> usize {
    Local::current().member().worker
}

/// Settings of a runtime's threads.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub options: Options,
    pub workers: usize,
    pub thread_name: String,
    pub pinned: bool,
}

/// The threads other than the caller's.
#[derive(Debug)]
pub(crate) struct Threads {
    running: Vec<Running>,
    generation: Generation,
}

#[derive(Debug)]
struct Running {
    worker: usize,
    thread: thread::JoinHandle<Result<(), Error>>,
    /// Dropping it ends the worker.
    stop: Settle<()>,
}

/// What a new thread reports.
struct Hello {
    worker: usize,
    hub: Arc<Hub>,
    /// Sends it the team, once all have started.
    team: mpsc::Sender<Arc<Team>>,
}

/// Starts the threads of `plan`; `local` becomes worker 0.
pub(crate) fn start(plan: &Plan, local: &Local) -> Result<Threads, Error> {
    // Before the channel, so that a failure drops the channel first: a worker waits for the team,
    // or for its sender's end, and the sender may still be in the channel.
    let mut threads = Threads { running: Vec::new(), generation: Generation::current() };
    let (report, reports) = mpsc::channel();
    for worker in 1..plan.workers {
        let (stop, stopped) = remote::pair();
        let (plan, report) = (plan.clone(), report.clone());
        let thread = thread::Builder::new()
            .name(format!("{}-{worker}", plan.thread_name))
            .spawn(move || run(worker, &plan, &report, stopped))?;
        threads.running.push(Running { worker, thread, stop });
    }
    drop(report);
    let mut hellos = Vec::new();
    for _ in 1..plan.workers {
        match reports.recv() {
            Ok(Ok(hello)) => hellos.push(hello),
            // Dropping `threads` stops the started ones.
            Ok(Err(error)) => return Err(error),
            Err(mpsc::RecvError) => return Err(Error::Closed),
        }
    }
    hellos.sort_by_key(|hello: &Hello| hello.worker);
    let mut hubs = vec![Arc::clone(local.hub())];
    hubs.extend(hellos.iter().map(|hello| Arc::clone(&hello.hub)));
    let team = Arc::new(Team { hubs });
    for hello in hellos {
        // A worker that has ended meanwhile is found by its closed inbox.
        drop(hello.team.send(Arc::clone(&team)));
    }
    if plan.pinned {
        pin(0)?;
    }
    local.join_team(team, 0);
    Ok(threads)
}

impl Threads {
    /// Stops all workers, calls `meanwhile`, and joins them. Returns the first failure; each is
    /// reported on standard error.
    pub fn end(&mut self, meanwhile: impl FnOnce()) -> Result<(), Error> {
        let running = std::mem::take(&mut self.running);
        if self.generation.is_inherited() {
            // The threads are the parent's: they can be neither notified nor joined.
            std::mem::forget(running);
            meanwhile();
            return Ok(());
        }
        let mut threads = Vec::new();
        for Running { worker, thread, stop } in running {
            drop(stop);
            threads.push((worker, thread));
        }
        meanwhile();
        let mut first = Ok(());
        for (worker, thread) in threads {
            let ended = thread.join().unwrap_or_else(|payload| {
                let reason = panic_message(payload.as_ref()).to_owned();
                Err(Error::WorkerFailed { worker, reason })
            });
            first = first.and(ended);
        }
        first
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Reported already, on standard error.
        drop(self.end(|| ()));
    }
}

/// Body of a worker thread.
fn run(
    worker: usize,
    plan: &Plan,
    report: &mpsc::Sender<Result<Hello, Error>>,
    stopped: RemoteJoinHandle<()>,
) -> Result<(), Error> {
    let opened = open(worker, plan);
    let local = match opened {
        Ok(local) => local,
        Err(error) => {
            // The builder returns it.
            drop(report.send(Err(error)));
            return Ok(());
        }
    };
    let (team, teams) = mpsc::channel();
    let hello = Hello { worker, hub: Arc::clone(local.hub()), team };
    drop(report.send(Ok(hello)));
    let Ok(team) = teams.recv() else {
        return Ok(());
    };
    local.join_team(team, worker);
    let ended = catch_unwind(AssertUnwindSafe(|| turn::run(&local, stopped)));
    let closed = catch_unwind(AssertUnwindSafe(|| turn::shut_down(&local)));
    let reason = match (ended, closed) {
        (Ok(Ok(Ok(()) | Err(JoinError::Cancelled))), Ok(())) => return Ok(()),
        (Ok(Err(error)), _) => error.to_string(),
        (Ok(Ok(Err(error @ JoinError::Refused(_)))), _) => error.to_string(),
        (Err(payload) | Ok(Ok(Err(JoinError::Panicked(payload)))), _) | (_, Err(payload)) => {
            panic_message(payload.as_ref()).to_owned()
        }
    };
    let error = Error::WorkerFailed { worker, reason };
    eprintln!("ringloop: {error}");
    Err(error)
}

fn open(worker: usize, plan: &Plan) -> Result<Local, Error> {
    if plan.pinned {
        pin(worker)?;
    }
    let local = Local::new(plan.options)?;
    local.engine().bind()?;
    Ok(local)
}

/// Pins the calling thread to one of the CPUs that it may use.
fn pin(worker: usize) -> Result<(), Error> {
    let allowed = sys_thread::allowed_processors()?;
    if let Some(processor) = allowed.get(worker % allowed.len().max(1)) {
        sys_thread::pin_to(*processor)?;
    }
    Ok(())
}
