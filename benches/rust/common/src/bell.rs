//! Round trips between a task and another thread, through the runtime's waker only.
//!
//! The thread is woken through `std::sync::mpsc` (a futex), the same for all runtimes; they differ
//! in how a waker reaches a sleeping loop.

use crate::report;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

/// Make `ops` round trips.
pub async fn wake(ops: usize) {
    let bell = Bell::default();
    let start = Instant::now();
    for _ in 0..ops {
        bell.ring().await;
    }
    report(ops as u64, start);
}

/// A thread that answers every call by waking the calling task.
struct Bell {
    calls: Sender<Arc<Mutex<Call>>>,
}

#[derive(Default)]
struct Call {
    is_answered: bool,
    waker: Option<Waker>,
}

/// Ready when the thread has answered.
struct Ring<'a> {
    bell: &'a Bell,
    call: Option<Arc<Mutex<Call>>>,
}

impl Default for Bell {
    fn default() -> Self {
        let (calls, received) = channel::<Arc<Mutex<Call>>>();
        thread::spawn(move || {
            for call in received {
                let waker = {
                    let mut call = call.lock().unwrap_or_else(PoisonError::into_inner);
                    call.is_answered = true;
                    call.waker.take()
                };
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        });
        Self { calls }
    }
}

impl Bell {
    /// Call the thread and wait for its answer.
    fn ring(&self) -> Ring<'_> {
        Ring {
            bell: self,
            call: None,
        }
    }
}

impl Future for Ring<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(call) = &self.call {
            let mut call = call.lock().unwrap_or_else(PoisonError::into_inner);
            if call.is_answered {
                return Poll::Ready(());
            }
            call.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let call = Arc::new(Mutex::new(Call {
            is_answered: false,
            waker: Some(cx.waker().clone()),
        }));
        self.call = Some(Arc::clone(&call));
        // The thread lives until the bell is dropped.
        let _ = self.bell.calls.send(call);
        Poll::Pending
    }
}
