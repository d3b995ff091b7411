//! A look at a child that does not reap it.
//!
//! # Invariants
//! - **H2** All-zero bytes are a valid `siginfo_t`; the pointer given to `waitid` is to a live local.

use super::super::check;
use std::io;

/// True if a child has ended and is still to be reaped. See waitid(2).
///
/// # Errors
/// `ECHILD` if it is no child of this process, or has been reaped.
pub fn is_zombie(kind: libc::idtype_t, id: libc::id_t) -> io::Result<bool> {
    // SAFETY: H2.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: H2.
    check(unsafe { libc::waitid(kind, id, &raw mut info, options) })?;
    // Without a child that has ended, the kernel writes zeros.
    Ok(info.si_signo != 0)
}
