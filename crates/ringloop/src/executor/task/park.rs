//! Wakes a sleeping loop, with a system call only if it sleeps.
//!
//! Owns: the three-state flag. The eventfd behind it is the driver's: a closed loop leaves no
//! descriptor open, however many `Unpark`s still exist. Called by: `Engine::park` (the owner) and
//! any thread (`Unpark::notify`). Carries no messages; callers put them in a queue first (`inbox`).
//!
//! | state    | the owner                               | `notify`                        |
//! |----------|-----------------------------------------|---------------------------------|
//! | awake    | runs; will look at the queues           | → notified, no system call      |
//! | sleeping | is in the wait, or about to be          | → notified, writes the eventfd  |
//! | notified | runs, or wakes; does not sleep next time| nothing                         |
//!
//! The owner goes awake → sleeping with a compare-exchange, which fails if a notification came
//! since its last check; so a message put before `notify` is seen before the next sleep. Checked by
//! loom below.

use crate::executor::sync::{AtomicU8, Ordering};
use crate::sys::event::EventFd;
use crate::sys::fork::Generation;
use crate::sys::refused::RefusedCall;
use std::io;
use std::sync::{Arc, Weak};

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;

/// The flag alone, for the model checker.
#[derive(Debug)]
pub(crate) struct Flag(AtomicU8);

impl Flag {
    pub fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// The owner is about to sleep. `false`: it was notified, and must check its queues instead.
    pub fn prepare_to_sleep(&self) -> bool {
        let swapped = self.0.compare_exchange(AWAKE, SLEEPING, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            self.0.swap(AWAKE, Ordering::AcqRel);
        }
        swapped.is_ok()
    }

    /// The owner is awake again.
    pub fn awake(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
    }

    /// True if the owner would not sleep now. Synchronizes nothing: a message put before a
    /// notification is seen after [`Flag::prepare_to_sleep`].
    pub fn is_notified(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Returns true if the owner sleeps and has to be woken.
    pub fn notify(&self) -> bool {
        // Always a read-modify-write: a plain load could miss that the owner reset the flag, and
        // would not publish the message to it.
        self.0.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING
    }
}

/// Ends a loop's current or next wait, from any thread.
#[derive(Debug, Clone)]
pub struct Unpark {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    flag: Flag,
    event: Weak<EventFd>,
    generation: Generation,
}

impl Unpark {
    /// Also returns the descriptor, for the driver to wait on and to own.
    pub(crate) fn new() -> io::Result<(Self, Arc<EventFd>)> {
        let event = Arc::new(EventFd::new().map_err(RefusedCall::name("eventfd2"))?);
        let inner = Inner {
            flag: Flag::new(),
            event: Arc::downgrade(&event),
            generation: Generation::current(),
        };
        let unpark = Self { inner: Arc::new(inner) };
        Ok((unpark, event))
    }

    /// Makes the loop check its queues; a system call only if it sleeps. A forked child does not
    /// wake its parent.
    pub fn notify(&self) {
        if !self.is_inherited()
            && self.inner.flag.notify()
            && let Some(event) = self.inner.event.upgrade()
        {
            event.notify();
        }
    }

    /// True in a forked child: the loop is the parent's.
    pub(crate) fn is_inherited(&self) -> bool {
        self.inner.generation.is_inherited()
    }

    pub(crate) fn prepare_to_sleep(&self) -> bool {
        self.inner.flag.prepare_to_sleep()
    }

    /// True if the owner was notified since it last slept, or was about to: a hint for polling.
    pub(crate) fn is_notified(&self) -> bool {
        self.inner.flag.is_notified()
    }

    pub(crate) fn awake(&self) {
        self.inner.flag.awake();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicBool;
    use loom::sync::{Mutex, Notify};
    use loom::thread;

    /// A message that was put before a notification is seen by the owner, or wakes it: no lost
    /// wake-up.
    #[test]
    fn message_before_notify_is_never_slept_over() {
        loom::model(|| {
            let flag = loom::sync::Arc::new(Flag::new());
            let message = loom::sync::Arc::new(AtomicBool::new(false));
            let woken = loom::sync::Arc::new(AtomicBool::new(false));
            let sender = {
                let (flag, message, woken) = (flag.clone(), message.clone(), woken.clone());
                thread::spawn(move || {
                    message.store(true, Ordering::Relaxed);
                    if flag.notify() {
                        woken.store(true, Ordering::Relaxed);
                    }
                })
            };
            let slept = flag.prepare_to_sleep();
            let seen = message.load(Ordering::Relaxed);
            sender.join().expect("sender");
            if slept && !seen {
                assert!(woken.load(Ordering::Relaxed), "slept over a message");
            }
            if !slept {
                assert!(seen, "refused to sleep but did not see the message");
            }
        });
    }

    /// What an embedder may do that has a queue of its own: only the first message of a batch sets a
    /// hint and wakes the owner, which looks at the hint before it sleeps, and clears it before it
    /// takes them all. No message is slept over: loom would find a deadlock.
    #[test]
    fn first_message_of_a_batch_wakes_for_all() {
        struct Shared {
            flag: Flag,
            event: Notify,
            hint: AtomicBool,
            queue: Mutex<u32>,
        }

        fn send(shared: &Shared) {
            let mut queue = shared.queue.lock().expect("queue");
            let is_first = *queue == 0;
            *queue += 1;
            drop(queue);
            if is_first {
                shared.hint.store(true, Ordering::Relaxed);
                if shared.flag.notify() {
                    shared.event.notify();
                }
            }
        }

        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shared = loom::sync::Arc::new(Shared {
                flag: Flag::new(),
                event: Notify::new(),
                hint: AtomicBool::new(false),
                queue: Mutex::new(0),
            });
            for _ in 0..2 {
                let shared = shared.clone();
                thread::spawn(move || send(&shared));
            }
            let mut taken = 0;
            while taken < 2 {
                if !shared.hint.load(Ordering::Relaxed) && shared.flag.prepare_to_sleep() {
                    shared.event.wait();
                    shared.flag.awake();
                }
                if shared.hint.load(Ordering::Relaxed) {
                    shared.hint.store(false, Ordering::Relaxed);
                    let mut queue = shared.queue.lock().expect("queue");
                    taken += std::mem::take(&mut *queue);
                }
            }
        });
    }
}
