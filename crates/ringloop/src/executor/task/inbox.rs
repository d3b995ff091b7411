//! Messages from other threads to a loop.
//!
//! Owns: the queue, its bound, and whether it is closed. Called by: any thread (`send`), the loop
//! (`take`, `close`). Wakes the loop through the [`Unpark`] it is given.
//!
//! The owner takes the whole queue at once: one lock per batch, and none while the flag next to the
//! queue says that it is empty. The flag is set before the loop is woken, so a woken loop sees it
//! (checked by loom below). The closed flag is under the queue's lock: a message is either taken or
//! refused, never lost. In a forked child the queue is the parent's: it refuses, and is empty.

use super::park::Unpark;
use crate::error::Error;
use crate::executor::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use crate::sys::libc;
use std::collections::VecDeque;
use std::io;

/// A bounded queue of messages to one loop.
#[derive(Debug)]
pub struct Inbox<T> {
    queue: Mutex<Queue<T>>,
    /// True if the queue holds messages; written under its lock.
    holds_any: AtomicBool,
    unpark: Option<Unpark>,
    capacity: usize,
}

#[derive(Debug)]
struct Queue<T> {
    messages: VecDeque<T>,
    closed: bool,
}

impl<T> Inbox<T> {
    /// Creates a queue for at most `capacity` messages, whose senders wake the loop by `unpark`.
    pub fn new(unpark: Unpark, capacity: usize) -> Self {
        Self::with(Some(unpark), capacity)
    }

    fn with(unpark: Option<Unpark>, capacity: usize) -> Self {
        let queue = Queue { messages: VecDeque::new(), closed: false };
        Self { queue: Mutex::new(queue), holds_any: AtomicBool::new(false), unpark, capacity }
    }

    /// Adds a message and wakes the loop. Returns the message if the queue is full or closed, or
    /// has no memory to grow (`ENOMEM`).
    pub fn send(&self, message: T) -> Result<(), (T, Error)> {
        self.add(message, self.capacity)
    }

    /// Like [`Inbox::send`], but not bounded: for messages whose number is limited otherwise.
    pub fn push(&self, message: T) -> Result<(), (T, Error)> {
        self.add(message, usize::MAX)
    }

    fn add(&self, message: T, capacity: usize) -> Result<(), (T, Error)> {
        if self.is_inherited() {
            return Err((message, Error::Inherited));
        }
        {
            let mut queue = self.lock();
            if queue.closed {
                return Err((message, Error::Closed));
            }
            if queue.messages.len() >= capacity {
                let waiting = queue.messages.len();
                return Err((message, Error::InboxFull { waiting }));
            }
            if queue.messages.try_reserve(1).is_err() {
                let no_memory = io::Error::from_raw_os_error(libc::ENOMEM);
                return Err((message, Error::Io(no_memory)));
            }
            queue.messages.push_back(message);
            self.holds_any.store(true, Ordering::Release);
        }
        self.wake();
        Ok(())
    }

    /// Makes the loop check its queues, without a message.
    pub fn wake(&self) {
        if let Some(unpark) = &self.unpark {
            unpark.notify();
        }
    }

    /// Swaps all messages into `into`, which must be empty: its memory is reused for the next
    /// batch.
    pub fn take(&self, into: &mut VecDeque<T>) {
        debug_assert!(into.is_empty());
        if self.is_inherited() {
            return;
        }
        let mut queue = self.lock();
        self.holds_any.store(false, Ordering::Release);
        std::mem::swap(&mut queue.messages, into);
    }

    /// True if [`Inbox::take`] is worth its lock: `true` for every message sent before the loop was
    /// last woken.
    #[inline]
    pub fn holds_any(&self) -> bool {
        self.holds_any.load(Ordering::Acquire)
    }

    /// Refuses messages from now on; returns those not taken.
    pub fn close(&self) -> VecDeque<T> {
        if self.is_inherited() {
            return VecDeque::new();
        }
        let mut queue = self.lock();
        queue.closed = true;
        std::mem::take(&mut queue.messages)
    }

    /// Number of messages.
    #[inline(always)]
    pub fn len(&self) -> usize {
        if self.is_inherited() {
            return 0;
        }
        self.lock().messages.len()
    }

    /// True if there are no messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True in a forked child, where a thread of the parent may hold the lock: the queue is not
    /// touched.
    pub(crate) fn is_inherited(&self) -> bool {
        self.unpark.as_ref().is_some_and(Unpark::is_inherited)
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // Nothing can panic while the lock is held, and the queue is consistent at any point.
        self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn full_inbox_gives_the_message_back_and_keeps_the_others() {
        let inbox = Inbox::with(None, 2);
        inbox.send(1).expect("room");
        inbox.send(2).expect("room");
        let (message, error) = inbox.send(3).expect_err("full");
        assert_eq!(message, 3);
        assert!(error.to_string().contains("2 messages wait"), "{error}");
        let mut taken = VecDeque::new();
        inbox.take(&mut taken);
        assert_eq!(taken, [1, 2]);
        inbox.send(4).expect("room again");
    }

    #[test]
    fn closed_inbox_refuses_and_returns_what_waited() {
        let inbox = Inbox::with(None, 8);
        inbox.send(1).expect("room");
        assert_eq!(inbox.close(), [1]);
        assert!(matches!(inbox.send(2), Err((2, Error::Closed))));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::park::Flag;
    use super::*;
    use loom::thread;

    /// A loop that was woken, or kept from sleeping, sees the message.
    #[test]
    fn message_before_a_wake_is_seen_after_it() {
        loom::model(|| {
            let inbox = loom::sync::Arc::new(Inbox::with(None, 1));
            let flag = loom::sync::Arc::new(Flag::new());
            let sender = {
                let (inbox, flag) = (inbox.clone(), flag.clone());
                thread::spawn(move || {
                    inbox.send(1).expect("room");
                    flag.notify()
                })
            };
            if !inbox.holds_any() {
                if flag.prepare_to_sleep() {
                    // The eventfd ends the sleep.
                    assert!(sender.join().expect("sender"));
                    flag.awake();
                }
                assert!(inbox.holds_any());
            }
            let mut taken = VecDeque::new();
            inbox.take(&mut taken);
            assert_eq!(taken, [1]);
        });
    }

    /// Every message is taken once, or refused to its sender; closing loses none.
    #[test]
    fn message_is_taken_or_refused_never_lost() {
        loom::model(|| {
            let inbox = loom::sync::Arc::new(Inbox::with(None, 1));
            let senders: Vec<_> = (0..2)
                .map(|number| {
                    let inbox = inbox.clone();
                    thread::spawn(move || inbox.send(number).is_ok())
                })
                .collect();
            let mut taken = VecDeque::new();
            inbox.take(&mut taken);
            let left = inbox.close();
            let accepted =
                senders.into_iter().map(|sender| sender.join().expect("sender")).filter(|ok| *ok);
            assert_eq!(accepted.count(), taken.len() + left.len());
        });
    }
}
