//! The handler of invalid memory accesses (SIGSEGV, on Apple's systems SIGBUS too).
//!
//! Owns: the process's handlers, from the first [`install`] on. Called by: `fault`.
//!
//! Other faults go to the previous handler, which in a Rust program is std's. The handler runs on
//! the thread's alternate stack: std gives its threads one. A thread without one ends the process
//! without a message, as if there were no handler.
//!
//! # Invariants
//! 1. The handler calls only async-signal-safe functions (signal-safety(7)): `write`, `abort`,
//!    `sigaction`, loads of statics that were set before it was installed, and `explain`, which
//!    does the same.
//! 2. `PREVIOUS` were the process's handlers when ours replaced them, and are called as their flags say.

use super::Explain;
use crate::atomics::locked;
use crate::sys::platform::FAULTS;
use std::ffi::c_int;
use std::io;
use std::ptr;
use std::sync::{Mutex, OnceLock};

static EXPLAIN: OnceLock<Explain> = OnceLock::new();
/// By signal, as in [`FAULTS`].
static PREVIOUS: OnceLock<[libc::sigaction; FAULTS.len()]> = OnceLock::new();

/// Installs the handler, once in a process.
pub(crate) fn install(explain: Explain) -> io::Result<()> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = locked(&ONE);
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    let _ = EXPLAIN.set(explain);
    let mut previous = FAULTS.map(|_| default_action());
    for (signal, previous) in FAULTS.into_iter().zip(&mut previous) {
        *previous = exchange(signal, None)?;
    }
    let _ = PREVIOUS.set(previous);
    let mut action = default_action();
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    for signal in FAULTS {
        exchange(signal, Some(&action))?;
    }
    Ok(())
}

/// Sets a signal's action, if there is one to set; returns the previous action.
fn exchange(signal: c_int, action: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut previous = default_action();
    let action = action.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: invariant 1; the pointers are to values that outlive the call, or null.
    match unsafe { libc::sigaction(signal, action, &raw mut previous) } {
        0 => Ok(previous),
        _ => Err(io::Error::last_os_error()),
    }
}

fn default_action() -> libc::sigaction {
    // SAFETY: all zeros is the default action, with an empty mask.
    unsafe { std::mem::zeroed() }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid information to a handler with SA_SIGINFO.
    let known = unsafe { &*info };
    // SAFETY: the information of this signal has an address.
    let address = unsafe { known.si_addr() }.addr();
    if EXPLAIN.get().is_some_and(|explain| explain(address, write_stderr)) {
        // SAFETY: has no preconditions.
        unsafe { libc::abort() };
    }
    let known = PREVIOUS.get().and_then(|all| {
        let mut all = FAULTS.iter().zip(all);
        all.find(|(fault, _)| **fault == signal)
    });
    let Some((_, previous)) = known else {
        return;
    };
    match previous.sa_sigaction {
        // On return the same access faults again, and ends the process as without our handler.
        libc::SIG_DFL | libc::SIG_IGN => {
            drop(exchange(signal, Some(&default_action())));
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

/// Writes to standard error; a short write is ignored.
fn write_stderr(text: &[u8]) {
    // SAFETY: invariant 1; the range is that of the slice.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
