//! Tasks of which each result is taken as it comes.
//!
//! Owns: [`JoinSet`]: the handles of its tasks, and the list of the ended ones. Called by: applications.
//!
//! A task's future has a guard; its drop, which comes just before the end of the task, puts the task on
//! the list and wakes the set's owner. So a set of a thousand tasks polls only the handles of those
//! that have ended.

use crate::executor::{JoinError, JoinHandle, Local, listed};
use crate::slab::{Key, Slab};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{Location, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Tasks of this thread that end together: dropping the set aborts them.
///
/// ```
/// use ringloop::task::JoinSet;
///
/// # ringloop::Runtime::new()?.block_on(async {
/// let mut tasks = JoinSet::new();
/// for number in 1..=3 {
///     tasks.spawn(async move { number * number });
/// }
/// let mut sum = 0;
/// while let Some(square) = tasks.join_next().await {
///     sum += square.unwrap();
/// }
/// assert_eq!(sum, 14);
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub struct JoinSet<T> {
    handles: Slab<JoinHandle<T>>,
    ended: Rc<RefCell<Ended>>,
}

/// What the guards of a set's tasks share with it.
#[derive(Default)]
struct Ended {
    /// Tasks that end now or have ended, in that order.
    keys: VecDeque<Key>,
    owner: Option<Waker>,
}

/// In a task of a set until its end.
struct EndGuard {
    ended: Rc<RefCell<Ended>>,
    key: Key,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        let mut ended = self.ended.borrow_mut();
        ended.keys.push_back(self.key);
        let owner = ended.owner.take();
        drop(ended);
        if let Some(owner) = owner {
            owner.wake();
        }
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self { handles: Slab::default(), ended: Rc::default() }
    }
}

impl<T> JoinSet<T> {
    /// A set without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of tasks whose results were not taken.
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Ends every task at its loop's next turn; their results are [`JoinError::Cancelled`].
    pub fn abort_all(&self) {
        self.handles.iter().for_each(JoinHandle::abort);
    }

    /// Lets the tasks go on by themselves.
    pub fn detach_all(&mut self) {
        self.ended = Rc::default();
        drop(self.handles.take());
    }
}

impl<T: 'static> JoinSet<T> {
    /// Starts a task on the current loop.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn(&mut self, future: impl Future<Output = T> + 'static) {
        // Panics before the set has changed.
        let local = Local::current();
        let future = listed(future, Location::caller());
        let ended = Rc::clone(&self.ended);
        self.handles.insert_with(|key| {
            let guard = EndGuard { ended, key };
            local.spawn_unlisted(async move {
                let _guard = guard;
                future.await
            })
        });
    }

    /// Waits for the next task that ends; `None` if the set is empty.
    ///
    /// # Errors
    /// That of the task: it panicked, or was aborted.
    ///
    /// # Cancel safety
    /// Cancel safe: no result is lost.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// [`JoinSet::join_next`] as a poll function.
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.is_empty() {
            return Poll::Ready(None);
        }
        // Each at most once: a handle that is not ready yet wakes by itself.
        let ending = self.ended.borrow().keys.len();
        for _ in 0..ending {
            let Some(key) = self.ended.borrow_mut().keys.pop_front() else {
                break;
            };
            let Some(handle) = self.handles.get_mut(key) else {
                continue;
            };
            if let Poll::Ready(result) = Pin::new(handle).poll(cx) {
                self.handles.remove(key);
                return Poll::Ready(Some(result));
            }
            self.ended.borrow_mut().keys.push_back(key);
        }
        self.ended.borrow_mut().owner = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The result of a task that has ended, if any; `None` also if the set is empty.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        match self.poll_join_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => None,
        }
    }

    /// Waits for all tasks; returns their results in the order in which they ended.
    ///
    /// # Panics
    /// With the panic of a task, or if one was aborted.
    ///
    /// # Cancel safety
    /// Not cancel safe: results are lost, and the other tasks are aborted.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut results = Vec::with_capacity(self.len());
        while let Some(result) = self.join_next().await {
            match result {
                Ok(result) => results.push(result),
                Err(JoinError::Panicked(payload)) => resume_unwind(payload),
                Err(error) => panic!("a task of the set has no result: {error}"),
            }
        }
        results
    }

    /// Aborts all tasks and waits for their ends: what they owned is dropped then.
    ///
    /// # Cancel safety
    /// Cancel safe: the tasks are aborted all the same.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}
