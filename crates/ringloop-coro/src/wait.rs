//! How a coroutine waits: it polls a future on its own stack, and leaves the stack while that is
//! pending.
//!
//! Owns: [`block_on`], its variants, and where a cancelled coroutine unwinds. Called by: everything
//! that looks blocking. A wait allocates nothing.
//!
//! A cancelled coroutine unwinds in its wait. In a destructor that runs while it unwinds, a second
//! unwinding would abort the process: there [`try_block_on`] returns [`WaitError::Cancelled`], and
//! [`block_on`], which has nothing to return, really waits. `unwind` says how the coroutine knows;
//! while it cannot know, it waits until no coroutine of the thread unwinds.

use crate::error::{Cancelled, WaitError};
use crate::parked_op::ParkedOp;
use crate::scheduler::{self, Uninterruptible};
use crate::switch::{Suspend, suspend, with_current, with_parkable};
use crate::unwind::{self, UnwindCheck};
use ringloop::embed::op::Kind;
use ringloop::embed::{Local, Op};
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// Whether the calling code runs in a coroutine and can park: not in a loop that runs inside of
/// one.
#[inline(always)]
pub fn is_coroutine() -> bool {
    with_parkable(|frame| frame.is_some())
}

/// Parks the coroutine until `future` is ready.
///
/// It allocates nothing. A future that is ready at once costs its poll.
///
/// ```
/// let answer = ringloop_coro::start(1, || {
///     let call = ringloop_coro::block_on(ringloop::spawn_blocking(|| 6 * 7));
///     call.unwrap()
/// })?;
/// assert_eq!(answer, 42);
/// # Ok::<(), ringloop::Error>(())
/// ```
///
/// # Panics
/// Outside of a coroutine.
///
/// # Cancel safety
/// A cancelled coroutine unwinds here, which drops the future. In a destructor that runs while it
/// unwinds, it really waits.
#[inline(always)]
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    match wait(future, false) {
        Ok(output) => output,
        Err(error) => panic!("{error}"),
    }
}

/// Like [`block_on`], with an error where it cannot wait.
///
/// # Errors
/// [`WaitError::NoCoroutine`] outside of a coroutine; [`WaitError::Cancelled`] if the coroutine
/// unwinds and the future is not ready at once.
pub fn try_block_on<F: Future>(future: F) -> Result<F::Output, WaitError> {
    wait(future, true)
}

// `switch` says why this and what it calls is inlined.
#[inline(always)]
fn wait<F: Future>(future: F, is_fallible: bool) -> Result<F::Output, WaitError> {
    if !is_coroutine() {
        return Err(WaitError::NoCoroutine);
    }
    let mut future = pin!(future);
    let mut check = None;
    loop {
        if let Poll::Ready(output) = poll_current(future.as_mut()) {
            return Ok(output);
        }
        let check = *check.get_or_insert_with(check_unwinding);
        if unwind_if_cancelled(check) {
            if is_fallible {
                return Err(WaitError::Cancelled);
            }
            with_current(|frame| frame.map(|frame| scheduler::defer(frame.header())));
        }
        suspend(Suspend::Park);
    }
}

#[inline(always)]
fn poll_current<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    with_current(|frame| match frame {
        Some(frame) => future.poll(&mut Context::from_waker(&frame.waker)),
        None => Poll::Pending,
    })
}

/// Parks until `future` is ready, even if the coroutine is cancelled.
pub(crate) fn block_on_uninterruptible<F: Future>(why: Uninterruptible, future: F) -> F::Output {
    let mut future = pin!(future);
    let _guard = scheduler::uninterruptible(why);
    loop {
        if let Poll::Ready(output) = poll_current(future.as_mut()) {
            return output;
        }
        suspend(Suspend::Park);
    }
}

/// Parks until the operation is over, which the scheduler polls on the loop's stack.
///
/// Never unwinds. Returns the operation if the coroutine is cancelled (it is in flight, or not
/// submitted if that was so before), and outside of a coroutine.
#[inline(always)]
pub(crate) fn park_on_op<K: Kind>(op: Op<K>) -> Result<K::Output, Op<K>> {
    let waker = with_parkable(|frame| {
        let frame = frame.filter(|frame| !frame.header().is_cancelled())?;
        Some(NonNull::from(&frame.waker))
    });
    let Some(waker) = waker else {
        return Err(op);
    };
    let mut parked = ParkedOp::new(op, waker);
    suspend(Suspend::Op(parked.as_ref()));
    parked.into_output()
}

/// Waits for `future` on any thread: a coroutine parks, a thread blocks.
///
/// # Panics
/// On a loop's thread outside of a coroutine; `instead` says what to await there.
#[track_caller]
pub(crate) fn block_on_anywhere<F: Future>(future: F, instead: &str) -> F::Output {
    if is_coroutine() {
        return block_on(future);
    }
    assert!(
        Local::current_id().is_none(),
        "this would block the loop of this thread: in async code, await {instead}"
    );
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Takes note of whether something on the thread unwinds, at the beginning of a wait.
#[inline(always)]
pub(crate) fn check_unwinding() -> UnwindCheck {
    if thread::panicking() {
        return doubtful();
    }
    UnwindCheck::CERTAIN
}

#[cold]
fn doubtful() -> UnwindCheck {
    scheduler::watch_unwinding();
    UnwindCheck::doubtful()
}

/// Unwinds as a cancelled coroutine does; `check` was made in the same function.
pub(crate) fn unwind(check: UnwindCheck) -> ! {
    loop {
        unwind_if_certain(check);
        with_current(|frame| frame.map(|frame| scheduler::defer(frame.header())));
        suspend(Suspend::Park);
    }
}

/// Unwinds a cancelled coroutine that is known not to unwind already; `check` was made before its
/// wait. Returns whether it is cancelled.
#[inline(always)]
pub(crate) fn unwind_if_cancelled(check: UnwindCheck) -> bool {
    if !with_current(|frame| frame.is_some_and(|frame| frame.header().is_cancelled())) {
        return false;
    }
    unwind_if_certain(check);
    true
}

#[cold]
fn unwind_if_certain(check: UnwindCheck) {
    if !check.is_certain() {
        return;
    }
    // The scheduler sees no such moment of a coroutine that has caught its last unwinding and not
    // suspended since.
    if !thread::panicking() {
        unwind::note_no_unwinding();
    }
    resume_unwind(Box::new(Cancelled));
}

/// Gives every other ready coroutine of this thread a turn. The driver has one at least every 16 calls
/// of a coroutine: timers fire, and sockets are served. Outside of a coroutine it yields the thread.
///
/// # Cancel safety
/// A cancelled coroutine unwinds here.
// `switch` says why it is inlined.
#[inline(always)]
pub fn yield_now() {
    if !is_coroutine() {
        return thread::yield_now();
    }
    let check = check_unwinding();
    unwind_if_cancelled(check);
    suspend(Suspend::Yield);
    // The next wait could not know any more.
    if thread::panicking() {
        unwind_if_cancelled(check);
    }
}

/// Parks the coroutine for at least `delay`.
///
/// # Panics
/// Outside of a coroutine.
pub fn sleep(delay: Duration) {
    block_on(ringloop::time::sleep(delay));
}
