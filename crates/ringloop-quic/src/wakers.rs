//! Who waits for one kind of event, and how they leave.
//!
//! Owns: [`Wakers`], and the [`Seat`] that a future has among them until it is dropped: of one that is given up before the
//! event nothing stays, or a long connection would keep every task that ever waited for its end. Called by: futures; those
//! that tell events. Never does: wake; wakers are handed out, and woken once nothing is borrowed.

use std::task::Waker;

/// Who waits for one kind of event.
#[derive(Default)]
pub(crate) struct Wakers {
    waiting: Vec<(u64, Waker)>,
    last_key: u64,
}

/// The key of a future that does not wait yet; no other has it.
const NO_SEAT: u64 = 0;

impl Wakers {
    /// Forget one; it is handed out to be dropped once nothing is borrowed.
    pub(crate) fn remove(&mut self, key: u64) -> Option<Waker> {
        let at = self.waiting.iter().position(|(known, _)| *known == key)?;
        Some(self.waiting.swap_remove(at).1)
    }

    /// Put them with those that are to be woken once nothing is borrowed.
    pub(crate) fn drain_into(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(self.waiting.drain(..).map(|(_, waker)| waker));
    }
}

/// A future's place among those that wait. `leave` removes the one of a key, where it still is there.
pub(crate) struct Seat<F: Fn(u64) -> Option<Waker>> {
    key: u64,
    leave: F,
}

impl<F: Fn(u64) -> Option<Waker>> Seat<F> {
    pub(crate) fn new(leave: F) -> Self {
        Self {
            key: NO_SEAT,
            leave,
        }
    }

    /// Wait among them; a future once, by the waker of its last poll. The one of an earlier poll is handed out to be
    /// dropped once nothing is borrowed: its end may run a program's code, which may come back here.
    #[must_use = "it is to be dropped once nothing is borrowed"]
    pub(crate) fn take(&mut self, wakers: &mut Wakers, waker: &Waker) -> Option<Waker> {
        let mut waiting = wakers.waiting.iter_mut();
        let known = waiting.find(|(key, _)| self.key != NO_SEAT && *key == self.key);
        if let Some((_, known)) = known {
            return (!known.will_wake(waker)).then(|| std::mem::replace(known, waker.clone()));
        }
        wakers.last_key += 1;
        self.key = wakers.last_key;
        wakers.waiting.push((self.key, waker.clone()));
        None
    }
}

impl<F: Fn(u64) -> Option<Waker>> Drop for Seat<F> {
    fn drop(&mut self) {
        if self.key != NO_SEAT {
            drop((self.leave)(self.key));
        }
    }
}
