//! The handler of invalid memory accesses, a vectored exception handler.
//!
//! Owns: the process's handler, from the first [`install`] on. Called by: `fault`.
//!
//! It is called before others: std's, which would name the thread, and those of frames. It runs on
//! the stack that has overflowed, in the guarantee that the system has kept for it.
//!
//! # Invariants
//! 1. The handler takes no lock and little of the stack: `explain` formats into an array, `write`
//!    is a system call.

use super::Explain;
use crate::atomics::locked;
use std::io;
use std::process::abort;
use std::ptr;
use std::sync::{Mutex, OnceLock};
use windows_sys::Win32::Foundation::{EXCEPTION_ACCESS_VIOLATION, EXCEPTION_STACK_OVERFLOW};
use windows_sys::Win32::Storage::FileSystem::WriteFile;
use windows_sys::Win32::System::Console::{GetStdHandle, STD_ERROR_HANDLE};
use windows_sys::Win32::System::Diagnostics::Debug::{
    AddVectoredExceptionHandler, EXCEPTION_CONTINUE_SEARCH, EXCEPTION_POINTERS,
};

/// A read is 0; code that is not executable is 8.
const WRITE: usize = 1;

static EXPLAIN: OnceLock<Explain> = OnceLock::new();

/// Installs the handler, once in a process.
pub(crate) fn install(explain: Explain) -> io::Result<()> {
    static ONE: Mutex<bool> = Mutex::new(false);
    let mut is_installed = locked(&ONE);
    if *is_installed {
        return Ok(());
    }
    let _ = EXPLAIN.set(explain);
    // SAFETY: invariant 1; the function lives as long as the process.
    if unsafe { AddVectoredExceptionHandler(1, Some(handle)) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    *is_installed = true;
    Ok(())
}

unsafe extern "system" fn handle(pointers: *mut EXCEPTION_POINTERS) -> i32 {
    // SAFETY: the system passes valid pointers.
    let pointers = unsafe { &*pointers };
    // SAFETY: as above.
    let record = unsafe { &*pointers.ExceptionRecord };
    let address = match record.ExceptionCode {
        EXCEPTION_ACCESS_VIOLATION if record.ExceptionInformation[0] <= WRITE => {
            record.ExceptionInformation[1]
        }
        // Where the stack was, since this exception need not have the address of the access.
        EXCEPTION_STACK_OVERFLOW => {
            // SAFETY: as above.
            let context = unsafe { &*pointers.ContextRecord };
            context.Rsp as usize
        }
        _ => return EXCEPTION_CONTINUE_SEARCH,
    };
    if EXPLAIN.get().is_some_and(|explain| explain(address, write_stderr)) {
        abort();
    }
    EXCEPTION_CONTINUE_SEARCH
}

/// Writes to standard error; a short write is ignored.
fn write_stderr(text: &[u8]) {
    // SAFETY: no pointer is passed.
    let stderr = unsafe { GetStdHandle(STD_ERROR_HANDLE) };
    let (len, mut written) = (text.len() as u32, 0);
    // SAFETY: the range is that of the slice, the count is live for the call.
    unsafe { WriteFile(stderr, text.as_ptr(), len, &raw mut written, ptr::null_mut()) };
}
