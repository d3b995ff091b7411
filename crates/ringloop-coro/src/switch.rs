//! The switch between stacks, made by corosensei.
//!
//! Owns: [`Fiber`], a task on a stack, and the thread's pointer to the frame of the coroutine that
//! runs. Called by: `scheduler` (resumes), `wait` (suspends), and whatever looks at the running
//! coroutine.
//!
//! ```text
//!   the loop's stack                         the coroutine's stack
//!   Scheduler::run_one ── Fiber::resume ───▶ root: `Frame`, then the task's closure
//!                        ◀────────────────── suspend(Park | Yield | Op), or the closure's end
//! ```
//!
//! The processor predicts a return from the last call it saw, which was made on the other stack:
//! each function that returns between two switches costs a misprediction of some 20 cycles.
//! Functions on that path are therefore inlined on both sides (`inline(always)`).
//!
//! # Invariants
//! 1. `CURRENT` is null, or the frame at the root of the stack that the thread runs on: it is set
//!    when a stack begins or is resumed, and cleared before it is left.
//! 2. A frame lives until its coroutine's closure has returned, and is used on its own thread only:
//!    a fiber is not `Send`.

use crate::parked_op::ParkedOpRef;
use crate::stack::Stack;
use crate::task::{Header, Runnable};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use ringloop::embed::Local;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// Why a coroutine leaves its stack before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspend {
    /// It waits for a wake.
    Park,
    /// It goes to the end of the ready queue.
    Yield,
    /// It waits for an operation, which [`Fiber::poll_op`] polls.
    Op(ParkedOpRef),
}

/// The root of a coroutine's stack; a wait reads one cache line of it.
#[repr(C, align(64))]
pub(crate) struct Frame<'a> {
    yielder: &'a Yielder<(), Suspend>,
    pub waker: Waker,
    header: &'a Header,
    /// The loop that ran when the stack began or was resumed.
    loop_id: Cell<u64>,
    /// Lowest address of the stack, where its guard begins, and its length with the guard.
    pub stack: (usize, usize),
    pub locals: LocalMap,
}

impl Frame<'_> {
    #[inline(always)]
    pub fn header(&self) -> &Header {
        self.header
    }
}

/// The coroutine-local values of one coroutine, by the address of their key.
#[derive(Default)]
pub(crate) struct LocalMap(RefCell<Vec<(usize, Rc<dyn Any>)>>);

impl LocalMap {
    pub fn find(&self, key: usize) -> Option<Rc<dyn Any>> {
        let values = self.0.borrow();
        let (_, value) = values.iter().find(|(known, _)| *known == key)?;
        Some(Rc::clone(value))
    }

    pub fn insert(&self, key: usize, value: Rc<dyn Any>) {
        self.0.borrow_mut().push((key, value));
    }

    /// Drops the values, the last first, and the values that a drop creates.
    fn clear(&self) {
        loop {
            let last = self.0.borrow_mut().pop();
            if last.is_none() {
                return;
            }
            // The panic hook has reported a drop that panics.
            drop(catch_unwind(AssertUnwindSafe(|| drop(last))));
        }
    }
}

thread_local! {
    // No destructor: a signal handler may read it.
    static CURRENT: Cell<*const Frame<'static>> = const { Cell::new(ptr::null()) };
}

/// A task on a stack.
pub(crate) struct Fiber {
    coroutine: Coroutine<(), Suspend, (), Stack>,
    /// The operation it waits for, until that is over or the fiber is resumed.
    op: Option<ParkedOpRef>,
}

impl Fiber {
    /// Puts a task on a stack; the first `resume` begins it.
    pub fn new(stack: Stack, task: Arc<dyn Runnable>) -> Self {
        let bounds = (stack.low().get(), stack.len());
        let root = move |yielder: &Yielder<(), Suspend>, ()| {
            let frame = Frame {
                yielder,
                waker: Arc::clone(&task).waker(),
                header: task.header(),
                loop_id: Cell::new(loop_id()),
                stack: bounds,
                locals: LocalMap::default(),
            };
            CURRENT.set((&raw const frame).cast());
            task.run();
            frame.locals.clear();
            CURRENT.set(ptr::null());
        };
        Self { coroutine: Coroutine::with_stack(stack, root), op: None }
    }

    /// Runs until it suspends; `None` when its closure has returned.
    #[inline]
    pub fn resume(&mut self) -> Option<Suspend> {
        self.op = None;
        match self.coroutine.resume(()) {
            CoroutineResult::Yield(why) => {
                if let Suspend::Op(op) = why {
                    self.op = Some(op);
                }
                Some(why)
            }
            CoroutineResult::Return(()) => None,
        }
    }

    /// Submits or polls the operation it waits for; `true` if that is over, or there is none.
    #[inline]
    pub fn poll_op(&mut self) -> bool {
        let Some(op) = self.op else {
            return true;
        };
        // SAFETY: invariant 1 of `parked_op`: only this fiber's owner resumes the coroutine, and
        // `op` is cleared then.
        let is_over = unsafe { op.poll() };
        if is_over {
            self.op = None;
        }
        is_over
    }

    /// Prefetches what its next turn touches first, on processors that have a stable intrinsic for it.
    #[cfg_attr(not(target_arch = "x86_64"), allow(clippy::unused_self))]
    #[inline(always)]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        if let Some(op) = self.op {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = op.address();
            for offset in [-128, -64, 0, 64] {
                // SAFETY: a hint, valid for any address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_offset(offset)) };
            }
        }
    }

    /// The stack of a fiber that has ended.
    pub fn into_stack(self) -> Stack {
        self.coroutine.into_stack()
    }
}

/// Looks at the coroutine that runs on this thread, if any.
#[inline(always)]
pub(crate) fn with_current<R>(look: impl FnOnce(Option<&Frame<'_>>) -> R) -> R {
    let frame = CURRENT.get();
    // SAFETY: invariants 1 and 2; the reference does not outlive the call, which is on that stack.
    look(unsafe { frame.as_ref() })
}

/// As [`with_current`], but without a coroutine on whose stack another loop runs: nothing would
/// turn that loop while the coroutine is parked.
#[inline(always)]
pub(crate) fn with_parkable<R>(look: impl FnOnce(Option<&Frame<'_>>) -> R) -> R {
    with_current(|frame| look(frame.filter(|frame| frame.loop_id.get() == loop_id())))
}

#[inline(always)]
fn loop_id() -> u64 {
    Local::current_id().unwrap_or(0)
}

/// Leaves the stack of the running coroutine; does nothing outside of one.
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
