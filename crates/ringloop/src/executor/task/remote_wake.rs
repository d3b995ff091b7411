//! A flag per task: set while a wake from another thread is in the loop's inbox.
//!
//! Called by: `task`, which sends the message. Checked by loom below.

use crate::executor::sync::{AtomicBool, Ordering};

/// Set while a wake from another thread is in the inbox.
#[derive(Debug)]
pub(crate) struct RemoteWakeFlag(AtomicBool);

impl RemoteWakeFlag {
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// On another thread: returns true if the caller has to send the message.
    pub fn set(&self) -> bool {
        // A swap even if it is set: it publishes the waker's writes to the loop thread.
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// The message has arrived: later wakes send their own.
    pub fn clear(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    /// A wake from another thread is never lost, and never sends two messages at a time.
    #[test]
    fn remote_wake_runs_the_task_again_and_sends_once() {
        loom::model(|| {
            let flag = Arc::new(RemoteWakeFlag::new());
            let inbox = Arc::new(AtomicU32::new(0));
            let data = Arc::new(AtomicU32::new(0));
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let (flag, inbox, data) = (flag.clone(), inbox.clone(), data.clone());
                    thread::spawn(move || {
                        data.fetch_add(1, Ordering::Relaxed);
                        if flag.set() {
                            assert_eq!(inbox.fetch_add(1, Ordering::AcqRel), 0, "sent twice");
                        }
                    })
                })
                .collect();
            let mut seen = 0;
            let mut turn = || {
                if inbox.load(Ordering::Acquire) > 0 {
                    inbox.fetch_sub(1, Ordering::AcqRel);
                    flag.clear();
                    seen = data.load(Ordering::Relaxed);
                }
            };
            turn();
            for waker in wakers {
                waker.join().expect("waker");
            }
            turn();
            assert_eq!(seen, 2, "a wake was lost");
        });
    }
}
