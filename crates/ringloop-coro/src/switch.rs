//! The switch between stacks: the one file that names corosensei.
//!
//! Owns: [`Fiber`] (a stack with a task's frames on it) and the thread's pointer to the frame of the coroutine
//! that runs. Called by: `host` (resumes), and the waits of a coroutine (suspends). Never does: decide who runs.
//!
//! ```text
//!   the loop's stack                     the coroutine's stack
//!   Scheduler::resume ── Fiber::resume ─────▶ root: `Frame`, then the task's closure
//!                 ◀──────────────────── suspend(Park | Yield), or the closure's end
//! ```
//!
//! The processor predicts a return by the call that it saw last, which was made on the other stack: each function that
//! returns between two switches costs a misprediction, some 20 cycles. What lies on that way is therefore inlined, on both
//! sides (`inline(always)`).
//!
//! # Invariants
//! 1. `CURRENT` is null, or the frame at the root of the stack that the thread runs on: it is set when a stack
//!    begins or goes on, and cleared before it is left.
//! 2. A frame lives until its coroutine's closure has returned, and is used on its own thread only: a fiber is
//!    not `Send`.
//! 3. A stack has a guard below it, and is nobody else's until the fiber gives it back (`stack`).

use crate::local::LocalMap;
use crate::parked_op::ParkedOpRef;
use crate::stack::Stack;
use crate::task::{Header, Runnable};
use corosensei::stack::StackPointer;
use corosensei::stack::valgrind::ValgrindStackRegistration;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use ringloop::executor::Local;
use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::task::Waker;

/// Why a coroutine leaves its stack before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspend {
    /// It waits for a wake.
    Park,
    /// It stands in the queue again, at its end.
    Yield,
    /// It waits for an operation, which [`Fiber::is_answered`] looks at.
    ParkedOpRef(ParkedOpRef),
}

/// What a coroutine's stack has at its root; what a wait needs of it is in one line of the cache.
#[repr(C, align(64))]
pub(crate) struct Frame<'a> {
    yielder: &'a Yielder<(), Suspend>,
    pub waker: Waker,
    head: &'a Header,
    /// The loop that was at work when the thread came onto the stack.
    loop_id: Cell<u64>,
    /// The lowest address of the stack, where its guard begins, and its length with the guard.
    pub stack: (usize, usize),
    pub values: LocalMap,
}

impl Frame<'_> {
    #[inline(always)]
    pub fn head(&self) -> &Header {
        self.head
    }
}

thread_local! {
    // No destructor: it can be read in a signal handler.
    static CURRENT: Cell<*const Frame<'static>> = const { Cell::new(ptr::null()) };
}

/// A task on a stack.
pub(crate) struct Fiber {
    coroutine: Coroutine<(), Suspend, (), Stack>,
    /// What it left for, until it has that or is resumed.
    ask: Option<ParkedOpRef>,
}

impl std::fmt::Debug for Fiber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fiber").finish_non_exhaustive()
    }
}

// SAFETY: invariant 3; a stack is at least two pages above its guard.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        Stack::base(self)
    }

    fn limit(&self) -> StackPointer {
        self.low()
    }
}

/// Tells valgrind that a range is a stack, so that it follows the switches.
pub(crate) struct ValgrindNote {
    _registration: ValgrindStackRegistration,
}

impl std::fmt::Debug for ValgrindNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValgrindNote").finish_non_exhaustive()
    }
}

impl ValgrindNote {
    pub fn new(stack: &Stack) -> Self {
        let low = ptr::with_exposed_provenance_mut(stack.low().get());
        Self {
            _registration: ValgrindStackRegistration::new(low, stack.len()),
        }
    }
}

impl Fiber {
    /// Put a task on a stack; it begins with the first `resume`.
    pub fn new(stack: Stack, task: Arc<dyn Runnable>) -> Self {
        let bounds = (stack.low().get(), stack.len());
        let root = move |yielder: &Yielder<(), Suspend>, ()| {
            let frame = Frame {
                yielder,
                waker: Arc::clone(&task).waker(),
                head: task.head(),
                loop_id: Cell::new(loop_id()),
                stack: bounds,
                values: LocalMap::default(),
            };
            CURRENT.set((&raw const frame).cast());
            task.run();
            frame.values.clear();
            CURRENT.set(ptr::null());
        };
        Self {
            coroutine: Coroutine::with_stack(stack, root),
            ask: None,
        }
    }

    /// Run until it suspends itself; `None` when its closure has returned.
    #[inline]
    pub fn resume(&mut self) -> Option<Suspend> {
        self.ask = None;
        match self.coroutine.resume(()) {
            CoroutineResult::Yield(why) => {
                if let Suspend::ParkedOpRef(ask) = why {
                    self.ask = Some(ask);
                }
                Some(why)
            }
            CoroutineResult::Return(()) => None,
        }
    }

    /// Whether it has what it left for, or left for nothing of the kind. Looks at the operation, which begins with the
    /// first look.
    #[inline]
    pub fn is_answered(&mut self) -> bool {
        let Some(ask) = self.ask else {
            return true;
        };
        // SAFETY: the coroutine left with it just before, and is resumed by the one who has this fiber.
        let is_answered = unsafe { ask.poll() };
        if is_answered {
            self.ask = None;
        }
        is_answered
    }

    /// Have the processor fetch what its next turn touches first.
    #[inline(always)]
    pub fn expect(&self) {
        #[cfg(target_arch = "x86_64")]
        if let Some(ask) = self.ask {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = ask.address();
            for line in [
                at.wrapping_sub(128),
                at.wrapping_sub(64),
                at,
                at.wrapping_add(64),
            ] {
                // SAFETY: a hint, for any address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
            }
        }
    }

    /// The stack of a fiber that is over.
    pub fn into_stack(self) -> Stack {
        self.coroutine.into_stack()
    }
}

/// The coroutine that runs on this thread, if one does.
#[inline(always)]
pub(crate) fn with_current<R>(look: impl FnOnce(Option<&Frame<'_>>) -> R) -> R {
    let frame = CURRENT.get();
    // SAFETY: invariants 1 and 2; the reference does not outlive the call, which is on that stack.
    look(unsafe { frame.as_ref() })
}

/// As [`with_current`], but no coroutine runs where another loop does, on its stack: that one stays the thread's while the
/// coroutine is parked, and nobody would turn it.
#[inline(always)]
pub(crate) fn with_parkable<R>(look: impl FnOnce(Option<&Frame<'_>>) -> R) -> R {
    with_current(|frame| look(frame.filter(|frame| frame.loop_id.get() == loop_id())))
}

#[inline(always)]
fn loop_id() -> u64 {
    Local::current_id().unwrap_or(0)
}

/// Leave the stack of the coroutine that runs; outside of one it does nothing.
#[inline(always)]
pub(crate) fn suspend(why: Suspend) {
    let current = CURRENT.replace(ptr::null());
    // SAFETY: invariants 1 and 2.
    let Some(frame) = (unsafe { current.as_ref() }) else {
        return;
    };
    frame.yielder.suspend(why);
    frame.loop_id.set(loop_id());
    CURRENT.set(current);
}
