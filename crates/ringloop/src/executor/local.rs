//! An engine with its tasks: what a thread's loop is made of.
//!
//! Owns: the engine, the futures, the ready queue.
//! Called by: [`super::Runtime`], and embedders that run the turn themselves.
//! Never does: block, or hold a borrow while a future is polled.

use super::inbox::Inbox;
use super::join::{Join, JoinError, JoinHandle};
use super::task::{Header, State, TaskId};
use super::{Engine, Options, TimerKey};
use crate::driver::{Key, Lease};
use crate::error::Error;
use crate::limits;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

thread_local! {
    static CURRENT: RefCell<Option<Local>> = const { RefCell::new(None) };
}

/// A task's future, which settles its own `Join` when it is over.
type Body = Pin<Box<dyn Future<Output = ()>>>;

/// An engine and its tasks; a cheap handle, for one thread.
#[derive(Clone)]
pub struct Local {
    shared: Rc<Shared>,
}

struct Shared {
    engine: RefCell<Engine>,
    tasks: RefCell<HashMap<TaskId, Body>>,
    ready: RefCell<VecDeque<Arc<Header>>>,
    arrivals: RefCell<VecDeque<Arc<Header>>>,
    inbox: Arc<Inbox<Arc<Header>>>,
    /// Operations whose future was dropped while the engine was borrowed (by a waker's own drop).
    dropped: RefCell<Vec<Key>>,
    /// Pool buffers that were dropped meanwhile.
    returned: RefCell<Vec<Lease>>,
    /// Descriptors that were given up meanwhile.
    closing: RefCell<Vec<OwnedFd>>,
    next_id: Cell<u64>,
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local")
            .field("tasks", &self.shared.tasks.borrow().len())
            .finish()
    }
}

/// Makes a [`Local`] the thread's current one until it is dropped.
#[derive(Debug)]
pub struct Entered {
    previous: Option<Local>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let previous = self.previous.take();
        CURRENT.with(|current| current.replace(previous));
    }
}

impl Local {
    /// Set up an engine without tasks.
    pub fn new(options: Options) -> Result<Self, Error> {
        let engine = Engine::new(options)?;
        let inbox = Arc::new(Inbox::new(engine.unpark(), limits::INBOX_MESSAGES));
        let shared = Shared {
            engine: RefCell::new(engine),
            tasks: RefCell::new(HashMap::new()),
            ready: RefCell::new(VecDeque::new()),
            arrivals: RefCell::new(VecDeque::new()),
            inbox,
            dropped: RefCell::new(Vec::new()),
            returned: RefCell::new(Vec::new()),
            closing: RefCell::new(Vec::new()),
            next_id: Cell::new(0),
        };
        Ok(Self {
            shared: Rc::new(shared),
        })
    }

    /// The one that the calling code runs in.
    ///
    /// # Panics
    /// Outside of a runtime, where there is nothing to run an operation on.
    pub fn current() -> Self {
        CURRENT.with(|current| current.borrow().clone()).expect(
            "no ringloop runtime on this thread: call this inside Runtime::block_on or a task",
        )
    }

    /// Make this the thread's current one while the guard lives.
    pub fn enter(&self) -> Entered {
        let previous = CURRENT.with(|current| current.replace(Some(self.clone())));
        Entered { previous }
    }

    /// The engine, for the moment: the borrow must end before anything is called that may come back.
    pub fn engine(&self) -> RefMut<'_, Engine> {
        self.shared.engine.borrow_mut()
    }

    /// Cancel an operation whose future was dropped.
    pub(crate) fn forget(&self, key: Key) {
        match self.shared.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().forget(key),
            Err(_) => self.shared.dropped.borrow_mut().push(key),
        }
    }

    /// Forget a timer whose future was dropped. One that cannot be reached now is left to fire: its
    /// waker does no harm.
    pub(crate) fn remove_timer(&self, key: TimerKey) {
        if let Ok(mut engine) = self.shared.engine.try_borrow_mut() {
            engine.timers_mut().remove(key);
        }
    }

    /// The loop, for a descriptor that is used with its driver and may outlive it.
    pub(crate) fn home(&self) -> Home {
        Home(Rc::downgrade(&self.shared))
    }

    /// Start a task on this loop.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let id = TaskId(self.shared.next_id.replace(self.shared.next_id.get() + 1));
        let join = Join::new();
        let header = Arc::new(Header {
            id,
            state: State::queued(),
            inbox: Arc::clone(&self.shared.inbox),
        });
        let body = Box::pin(run_to_join(future, Rc::clone(&join)));
        self.shared.tasks.borrow_mut().insert(id, body);
        self.shared
            .ready
            .borrow_mut()
            .push_back(Arc::clone(&header));
        JoinHandle { join, header }
    }

    /// Poll the tasks that were ready when the call began, up to a bound. Returns whether more wait.
    pub fn run_tasks(&self) -> bool {
        self.take_arrivals();
        for key in self.shared.dropped.take() {
            self.engine().driver_mut().forget(key);
        }
        for lease in self.shared.returned.take() {
            self.engine().driver_mut().give_back(lease);
        }
        for fd in self.shared.closing.take() {
            self.engine().driver_mut().release(fd.as_raw_fd());
        }
        let count = self.shared.ready.borrow().len().min(limits::TASKS_PER_TURN);
        for _ in 0..count {
            let Some(header) = self.shared.ready.borrow_mut().pop_front() else {
                break;
            };
            self.run(&header);
        }
        !self.shared.ready.borrow().is_empty()
    }

    /// Enqueue a task on its own loop, if that is the one running on this thread.
    pub(super) fn enqueue_here(header: Arc<Header>) -> Result<(), Arc<Header>> {
        let mut header = Some(header);
        // A thread that is being torn down has no current loop.
        let _ = CURRENT.try_with(|current| {
            // The slot is borrowed only while it is being swapped, where no waker runs.
            let Ok(current) = current.try_borrow() else {
                return;
            };
            let Some(local) = current.as_ref() else {
                return;
            };
            let own = header
                .as_ref()
                .is_some_and(|h| Arc::ptr_eq(&h.inbox, &local.shared.inbox));
            if own && let Some(header) = header.take() {
                local.shared.ready.borrow_mut().push_back(header);
            }
        });
        header.map_or(Ok(()), Err)
    }

    fn take_arrivals(&self) {
        let mut arrivals = self.shared.arrivals.borrow_mut();
        self.shared.inbox.take(&mut arrivals);
        self.shared.ready.borrow_mut().extend(arrivals.drain(..));
    }

    fn run(&self, header: &Arc<Header>) {
        if !header.state.begin_run() {
            return;
        }
        let Some(mut body) = self.shared.tasks.borrow_mut().remove(&header.id) else {
            return;
        };
        let waker = Waker::from(Arc::clone(header));
        match body.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => header.state.finish(),
            Poll::Pending => {
                self.shared.tasks.borrow_mut().insert(header.id, body);
                if header.state.end_run() {
                    self.shared.ready.borrow_mut().push_back(Arc::clone(header));
                }
            }
        }
    }

    /// Drop every task: their operations are cancelled, and their handles told.
    pub(super) fn shut_down(&self) {
        loop {
            let Some(id) = self.shared.tasks.borrow().keys().next().copied() else {
                break;
            };
            let body = self.shared.tasks.borrow_mut().remove(&id);
            drop(body);
        }
        self.shared.ready.borrow_mut().clear();
        drop(self.shared.inbox.close());
    }
}

/// The loop whose driver knows a descriptor: it is told before the descriptor is closed, wherever
/// that happens.
#[derive(Clone)]
pub(crate) struct Home(Weak<Shared>);

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home").finish_non_exhaustive()
    }
}

impl Home {
    /// Whether it is this loop.
    pub(crate) fn is(&self, local: &Local) -> bool {
        std::ptr::eq(self.0.as_ptr(), Rc::as_ptr(&local.shared))
    }

    /// Have the driver forget a descriptor that is its owner's to keep.
    pub(crate) fn release(&self, fd: RawFd) {
        if let Some(shared) = self.0.upgrade()
            && let Ok(mut engine) = shared.engine.try_borrow_mut()
        {
            engine.driver_mut().release(fd);
        }
    }

    /// Give a pool buffer back to the driver it is of; a driver that is gone needs none.
    pub(crate) fn give_back(&self, lease: Lease) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        match shared.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().give_back(lease),
            // By a waker's own drop; the next turn does it.
            Err(_) => shared.returned.borrow_mut().push(lease),
        }
    }

    /// Close a descriptor whose operations are over or given up.
    pub(crate) fn close(&self, fd: OwnedFd) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        match shared.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().release(fd.as_raw_fd()),
            // By a waker's own drop; the next turn closes it.
            Err(_) => shared.closing.borrow_mut().push(fd),
        }
    }
}

/// Settles the join as aborted when the future is dropped before it is over.
struct Settle<T> {
    join: Rc<RefCell<Join<T>>>,
    settled: bool,
}

impl<T> Drop for Settle<T> {
    fn drop(&mut self) {
        if !self.settled {
            Join::settle(&self.join, Err(JoinError::Aborted));
        }
    }
}

/// Drive a future to its result, its panic or its abort, whichever comes first.
async fn run_to_join<T>(future: impl Future<Output = T>, join: Rc<RefCell<Join<T>>>) {
    let mut settle = Settle {
        join,
        settled: false,
    };
    let mut future = Box::pin(future);
    let result = std::future::poll_fn(|cx| {
        if settle.join.borrow().abort {
            return Poll::Ready(Err(JoinError::Aborted));
        }
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(payload) => Poll::Ready(Err(JoinError::Panicked(payload))),
        }
    })
    .await;
    // The future goes first: its operations are cancelled before anybody hears of the result.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(future)));
    let result = match dropped {
        Ok(()) => result,
        Err(payload) => Err(JoinError::Panicked(payload)),
    };
    settle.settled = true;
    Join::settle(&settle.join, result);
}
