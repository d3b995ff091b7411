//! Scopes: coroutines that borrow.
//!
//! Owns: [`Scope`] and the list of its coroutines. Called by: applications. However a scope is left
//! (at its end, by a panic, a cancel, the end of the runtime), it first waits for its coroutines.
//!
//! ```text
//!   scope ── spawn ──▶ id in `live` ──▶ closure runs, or is dropped ──▶ result in its packet ──▶
//!     │                                              `CompletionGuard` drops: id leaves `live`
//!     └── waits until `live` is empty; if cancelled, cancels those in `live`, and waits on
//! ```
//!
//! # Invariants
//! 1. A closure of a scope, with all that it holds, is dropped before its [`CompletionGuard`]; its
//!    result is dropped by then, or is owned by its handle, which the scope outlives. [`scope`]
//!    returns or unwinds only after every guard was dropped. If the scope's stack is abandoned at
//!    the end of the runtime, it never returns. What was borrowed may be thread-local, and ends
//!    with the thread: so the stack is abandoned only if the scope's coroutines never run again (on
//!    the single worker of a runtime); else the process is aborted.

use crate::atomics::locked;
use crate::error::{Cancelled, JoinError, join_error};
use crate::join::JoinHandle;
use crate::runtime::Spawn;
use crate::scheduler::Uninterruptible;
use crate::task::{self, Runnable};
use crate::unwind::UnwindCheck;
use crate::wait::{self, block_on};
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Runs `work` with a scope whose coroutines may borrow what is outside of it, and waits for them.
///
/// ```
/// let words = vec!["one", "two", "three"];
/// let mut longest = 0;
/// let count = ringloop_coro::start(1, move || {
///     ringloop_coro::scope(|scope| {
///         scope.spawn(|| longest = words.iter().map(|word| word.len()).max().unwrap_or(0));
///         let count = scope.spawn(|| words.len());
///         count.join().unwrap()
///     }) + longest
/// })?;
/// assert_eq!(count, 3 + 5);
/// # Ok::<(), ringloop::Error>(())
/// ```
/// Values of the scope's closure end too early to be borrowed:
/// ```compile_fail,E0597
/// ringloop_coro::start(1, || {
///     ringloop_coro::scope(|scope| {
///         let inner = String::new();
///         scope.spawn(|| inner.len());
///     });
/// });
/// ```
///
/// # Panics
/// Outside of a coroutine; with the panic of `work`; if a coroutine of the scope panicked whose
/// handle was not joined.
///
/// # Cancel safety
/// A cancelled coroutine cancels those of its scope, and waits for their end before it unwinds.
#[track_caller]
pub fn scope<'env, F, T>(work: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    assert!(
        wait::is_coroutine(),
        "a scope was opened outside of a coroutine: it has to park until its coroutines are over"
    );
    let scope = Scope { data: Arc::default(), own: PhantomData, env: PhantomData };
    let data = &scope.data;
    let check = wait::check_unwinding();
    let worked = catch_unwind(AssertUnwindSafe(|| work(&scope)));
    let waited = catch_unwind(AssertUnwindSafe(|| block_on(data.all_ended())));
    if waited.is_err() {
        data.cancel();
    }
    // Invariant 1.
    wait::block_on_uninterruptible(Uninterruptible::Scope, data.all_ended());
    match worked {
        Err(payload) if !payload.is::<Cancelled>() => resume_unwind(payload),
        Ok(value) if waited.is_ok() => {
            assert!(
                !data.has_panicked.load(Ordering::Relaxed),
                "a coroutine of the scope panicked"
            );
            value
        }
        // A wait unwinds only if it is certain.
        _ => wait::unwind(if waited.is_err() { UnwindCheck::CERTAIN } else { check }),
    }
}

/// Starts coroutines that borrow; see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<ScopeData>,
    /// Invariant lifetimes, as in `std::thread::Scope`.
    own: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("live", &self.data.lock().live.len()).finish_non_exhaustive()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a coroutine on any worker; it may borrow what outlives the scope.
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, closure: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Spawn::new().spawn_scoped(self, closure)
    }

    /// Starts a coroutine on the calling thread, where it stays: neither its closure nor its result
    /// need be `Send`.
    #[track_caller]
    pub fn spawn_local<F, T>(&'scope self, closure: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + 'scope,
        T: 'scope,
    {
        let (scoped, packet) = ScopedTask::new(&self.data, closure);
        // SAFETY: invariant 1: it is dropped before the scope is left.
        let erased = unsafe { erase(Box::new(|| scoped.run())) };
        packet.into_handle(Spawn::new().spawn_local(erased))
    }
}

impl Spawn {
    /// See [`Scope::spawn`].
    #[track_caller]
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        closure: F,
    ) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let (scoped, packet) = ScopedTask::new(&scope.data, closure);
        // SAFETY: invariant 1: it is dropped before the scope is left.
        let erased = unsafe { erase_send(Box::new(|| scoped.run())) };
        packet.into_handle(self.spawn(erased))
    }
}

/// # Safety
/// Invariant 1.
unsafe fn erase<'scope>(closure: Box<dyn FnOnce() + 'scope>) -> Box<dyn FnOnce()> {
    // SAFETY: the caller's; the types differ in their lifetime only.
    unsafe { mem::transmute::<Box<dyn FnOnce() + 'scope>, Box<dyn FnOnce()>>(closure) }
}

/// # Safety
/// Invariant 1.
unsafe fn erase_send<'scope>(
    closure: Box<dyn FnOnce() + Send + 'scope>,
) -> Box<dyn FnOnce() + Send> {
    // SAFETY: the caller's; the types differ in their lifetime only.
    unsafe {
        mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Box<dyn FnOnce() + Send>>(closure)
    }
}

/// What a scope and its coroutines share.
#[derive(Default)]
struct ScopeData {
    state: Mutex<ScopeState>,
    /// A coroutine panicked, and its result was not taken.
    has_panicked: AtomicBool,
}

#[derive(Default)]
struct ScopeState {
    next_id: u64,
    /// Coroutines that have not ended, each with its task once it is started.
    live: HashMap<u64, Option<Arc<dyn Runnable>>>,
    is_cancelled: bool,
    /// The scope's coroutine, if it waits.
    waiter: Option<Waker>,
}

impl ScopeData {
    fn lock(&self) -> MutexGuard<'_, ScopeState> {
        locked(&self.state)
    }

    /// Ready when every coroutine of the scope has ended.
    fn all_ended(&self) -> impl Future<Output = ()> + '_ {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.live.is_empty() {
                return Poll::Ready(());
            }
            match &mut state.waiter {
                Some(known) => known.clone_from(cx.waker()),
                unknown => *unknown = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
    }

    /// Cancels every coroutine of the scope, also later ones.
    fn cancel(&self) {
        let mut state = self.lock();
        state.is_cancelled = true;
        let tasks = state.live.values_mut().filter_map(Option::take);
        let tasks: Vec<_> = tasks.collect();
        drop(state);
        tasks.iter().for_each(task::cancel);
    }
}

/// Dropped when nothing of a coroutine is left (invariant 1).
struct CompletionGuard {
    data: Arc<ScopeData>,
    id: u64,
}

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        let mut state = self.data.lock();
        let task = state.live.remove(&self.id);
        let is_last = state.live.is_empty();
        let waiter = state.waiter.take_if(|_| is_last);
        drop(state);
        drop(task);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// A closure of a scope. Its fields are dropped in this order (invariant 1).
struct ScopedTask<F, T> {
    closure: F,
    packet: Arc<Packet<T>>,
    done: CompletionGuard,
}

impl<T, F: FnOnce() -> T> ScopedTask<F, T> {
    fn new(data: &Arc<ScopeData>, closure: F) -> (Self, Arc<Packet<T>>) {
        let mut state = data.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.live.insert(id, None);
        drop(state);
        let packet = Arc::new(Packet { result: Mutex::new(None), data: Arc::clone(data), id });
        let scoped = Self {
            closure,
            packet: Arc::clone(&packet),
            done: CompletionGuard { data: Arc::clone(data), id },
        };
        (scoped, packet)
    }

    fn run(self) {
        let Self { closure, packet, done } = self;
        // Dropped last, even if another drop panics.
        let _done = done;
        let result = catch_unwind(AssertUnwindSafe(closure)).map_err(join_error);
        *locked(&packet.result) = Some(result);
        drop(packet);
    }
}

/// The result of a coroutine of a scope.
struct Packet<T> {
    result: Mutex<Option<Result<T, JoinError>>>,
    data: Arc<ScopeData>,
    id: u64,
}

impl<T> Packet<T> {
    /// The coroutine is started; it is cancelled if its scope was.
    fn into_handle<'scope>(self: Arc<Self>, handle: JoinHandle<()>) -> ScopedJoinHandle<'scope, T> {
        let mut state = self.data.lock();
        let is_cancelled = state.is_cancelled;
        if let Some(task) = state.live.get_mut(&self.id)
            && !is_cancelled
        {
            *task = Some(handle.task());
        }
        drop(state);
        if is_cancelled {
            handle.cancel();
        }
        ScopedJoinHandle { handle, packet: self, scope: PhantomData }
    }
}

impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        let result = self.result.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(JoinError::Panicked(_))) = result.take() {
            self.data.has_panicked.store(true, Ordering::Relaxed);
        }
    }
}

/// Waits for the result of a scope's coroutine; if dropped, the scope waits.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<()>,
    packet: Arc<Packet<T>>,
    scope: PhantomData<&'scope ()>,
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the end; the scope does not panic for a panic that is returned here.
    ///
    /// # Errors
    /// As [`JoinHandle::join`].
    pub fn join(self) -> Result<T, JoinError> {
        let ended = self.handle.join();
        let result = locked(&self.packet.result).take();
        match result {
            Some(result) => result,
            None => Err(ended.err().unwrap_or(JoinError::Cancelled)),
        }
    }

    /// Whether the coroutine has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Has the coroutine unwind; see [`JoinHandle::cancel`].
    pub fn cancel(&self) {
        self.handle.cancel();
    }
}
