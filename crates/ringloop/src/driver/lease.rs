//! A pool buffer with received bytes as a value of its own.
//!
//! Owns: [`Lease`]. Called by: `executor::Received`, which gives it back when it is dropped.
//! Never does: give a buffer back by itself; a lease that is dropped or forgotten loses its buffer to the
//! pool, and nothing else.

use super::pool;
use crate::sys::uring::Detached;

/// A buffer that its driver neither writes nor hands out until it is given back.
#[derive(Debug)]
pub(crate) struct Lease(pub(super) Memory);

/// Whose buffer it is.
#[derive(Debug)]
pub(super) enum Memory {
    /// Of a buffer ring.
    Ring(Detached),
    /// Of a pool of the readiness driver.
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
