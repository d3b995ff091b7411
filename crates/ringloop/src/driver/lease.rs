//! A detached pool buffer with received bytes.
//!
//! Owns: [`Lease`]. Called by: `executor::Received`, which returns it on drop. A lease that is
//! dropped or forgotten only costs the pool its buffer.

use super::pool;
use crate::sys::uring::Detached;

/// A buffer that its driver neither writes to nor hands out until it is returned.
#[derive(Debug)]
pub(crate) struct Lease(pub(super) Memory);

/// The pool the buffer comes from.
#[derive(Debug)]
pub(super) enum Memory {
    /// A buffer ring.
    Ring(Detached),
    /// A pool of the readiness driver.
    Pool(pool::Detached),
}

impl Lease {
    /// The whole buffer, received bytes first.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Memory::Ring(buffer) => buffer.bytes(),
            Memory::Pool(buffer) => buffer.bytes(),
        }
    }
}
