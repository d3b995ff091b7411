//! The signal of an access to memory that is not there (SIGSEGV).
//!
//! Owns: the process's handler, from the first [`watch`] on, and the stack that it runs on in a thread that had none.
//! Called by: `overflow`. Never does: allocate or lock in the handler.
//!
//! A fault that is not ours goes to the handler that was there before, which in a Rust program is std's.
//!
//! # Invariants
//! 1. The handler calls only what may be called in one (signal-safety(7)): `write`, `abort`, `sigaction`, loads of
//!    statics that were set before it was installed, and the `explain` that it was given, which keeps to the same.
//! 2. What `PREVIOUS` names was a handler of the process when ours replaced it, and is called as its flags say.
//! 3. An alternate stack is mapped until its thread has given it up.

use super::memory::{Mapping, page_len};
use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Says on standard error (by its second argument) what the fault at an address was; `false`: it is none of ours.
pub(crate) type Explain = fn(address: usize, say: fn(&[u8])) -> bool;

/// Bytes of the stack that the handler runs on in a thread without one.
const ALTERNATE_STACK_LEN: usize = 64 * 1024;

static EXPLAIN: OnceLock<Explain> = OnceLock::new();
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A thread whose faults are explained, until it is dropped.
#[derive(Debug)]
pub(crate) struct FaultGuard {
    /// The stack of the handler, where the thread had none.
    stack: Option<Mapping>,
    /// It is the thread's own.
    thread: PhantomData<Cell<()>>,
}

/// Have the faults of the calling thread explained, on a stack of their own.
pub(crate) fn watch(explain: Explain) -> io::Result<FaultGuard> {
    install(explain)?;
    let mut known = no_stack();
    // SAFETY: the pointers are to values of this frame, or null.
    if unsafe { libc::sigaltstack(ptr::null(), &raw mut known) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let thread = PhantomData;
    if known.ss_flags & libc::SS_DISABLE == 0 {
        return Ok(FaultGuard {
            stack: None,
            thread,
        });
    }
    let mapping = Mapping::new(ALTERNATE_STACK_LEN)?;
    mapping.guard(0)?;
    let guard_len = page_len();
    let stack = libc::stack_t {
        ss_sp: ptr::with_exposed_provenance_mut(mapping.low().get() + guard_len),
        ss_flags: 0,
        ss_size: mapping.len() - guard_len,
    };
    // SAFETY: invariant 3.
    if unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(FaultGuard {
        stack: Some(mapping),
        thread,
    })
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        if self.stack.is_some() {
            let none = no_stack();
            // SAFETY: invariant 3: given up before the mapping goes. The watch is on its own thread.
            unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) };
        }
    }
}

fn no_stack() -> libc::stack_t {
    libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: ALTERNATE_STACK_LEN,
    }
}

/// Install the handler, once in a process.
fn install(explain: Explain) -> io::Result<()> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    let _ = EXPLAIN.set(explain);
    let mut previous = default_action();
    // SAFETY: the pointers are to values of this frame, or null.
    if unsafe { libc::sigaction(libc::SIGSEGV, ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = PREVIOUS.set(previous);
    let mut action = default_action();
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: invariant 1.
    if unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn default_action() -> libc::sigaction {
    // SAFETY: all zeros is an action: the default one, with an empty mask.
    unsafe { std::mem::zeroed() }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO its information.
    let known = unsafe { &*info };
    // SAFETY: of this signal the information has an address.
    let address = unsafe { known.si_addr() }.addr();
    if EXPLAIN.get().is_some_and(|explain| explain(address, say)) {
        // SAFETY: it does not return, and needs nothing.
        unsafe { libc::abort() };
    }
    let Some(previous) = PREVIOUS.get() else {
        return;
    };
    match previous.sa_sigaction {
        // On return the same access faults again, and the process ends as if we had never been there.
        libc::SIG_DFL | libc::SIG_IGN => {
            let action = default_action();
            // SAFETY: invariant 1.
            unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        }
        function if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            let function = ptr::with_exposed_provenance::<()>(function);
            // SAFETY: invariant 2.
            let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(function) };
            function(signal, info, context);
        }
        function => {
            let function = ptr::with_exposed_provenance::<()>(function);
            // SAFETY: invariant 2.
            let function: extern "C" fn(c_int) = unsafe { std::mem::transmute(function) };
            function(signal);
        }
    }
}

/// To standard error, as far as it goes.
fn say(words: &[u8]) {
    // SAFETY: invariant 1; the range is that of the slice.
    unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
}
