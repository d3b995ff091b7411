//! The handler of invalid memory accesses (SIGSEGV).
//!
//! Owns: the process's handler, from the first [`watch`] on, and the alternate stack of a thread
//! that had none. Called by: `overflow`.
//!
//! Other faults go to the previous handler, which in a Rust program is std's.
//!
//! # Invariants
//! 1. The handler calls only async-signal-safe functions (signal-safety(7)): `write`, `abort`,
//!    `sigaction`, loads of statics that were set before it was installed, and `explain`, which
//!    does the same.
//! 2. `PREVIOUS` was the process's handler when ours replaced it, and is called as its flags say.
//! 3. An alternate stack stays mapped until its thread has disabled it.

use super::memory::{Mapping, page_len};
use crate::atomics::locked;
use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Mutex, OnceLock};

/// Explains the fault at an address, by its second argument; `false` for a fault that is not ours.
pub(crate) type Explain = fn(address: usize, write: fn(&[u8])) -> bool;

/// Bytes of the alternate stack of a thread that has none.
const ALTERNATE_STACK_LEN: usize = 64 * 1024;

static EXPLAIN: OnceLock<Explain> = OnceLock::new();
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Has the faults of its thread explained until it is dropped.
#[derive(Debug)]
pub(crate) struct FaultGuard {
    /// The alternate stack, if the thread had none.
    stack: Option<Mapping>,
    /// It stays on its thread.
    not_send: PhantomData<Cell<()>>,
}

/// Has the faults of the calling thread explained, on an alternate stack.
pub(crate) fn watch(explain: Explain) -> io::Result<FaultGuard> {
    install(explain)?;
    let mut known = no_stack();
    // SAFETY: the pointers are to values of this frame, or null.
    if unsafe { libc::sigaltstack(ptr::null(), &raw mut known) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let not_send = PhantomData;
    if known.ss_flags & libc::SS_DISABLE == 0 {
        return Ok(FaultGuard {
            stack: None,
            not_send,
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
        not_send,
    })
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        if self.stack.is_some() {
            let none = no_stack();
            // SAFETY: invariant 3: disabled before it is unmapped, on its own thread.
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

/// Installs the handler, once in a process.
fn install(explain: Explain) -> io::Result<()> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = locked(&ONE);
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
    // SAFETY: all zeros is the default action, with an empty mask.
    unsafe { std::mem::zeroed() }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid information to a handler with SA_SIGINFO.
    let known = unsafe { &*info };
    // SAFETY: the information of this signal has an address.
    let address = unsafe { known.si_addr() }.addr();
    if EXPLAIN
        .get()
        .is_some_and(|explain| explain(address, write_stderr))
    {
        // SAFETY: has no preconditions.
        unsafe { libc::abort() };
    }
    let Some(previous) = PREVIOUS.get() else {
        return;
    };
    match previous.sa_sigaction {
        // On return the same access faults again, and ends the process as without our handler.
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

/// Writes to standard error; a short write is ignored.
fn write_stderr(text: &[u8]) {
    // SAFETY: invariant 1; the range is that of the slice.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
