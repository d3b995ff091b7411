//! What may be known about unwinding on a thread whose coroutines take turns.
//!
//! Owns: the thread's record of moments without unwinding, and whether coroutines may still run on
//! the thread. Called by: `scheduler` (notes such moments), `wait` and `net` (check before they
//! unwind), `runtime` (refuses an unusable thread).
//!
//! `std::thread::panicking` counts a thread's unwindings. While a coroutine is parked in the middle
//! of its unwinding (in a destructor), it is true for all of them. A coroutine that is to unwind
//! must know that it does not already: a second unwinding of one stack aborts the process. It knows
//! if nothing unwound when its wait began, or at any moment while it was off its stack. Others may
//! unwind beside it: each `catch_unwind` ends one unwinding.

use std::cell::Cell;

thread_local! {
    /// Counts the noted moments without unwinding; starts at one.
    static NO_UNWINDING_COUNT: Cell<u64> = const { Cell::new(1) };
    /// A stack was abandoned in the middle of unwinding: std counts that for good.
    static IS_UNUSABLE: Cell<bool> = const { Cell::new(false) };
}

/// No stack of the thread unwinds now: none that is off the processor does when it is resumed.
#[cold]
pub(crate) fn note_no_unwinding() {
    NO_UNWINDING_COUNT.set(NO_UNWINDING_COUNT.get() + 1);
}

/// A stack of the thread was abandoned; see [`check_thread`].
pub(crate) fn note_abandoned() {
    if std::thread::panicking() {
        IS_UNUSABLE.set(true);
    }
}

/// Whether coroutines may run on this thread, or the reason why not: after a stack was abandoned in
/// the middle of unwinding, no coroutine can tell whether it unwinds, and a cancelled one would
/// wait forever.
pub(crate) fn check_thread() -> Result<(), &'static str> {
    if IS_UNUSABLE.get() {
        return Err(
            "no more coroutines can run on this thread: when a runtime ended on it, a destructor waited for what did not \
             come and its stack was left, so to std the thread is panicking for ever; use another thread, and see \
             which coroutine it was on standard error",
        );
    }
    Ok(())
}

/// What a function knows about the unwinding of its own coroutine, at its beginning and until its
/// end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnwindCheck {
    /// [`NO_UNWINDING_COUNT`] when something on the thread unwound; 0: nothing did.
    doubted_at: u64,
}

impl UnwindCheck {
    /// The coroutine does not unwind.
    pub const CERTAIN: Self = Self { doubted_at: 0 };

    /// Something on the thread unwinds, perhaps this coroutine.
    pub fn doubtful() -> Self {
        Self { doubted_at: NO_UNWINDING_COUNT.get() }
    }

    /// Whether the coroutine is known not to unwind.
    pub fn is_certain(self) -> bool {
        self.doubted_at == 0
            || self.doubted_at != NO_UNWINDING_COUNT.get()
            || !std::thread::panicking()
    }
}
