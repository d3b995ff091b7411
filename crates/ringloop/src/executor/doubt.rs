//! Streams that were believed to be empty, and wait for word of more.
//!
//! Owns: [`Doubts`], the list of them, and [`Doubt`], what each knows. Called by: `net::Receive`, which believes; the
//! loop, which has it look again. Never does: receive.
//!
//! A receive that takes less than it had room for has mostly emptied its socket (epoll(7), question 9), and the one that
//! finds nothing behind it costs a system call. But a receive stops at urgent data too (tcp(7)), and an end or an error that
//! came before it is not told of again. So a stream in a busy loop may believe it, and looks again when the loop has had nothing
//! else to do for a moment ([`limits::DOUBT_PAUSE`]), or after so many turns.
//!
//! Not sooner, though there may be bytes: whoever looked each turn, with a peer that answers within one, would be served
//! again and again while word of others waits, of which a turn takes some twenty from a ring.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// Turns after which those who believe look again, also where the loop never comes to rest: some ten milliseconds.
const TURNS_MAX: u32 = 256;

/// Those of a loop that wait and believe.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    list: RefCell<Vec<Rc<Belief>>>,
    turns: Cell<u32>,
}

/// What a stream believes; dropped with it.
#[derive(Debug, Default)]
pub(crate) struct Doubt(Rc<Belief>);

#[derive(Debug, Default)]
struct Belief {
    state: Cell<State>,
    is_listed: Cell<bool>,
    /// Who waits.
    waker: RefCell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// The kernel has said so, or will say that there is more.
    #[default]
    Sure,
    Believing,
    /// It is to look.
    Asked,
}

impl Doubts {
    /// A turn has begun.
    #[inline]
    pub fn pass_turn(&self) {
        let turns = self.turns.get() + 1;
        self.turns.set(turns);
        if turns >= TURNS_MAX {
            self.look_again();
        }
    }

    /// Whether nobody does.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    /// Wake everybody who waits and believes; returns whether there was anybody.
    pub fn look_again(&self) -> bool {
        self.turns.set(0);
        let mut is_any = false;
        // A waker may come back.
        for belief in self.list.take() {
            belief.is_listed.set(false);
            if belief.state.get() == State::Believing {
                belief.state.set(State::Asked);
                is_any = true;
                if let Some(waker) = belief.waker.take() {
                    waker.wake();
                }
            }
        }
        is_any
    }
}

impl Doubt {
    /// The last receive has taken less than it had room for.
    pub fn believe(&self) {
        self.0.state.set(State::Believing);
    }

    /// There is word of more.
    pub fn settle(&self) {
        self.0.state.set(State::Sure);
    }

    /// Whether it is time to look; then it is not any more.
    pub fn must_look(&self) -> bool {
        let is_asked = self.0.state.get() == State::Asked;
        if is_asked {
            self.settle();
        }
        is_asked
    }

    /// It waits, with this waker.
    pub(super) fn wait(&self, doubts: &Doubts, waker: &Waker) {
        let belief = &self.0;
        if belief.state.get() != State::Believing {
            return;
        }
        let is_known = matches!(&*belief.waker.borrow(), Some(known) if known.will_wake(waker));
        if !is_known {
            // The old one is dropped when nothing is borrowed.
            drop(belief.waker.replace(Some(waker.clone())));
        }
        if !belief.is_listed.replace(true) {
            doubts.list.borrow_mut().push(Rc::clone(belief));
        }
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        self.settle();
        drop(self.0.waker.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }

    #[test]
    fn who_believes_and_waits_is_asked_once() {
        let (doubts, doubt, (count, waker)) = (Doubts::default(), Doubt::default(), counted());
        doubt.believe();
        doubt.wait(&doubts, &waker);
        doubt.wait(&doubts, &waker);
        assert_eq!(doubts.list.borrow().len(), 1);
        assert!(doubts.look_again());
        assert!(!doubts.look_again());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(doubt.must_look());
        assert!(!doubt.must_look());
    }

    #[test]
    fn who_is_sure_has_word_or_is_gone_is_not_asked() {
        let (doubts, (count, waker)) = (Doubts::default(), counted());
        let (sure, told, gone) = (Doubt::default(), Doubt::default(), Doubt::default());
        sure.wait(&doubts, &waker);
        for doubt in [&told, &gone] {
            doubt.believe();
            doubt.wait(&doubts, &waker);
        }
        told.settle();
        drop(gone);
        assert!(!doubts.look_again());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        drop((sure, told));
        drop(waker);
        assert_eq!(Arc::strong_count(&count), 1, "no waker is left");
    }

    #[test]
    fn the_last_who_waited_is_woken() {
        let (doubts, doubt) = (Doubts::default(), Doubt::default());
        let ((first, old), (second, new)) = (counted(), counted());
        doubt.believe();
        doubt.wait(&doubts, &old);
        doubt.wait(&doubts, &new);
        doubts.look_again();
        assert_eq!(first.0.load(Ordering::Relaxed), 0);
        assert_eq!(second.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn loop_that_never_rests_asks_after_so_many_turns() {
        let (doubts, doubt, (count, waker)) = (Doubts::default(), Doubt::default(), counted());
        doubt.believe();
        doubt.wait(&doubts, &waker);
        for _ in 1..TURNS_MAX {
            doubts.pass_turn();
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        doubts.pass_turn();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
