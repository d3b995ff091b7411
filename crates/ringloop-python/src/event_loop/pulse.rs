//! The pulse of a loop: what other threads may read while it runs.
//!
//! Owns: the phase and the counters of a loop, written by its own thread only, and the type of the hook
//! for slow callbacks. Called by: the turn, which writes; `observe` and `slow`, which read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::ffi::Obj;

/// A counter that one thread writes and any thread reads: no locked instruction is needed.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    #[inline]
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What a loop shares with its transports.
#[derive(Default)]
pub struct Shared {
    /// `threading.get_ident()` of the running thread; zero when the loop does not run.
    pub thread_id: AtomicU64,
    /// Turns started.
    pub turns: Counter,
    /// Bytes that transports have received.
    pub received_bytes: Counter,
    /// Bytes that transports have sent.
    pub sent_bytes: Counter,
}

#[derive(Default)]
pub struct Pulse {
    waits: AtomicBool,
    /// Sleeps in the kernel begun.
    pub sleeps: Counter,
    /// Callbacks begun, handlers of completions included.
    pub callbacks: Counter,
}

/// Ends the wait when dropped.
pub struct Waiting<'a>(&'a Pulse);

impl Pulse {
    #[inline]
    pub fn waits(&self) -> bool {
        self.waits.load(Relaxed)
    }

    /// The loop sleeps from now on.
    #[inline]
    pub fn wait(&self) -> Waiting<'_> {
        self.waits.store(true, Relaxed);
        self.sleeps.add(1);
        Waiting(self)
    }
}

impl Drop for Waiting<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.waits.store(false, Relaxed);
    }
}

/// The hook for slow callbacks.
pub struct SlowHook {
    /// Called with what was slow and the seconds it took.
    pub call: Obj,
    /// From how long on.
    pub threshold_ns: u64,
}
