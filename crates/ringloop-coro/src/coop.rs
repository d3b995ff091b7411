//! Cooperative scheduling: a budget of calls that did not have to wait.
//!
//! Owns: the thread's count of such calls. Called by: the calls of sockets, event sources and
//! channels, before they take or give anything, since a cancelled coroutine unwinds in there.
//! Outside of a coroutine it changes nothing.

use crate::{limits, scheduler, wait};
use std::cell::Cell;

thread_local! {
    /// Calls of this thread since one had to wait.
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Counts a call that may not have to wait, and yields when the budget is spent: a peer that always
/// has more starves neither the other coroutines nor the driver.
#[inline]
pub(crate) fn consume_budget() {
    let count = COUNT.get() + 1;
    if count < limits::CALLS_PER_TURN {
        COUNT.set(count);
    } else {
        end_turn();
    }
}

/// A call waits: the others have their turn.
#[inline]
pub(crate) fn reset_budget() {
    COUNT.set(0);
}

#[cold]
fn end_turn() {
    COUNT.set(0);
    if wait::is_coroutine() {
        scheduler::end_turn();
        wait::yield_now();
    }
}
