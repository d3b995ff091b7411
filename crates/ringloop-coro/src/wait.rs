//! How a coroutine waits: by polling a future and leaving its stack while it is pending.
//!
//! Called by: everything that looks blocking. Never does: allocate; the future lives on the coroutine's stack.
//!
//! A wait is where a cancelled coroutine unwinds. While it unwinds (or panics) a second unwinding would abort the
//! process, so a wait in a destructor does not unwind: [`try_block_on`] returns [`WaitError::Cancelled`] there, and
//! [`block_on`], which has nothing to return, really waits.
//!
//! Whether it unwinds a coroutine knows from `std::thread::panicking`, which speaks of the thread. While another one
//! waits in the midst of its unwinding the answer is yes for all of the thread. So it is asked before the stack is left
//! ([`UnwindCheck`]): where nothing on the thread unwound then, this stack does not when it comes back, whatever the others
//! have begun, and it may unwind beside them: std counts a thread's unwindings, and each `catch_unwind` ends one. The same
//! holds where nothing unwound at any moment while the stack was left, which the host looks for. Until then the coroutine
//! may itself be in a destructor; cancelled, it waits until no other unwinds (`scheduler::defer`).

use crate::scheduler;
use crate::switch::{self, Suspend, suspend, with_current, with_parkable};
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::resume_unwind;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The payload of the unwinding of a cancelled coroutine.
#[derive(Debug)]
pub(crate) struct Cancelled;

/// Why a coroutine did not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The calling code runs in no coroutine, or in a loop of its own inside of one.
    NoCoroutine,
    /// The coroutine was cancelled and unwinds.
    Cancelled,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCoroutine => {
                "a call that parks was made outside of a coroutine, or in a loop that runs inside of one: make it \
                 inside of ringloop_coro::start, spawn or spawn_local; in async code, await the future"
            }
            Self::Cancelled => "the coroutine was cancelled and unwinds",
        })
    }
}

impl std::error::Error for WaitError {}

impl From<WaitError> for io::Error {
    fn from(error: WaitError) -> Self {
        io::Error::other(error)
    }
}

/// Whether the calling code runs in a coroutine, and can park: not where a loop of its own runs inside of one.
#[inline(always)]
pub fn is_coroutine() -> bool {
    with_parkable(|frame| frame.is_some())
}

/// Park the coroutine until `future` is ready: what every wait is made of.
///
/// Cancellation: a cancelled coroutine unwinds here, which drops the future; in a destructor that runs while it
/// unwinds the wait is a real one.
/// Cost: no allocation. A future that is ready at once costs its poll.
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
#[inline(always)]
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    match wait(future, false) {
        Ok(output) => output,
        Err(error) => panic!("{error}"),
    }
}

/// Like [`block_on`], with an error where it cannot wait: outside of a coroutine, and where a cancelled coroutine
/// unwinds and the future is not ready at once.
pub fn try_block_on<F: Future>(future: F) -> Result<F::Output, WaitError> {
    wait(future, true)
}

// See `switch` for why it is inlined, as what calls it.
#[inline(always)]
fn wait<F: Future>(future: F, give_up: bool) -> Result<F::Output, WaitError> {
    if !is_coroutine() {
        return Err(WaitError::NoCoroutine);
    }
    let mut future = pin!(future);
    let mut calm = None;
    loop {
        let polled = with_current(|frame| match frame {
            Some(frame) => future.as_mut().poll(&mut Context::from_waker(&frame.waker)),
            None => Poll::Pending,
        });
        if let Poll::Ready(output) = polled {
            return Ok(output);
        }
        let calm = *calm.get_or_insert_with(UnwindCheck::now);
        if unwinds_instead(calm) {
            if give_up {
                return Err(WaitError::Cancelled);
            }
            with_current(|frame| frame.map(|frame| scheduler::defer(frame.head())));
        }
        suspend(Suspend::Park);
    }
}

/// Park until `future` is ready, also where the coroutine was cancelled: for what must not be left before.
pub(crate) fn wait_out<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let _outlasting = scheduler::outlast();
    loop {
        let polled = with_current(|frame| match frame {
            Some(frame) => future.as_mut().poll(&mut Context::from_waker(&frame.waker)),
            None => Poll::Pending,
        });
        if let Poll::Ready(output) = polled {
            return output;
        }
        suspend(Suspend::Park);
    }
}

thread_local! {
    /// How often it was noted that no stack of the thread unwinds; from one on.
    static CALM_SEEN: Cell<u64> = const { Cell::new(1) };
}

/// No stack of the thread unwinds: those that are left do not when they come back.
#[cold]
pub(crate) fn note_calm() {
    CALM_SEEN.set(CALM_SEEN.get() + 1);
}

/// What a function knows of whether its own coroutine unwinds: not at any later point of the same function, once it is
/// sure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnwindCheck {
    /// [`CALM_SEEN`] when somebody on the thread unwound, perhaps this coroutine; nought: nobody did.
    doubted: u64,
}

impl UnwindCheck {
    pub const SURE: Self = Self { doubted: 0 };

    #[inline(always)]
    pub fn now() -> Self {
        if std::thread::panicking() {
            return Self::doubt();
        }
        Self::SURE
    }

    #[cold]
    fn doubt() -> Self {
        scheduler::ask_for_calm();
        Self {
            doubted: CALM_SEEN.get(),
        }
    }

    fn is_sure(self) -> bool {
        self.doubted == 0 || self.doubted != CALM_SEEN.get() || !std::thread::panicking()
    }
}

/// Unwind, as one that was cancelled does; `calm` as it was in the same function.
pub(crate) fn unwind(calm: UnwindCheck) -> ! {
    loop {
        unwind_if_sure(calm);
        with_current(|frame| frame.map(|frame| scheduler::defer(frame.head())));
        suspend(Suspend::Park);
    }
}

/// A coroutine that was cancelled unwinds here, unless it does so already; `calm` as it was before its wait.
pub(crate) fn leave_if_cancelled(calm: UnwindCheck) {
    unwinds_instead(calm);
}

/// Begin the unwinding of a cancelled coroutine; returns whether it was cancelled and perhaps unwinds already.
#[inline(always)]
fn unwinds_instead(calm: UnwindCheck) -> bool {
    if !with_current(|frame| frame.is_some_and(|frame| frame.head().is_cancelled())) {
        return false;
    }
    unwind_if_sure(calm);
    true
}

#[cold]
fn unwind_if_sure(calm: UnwindCheck) {
    if !calm.is_sure() {
        return;
    }
    // The host may not have seen it: this coroutine caught its last unwinding, and has not left its stack since.
    if !std::thread::panicking() {
        note_calm();
    }
    resume_unwind(Box::new(Cancelled));
}

/// Give every other ready coroutine of this thread a turn.
///
/// Cancellation: a cancelled coroutine unwinds here.
/// Outside of a coroutine it yields the thread.
// See `switch` for why it is inlined.
#[inline(always)]
pub fn yield_now() {
    if !is_coroutine() {
        return std::thread::yield_now();
    }
    let calm = UnwindCheck::now();
    unwinds_instead(calm);
    switch::suspend(Suspend::Yield);
    // Its next wait could not tell any more.
    if std::thread::panicking() {
        unwinds_instead(calm);
    }
}

/// Park the coroutine for this long at least. Outside of a coroutine it panics, as [`block_on`] does.
pub fn sleep(delay: Duration) {
    block_on(ringloop::time::sleep(delay));
}
