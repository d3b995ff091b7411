//! Turns between the coroutines of a thread, where none of their calls has to wait.
//!
//! Owns: the count of such calls. Called by: what waits in a coroutine most often, before it takes or gives anything: a
//! coroutine that is cancelled unwinds there. Never does: anything outside of a coroutine.

use crate::{limits, scheduler, wait};
use std::cell::Cell;

thread_local! {
    /// Calls of this thread that did not have to wait, since one did.
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// A call that may not have to wait: a peer that always has more must not keep the other coroutines waiting, nor what the
/// driver has to tell.
#[inline]
pub(crate) fn take() {
    let count = COUNT.get() + 1;
    if count < limits::CALLS_PER_TURN {
        COUNT.set(count);
    } else {
        give_up();
    }
}

/// A call has waited: the others had their turn.
#[inline]
pub(crate) fn waited() {
    COUNT.set(0);
}

#[cold]
fn give_up() {
    COUNT.set(0);
    if wait::is_coroutine() {
        scheduler::end_turn();
        wait::yield_now();
    }
}
