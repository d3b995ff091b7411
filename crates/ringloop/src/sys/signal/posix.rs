//! Signals as readable descriptors: the handler sets a bit and writes an eventfd.
//!
//! Owns: the handler, and a fixed number of slots, one per listener, each with its eventfd. Called
//! by: `signal`. Blocks no signals (signalfd(2) needs that in every thread, and children inherit
//! it), leaves signals without a listener alone, and calls only write(2) from the handler.
//!
//! ```text
//!   signal ──▶ handler ──▶ every slot whose mask has it: pending |= bit, eventfd += 1 ──▶ the listener's loop
//! ```
//! A slot's eventfd is created once and never closed, so a handler that runs while its listener is
//! dropped never writes to another descriptor. The first listener of a signal replaces its action,
//! and the last one restores the previous action, unless ours has been replaced meanwhile. A forked
//! child starts without listeners.
//!
//! # Invariants
//! - **G1** The handler touches only atomics and makes only calls that signal-safety(7) allows, and leaves
//!   `errno` as it was.
//! - **G2** A pointer given to `sigaction` is to a live local or null.
//! - **G3** All-zero bytes are a valid `sigaction` and a valid `sigset_t`.
//! - **G4** A registry is never freed once other threads may have seen it.

use super::super::check;
use super::super::event::{self, EventFd};
use super::super::fork::Generation;
use super::super::platform;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Listeners that a process may have at a time.
pub const LISTENERS_MAX: usize = 64;

/// Signals are 1 to 64; one bit each.
const SIGNALS_MAX: usize = 64;

/// A listener as the handler sees it.
struct Slot {
    /// What the handler writes to: the eventfd, or -1 before the first use.
    fd: AtomicI32,
    /// The signals it listens to.
    mask: AtomicU64,
    /// Signals that arrived since the listener last looked.
    pending: AtomicU64,
}

static SLOTS: [Slot; LISTENERS_MAX] = [const {
    Slot { fd: AtomicI32::new(-1), mask: AtomicU64::new(0), pending: AtomicU64::new(0) }
}; LISTENERS_MAX];

/// The registry of this process, allocated on first use and never freed.
static REGISTRY: AtomicPtr<Mutex<Registry>> = AtomicPtr::new(ptr::null_mut());

/// State that the handler does not need.
struct Registry {
    /// The eventfds of the slots that have one.
    events: Vec<EventFd>,
    used: [bool; LISTENERS_MAX],
    /// By signal - 1: its listeners, and the action that ours replaced.
    actions: [Option<Action>; SIGNALS_MAX],
}

struct Action {
    listener_count: usize,
    previous: libc::sigaction,
}

/// Listens to some signals until it is dropped.
#[derive(Debug)]
pub struct Listener {
    slot: usize,
    fd: RawFd,
    mask: u64,
    generation: Generation,
}

/// Registers [`forget_listeners`] to run in forked children.
static FORK_HOOK: Once = Once::new();

impl Listener {
    /// Starts listening to these signals. See sigaction(2), signal-safety(7).
    ///
    /// # Errors
    /// `EINVAL` for an invalid signal, one that cannot be caught (`SIGKILL`, `SIGSTOP`), or one
    /// whose handler must not return (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`); `EMFILE`; `EAGAIN`
    /// if there are [`LISTENERS_MAX`] listeners.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let mask = mask_of(signals)?;
        let generation = Generation::current();
        FORK_HOOK.call_once(|| {
            // SAFETY: K1 of `fork.rs`.
            unsafe { libc::pthread_atfork(None, None, Some(forget_listeners)) };
        });
        let mut registry = registry();
        let slot = registry.take_slot()?;
        let fd = registry.events[slot].as_raw_fd();
        registry.events[slot].drain();
        let shared = &SLOTS[slot];
        shared.pending.store(0, Ordering::Release);
        shared.fd.store(registry.events[slot].notified_fd(), Ordering::Release);
        shared.mask.store(mask, Ordering::Release);
        registry.used[slot] = true;
        let mut listener = Self { slot, fd, mask: 0, generation };
        for signal in signals_of(mask) {
            if let Err(error) = registry.listen(signal) {
                // Its drop takes the lock to undo what it has registered.
                drop(registry);
                return Err(error);
            }
            listener.mask |= bit(signal);
        }
        Ok(listener)
    }

    /// Takes the signals that arrived since the last call, lowest first; each counts once however
    /// often it arrived.
    pub fn take(&self) -> impl Iterator<Item = i32> + use<> {
        if self.generation.is_inherited() {
            return signals_of(0);
        }
        if let Some(event) = registry().events.get(self.slot) {
            event.drain();
        }
        // After draining the eventfd: a signal in between makes it readable again.
        let pending = SLOTS[self.slot].pending.swap(0, Ordering::AcqRel) & self.mask;
        // A delayed handler that has read the mask may set a bit for the slot's previous owner.
        signals_of(pending)
    }
}

impl AsRawFd for Listener {
    /// Readable while signals wait to be taken.
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.generation.is_inherited() {
            return;
        }
        let mut registry = registry();
        SLOTS[self.slot].mask.store(0, Ordering::Release);
        for signal in signals_of(self.mask) {
            registry.leave(signal);
        }
        registry.used[self.slot] = false;
    }
}

impl Registry {
    /// Takes a free slot, with its eventfd.
    fn take_slot(&mut self) -> io::Result<usize> {
        let free = self.used.iter().position(|used| !used);
        let slot = free.ok_or_else(|| io::Error::from_raw_os_error(libc::EAGAIN))?;
        // Slots are taken in order, so the first one without an eventfd is the next.
        if slot == self.events.len() {
            self.events.push(EventFd::new()?);
        }
        Ok(slot)
    }

    /// Adds a listener of a signal.
    fn listen(&mut self, signal: i32) -> io::Result<()> {
        let action = &mut self.actions[signal as usize - 1];
        if let Some(action) = action {
            action.listener_count += 1;
            return Ok(());
        }
        let ours = Some(handle as *const () as libc::sighandler_t);
        let previous = exchange(signal, ours.map(with_handler).as_ref())?;
        *action = Some(Action { listener_count: 1, previous });
        Ok(())
    }

    /// Removes one; the last restores the previous action.
    fn leave(&mut self, signal: i32) {
        let slot = &mut self.actions[signal as usize - 1];
        let Some(action) = slot else {
            return;
        };
        action.listener_count -= 1;
        if action.listener_count == 0 {
            self.restore(signal);
        }
    }

    /// Restores the action that ours replaced.
    fn restore(&mut self, signal: i32) {
        let Some(Action { previous, .. }) = self.actions[signal as usize - 1].take() else {
            return;
        };
        let current = exchange(signal, None);
        let ours = handle as *const () as libc::sighandler_t;
        if current.is_ok_and(|current| current.sa_sigaction == ours) {
            // It was there before, so it is valid.
            drop(exchange(signal, Some(&previous)));
        }
    }
}

fn registry() -> MutexGuard<'static, Registry> {
    let mut current = REGISTRY.load(Ordering::Acquire);
    if current.is_null() {
        let new = Box::into_raw(Box::new(Mutex::new(Registry {
            events: Vec::new(),
            used: [false; LISTENERS_MAX],
            actions: [const { None }; SIGNALS_MAX],
        })));
        let (null, order) = (ptr::null_mut(), Ordering::AcqRel);
        current = match REGISTRY.compare_exchange(null, new, order, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: G4: no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
    }
    // SAFETY: G4.
    let registry = unsafe { &*current };
    // Nothing panics while it is held, and it is consistent at any point.
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts anew in the child of a fork: the listeners are the parent's, whose eventfds the child
/// must not write, and the replaced actions are restored. If another thread held the registry, its
/// actions stay ours, and do nothing.
extern "C" fn forget_listeners() {
    for slot in &SLOTS {
        slot.mask.store(0, Ordering::Release);
        slot.fd.store(-1, Ordering::Release);
        slot.pending.store(0, Ordering::Release);
    }
    let inherited = REGISTRY.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: G4: it is never freed, as its lock may be held.
    let Some(Ok(mut inherited)) = (unsafe { inherited.as_ref() }).map(Mutex::try_lock) else {
        return;
    };
    for signal in 1..=SIGNALS_MAX as i32 {
        inherited.restore(signal);
    }
}

/// Runs wherever a signal interrupts the process.
extern "C" fn handle(signal: libc::c_int) {
    // SAFETY: G1: it gives the address of this thread's own errno.
    let errno_at = unsafe { platform::errno_location() };
    // SAFETY: G1.
    let errno = unsafe { *errno_at };
    for slot in &SLOTS {
        if slot.mask.load(Ordering::Acquire) & bit(signal) != 0 {
            slot.pending.fetch_or(bit(signal), Ordering::AcqRel);
            event::notify(slot.fd.load(Ordering::Acquire));
        }
    }
    // SAFETY: G1.
    unsafe { *errno_at = errno };
}

fn with_handler(handler: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: G3.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // Interrupted calls elsewhere in the application are restarted.
    action.sa_flags = libc::SA_RESTART;
    action
}

/// Replaces a signal's action, or only reads it.
fn exchange(signal: i32, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    // SAFETY: G3.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: G1, G2.
    check(unsafe { libc::sigaction(signal, new, &raw mut old) })?;
    Ok(old)
}

fn bit(signal: i32) -> u64 {
    1 << ((signal - 1) as u32 % SIGNALS_MAX as u32)
}

fn signals_of(mask: u64) -> impl Iterator<Item = i32> {
    (1..=SIGNALS_MAX as i32).filter(move |signal| mask & bit(*signal) != 0)
}

fn mask_of(signals: &[i32]) -> io::Result<u64> {
    let refused =
        [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
    let mut mask = 0;
    for signal in signals {
        if !(1..=SIGNALS_MAX as i32).contains(signal) || refused.contains(signal) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        mask |= bit(*signal);
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::file::poll_now;
    use crate::sys::interest::Interest;
    use crate::sys::testing::LONG;
    use std::time::Instant;

    /// A signal for one test alone. The first real-time ones are taken: libkqueue, which stands for kqueue
    /// on Linux, waits for SIGRTMIN + 1 in a thread of its own.
    fn own_signal(number: i32) -> i32 {
        libc::SIGRTMIN() + 8 + number
    }

    /// Sends this process a signal.
    fn raise(signal: i32) {
        // SAFETY: no pointer is passed.
        check(unsafe { libc::kill(std::process::id() as i32, signal) }).unwrap();
    }

    /// Another thread may be the one that runs the handler.
    fn wait_for(listener: &Listener) -> Vec<i32> {
        let started = Instant::now();
        loop {
            let taken: Vec<i32> = listener.take().collect();
            if !taken.is_empty() {
                return taken;
            }
            assert!(started.elapsed() < LONG);
            std::thread::yield_now();
        }
    }

    /// A handler in another thread may write the eventfd after its signal was taken: a spurious
    /// wake-up.
    fn wait_until_quiet(listener: &Listener) {
        let started = Instant::now();
        while poll_now(listener.as_raw_fd(), Interest::READ).unwrap() != Interest::NONE {
            assert_eq!(listener.take().count(), 0);
            assert!(started.elapsed() < LONG);
        }
    }

    fn action_of(signal: i32) -> libc::sighandler_t {
        exchange(signal, None).unwrap().sa_sigaction
    }

    #[test]
    fn g1_each_listener_gets_its_own_signals_once() {
        let (one, two) = (own_signal(1), own_signal(2));
        let both = Listener::new(&[one, two]).unwrap();
        let only = Listener::new(&[two]).unwrap();
        raise(one);
        assert_eq!(wait_for(&both), [one]);
        assert_eq!(only.take().count(), 0);
        raise(two);
        assert_eq!(wait_for(&both), [two]);
        assert_eq!(wait_for(&only), [two]);
        wait_until_quiet(&both);
    }

    #[test]
    fn signal_for_the_last_owner_of_a_slot_is_not_reported_to_the_next() {
        let (mine, late) = (own_signal(5), own_signal(6));
        let listener = Listener::new(&[mine]).unwrap();
        // Like a handler that had read the mask before the slot changed owners.
        let pending = &SLOTS[listener.slot].pending;
        pending.fetch_or(bit(late) | bit(mine), Ordering::AcqRel);
        assert_eq!(listener.take().collect::<Vec<_>>(), [mine]);
        assert_eq!(listener.take().count(), 0);
    }

    #[test]
    fn g2_the_previous_action_comes_back_with_the_last_listener() {
        let signal = own_signal(3);
        let before = action_of(signal);
        let one = Listener::new(&[signal]).unwrap();
        let two = Listener::new(&[signal]).unwrap();
        assert_ne!(action_of(signal), before);
        drop(one);
        assert_ne!(action_of(signal), before);
        drop(two);
        assert_eq!(action_of(signal), before);
        // An action set by other code is left alone.
        let third = Listener::new(&[signal]).unwrap();
        exchange(signal, Some(&with_handler(libc::SIG_IGN))).unwrap();
        drop(third);
        assert_eq!(action_of(signal), libc::SIG_IGN);
        exchange(signal, Some(&with_handler(before))).unwrap();
    }

    #[test]
    fn g3_what_cannot_be_listened_to_is_refused_and_leaves_nothing() {
        for signal in [0, -1, 65, i32::MAX, libc::SIGKILL, libc::SIGSEGV] {
            let refused = Listener::new(&[signal]).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "{signal}");
        }
        // 32 and 33 are reserved by the C library: its sigaction refuses them.
        let signal = own_signal(4);
        let before = action_of(signal);
        assert!(Listener::new(&[32, signal]).is_err());
        assert_eq!(action_of(signal), before);
    }
}
