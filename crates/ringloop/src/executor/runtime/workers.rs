//! Several threads with a loop each, and how a task gets from one to another.
//!
//! Owns: the threads of a runtime, and the table of its loops' inboxes.
//! Called by: `runtime`. Never does: move a task that has started: it stays where it was made, so it
//! need not be `Send`.
//!
//! Worker 0 is the thread that calls `block_on`; the others run from `build` until the runtime is dropped.
//!
//! The end, in this order: each worker is told, drops its tasks (their operations are cancelled, their
//! handles told), refuses what comes later, and gives its ring up, all on its own thread; the threads are
//! joined; worker 0's tasks go last, on the thread that drops the runtime.

use super::engine::Options;
use super::local::Local;
use super::team::Team;
use super::turn;
use crate::error::Error;
use crate::executor::task::core::{self, Hub};
use crate::executor::task::error::{JoinError, panic_message};
use crate::executor::task::remote::{self, RemoteJoinHandle, Settle};
use crate::sys::fork::Generation;
use crate::sys::thread as sys_thread;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

/// The workers of a runtime: start tasks on any of them, from any thread.
///
/// Tasks that were sent to a worker run while it does; worker 0 runs while [`crate::Runtime::block_on`]
/// does.
#[derive(Debug, Clone)]
pub struct Workers {
    team: Arc<Team>,
}

impl Workers {
    pub(crate) fn of(team: Arc<Team>) -> Self {
        Self { team }
    }

    /// The workers of the runtime that the calling code runs in.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[track_caller]
    pub fn current() -> Self {
        Self::of(Local::current().seat().team)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.team.hubs.len()
    }

    /// Start a task on one worker: `make` runs there, and what it returns need not be `Send`.
    ///
    /// Shape: the closure and the result cross threads, the future does not. The handle may be awaited
    /// anywhere.
    /// Errors: [`Error::NoSuchWorker`]; [`Error::InboxFull`], when the worker is stuck or the sender never
    /// waits; [`Error::Closed`] once the worker has ended.
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
    /// What only one thread may hold does not get into the closure:
    /// ```compile_fail,E0277
    /// # let runtime = ringloop::Runtime::new().unwrap();
    /// let local = std::rc::Rc::new(1);
    /// runtime.workers().spawn_on(0, move || async move { *local });
    /// ```
    /// Nor does it come back as the result:
    /// ```compile_fail,E0277
    /// # let runtime = ringloop::Runtime::new().unwrap();
    /// runtime.workers().spawn_on(0, || async { std::rc::Rc::new(1) });
    /// ```
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
        hub.send_start(Box::new(move |hub: &Arc<Hub>| {
            // Made inside of the task, so that a panic of `make` is the task's.
            let task = remote::drive(async move { make().await }, settle);
            drop(core::start(hub, task));
        }))?;
        Ok(handle)
    }

    /// Start the same on every worker; `make` is given the worker's number. The handles come in its order.
    ///
    /// Errors: as [`Workers::spawn_on`]; what has started by then runs on.
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

/// Start a task on a worker of the runtime that the calling code runs in; see [`Workers::spawn_on`].
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn spawn_on<F, Fut>(worker: usize, make: F) -> Result<RemoteJoinHandle<Fut::Output>, Error>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    Workers::current().spawn_on(worker, make)
}

/// The number of the worker that the calling code runs on; 0 in a runtime of one thread.
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn worker() -> usize {
    Local::current().seat().worker
}

/// What the threads of a runtime are started with.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub options: Options,
    pub workers: usize,
    pub thread_name: String,
    pub pinned: bool,
}

/// The threads beside the caller's.
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

/// What a new thread says of itself.
struct Hello {
    worker: usize,
    hub: Arc<Hub>,
    /// Where it waits for the table of all.
    team: mpsc::Sender<Arc<Team>>,
}

/// Start the threads of `plan`; `local` becomes worker 0.
pub(crate) fn start(plan: &Plan, local: &Local) -> Result<Threads, Error> {
    // Before the channel, so that a failure drops the channel first: a worker waits for the table of all, or for its
    // sender's end, and the sender may still be in the channel.
    let mut threads = Threads {
        running: Vec::new(),
        generation: Generation::current(),
    };
    let (report, reports) = mpsc::channel();
    for worker in 1..plan.workers {
        let (stop, stopped) = remote::pair();
        let (plan, report) = (plan.clone(), report.clone());
        let thread = thread::Builder::new()
            .name(format!("{}-{worker}", plan.thread_name))
            .spawn(move || run(worker, &plan, &report, stopped))?;
        threads.running.push(Running {
            worker,
            thread,
            stop,
        });
    }
    drop(report);
    let mut hellos = Vec::new();
    for _ in 1..plan.workers {
        match reports.recv() {
            Ok(Ok(hello)) => hellos.push(hello),
            // Those that have started end with `threads`.
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
    local.sit(team, 0);
    Ok(threads)
}

impl Threads {
    /// End all workers, do `meanwhile`, and wait for them; the first failure of one is returned, each is on standard
    /// error.
    pub fn end(&mut self, meanwhile: impl FnOnce()) -> Result<(), Error> {
        let running = std::mem::take(&mut self.running);
        if self.generation.is_inherited() {
            // They are the parent's: there is nobody to tell, and nobody to wait for.
            std::mem::forget(running);
            meanwhile();
            return Ok(());
        }
        let mut threads = Vec::new();
        for Running {
            worker,
            thread,
            stop,
        } in running
        {
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
        // Said already, on standard error.
        drop(self.end(|| ()));
    }
}

/// The life of a worker's thread.
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
    let hello = Hello {
        worker,
        hub: Arc::clone(local.hub()),
        team,
    };
    drop(report.send(Ok(hello)));
    let Ok(team) = teams.recv() else {
        return Ok(());
    };
    local.sit(team, worker);
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

/// Tie the calling thread to one of the processors that it may use.
fn pin(worker: usize) -> Result<(), Error> {
    let allowed = sys_thread::allowed_processors()?;
    if let Some(processor) = allowed.get(worker % allowed.len().max(1)) {
        sys_thread::pin_to(*processor)?;
    }
    Ok(())
}
