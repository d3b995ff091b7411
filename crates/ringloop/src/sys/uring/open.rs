//! Opens a ring: creates it, maps it, and tries what the drivers require.

use super::buffer_ring::BufferRing;
use super::kernel::{Kernel, Linux};
use super::refusal::{Cause, Refusal, Step};
use super::ring::Ring;
use super::setup::{self, Config};
use std::thread;
use std::time::Duration;

/// Pauses before retries for lack of memory: a kernel worker frees closed rings a moment later.
pub(super) const MEMORY_PAUSES: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(4), Duration::from_millis(16)];

impl Ring {
    /// Creates a ring, still disabled. Costs tens of microseconds; once per loop. See
    /// `io_uring_setup(2)`.
    ///
    /// # Errors
    /// A [`Refusal`] with cause and remedy.
    pub fn new(config: &Config) -> Result<Self, Refusal> {
        Self::new_with(config, &Linux)
    }

    pub(super) fn new_with(config: &Config, kernel: &dyn Kernel) -> Result<Self, Refusal> {
        for pause in MEMORY_PAUSES {
            match Self::try_new(config, kernel) {
                Err(Refusal { cause: Cause::NoMemory { .. } }) => thread::sleep(pause),
                answer => return answer,
            }
        }
        Self::try_new(config, kernel)
    }

    fn try_new(config: &Config, kernel: &dyn Kernel) -> Result<Self, Refusal> {
        let created = setup::create(config, kernel)?;
        let ring = Self::map(created).map_err(|e| setup::refusal(Step::Map, &e, kernel))?;
        // The drivers require buffer rings: find out here.
        BufferRing::register(&ring, 0, 1, 64, 0)
            .and_then(|buffers| buffers.unregister(&ring))
            .map_err(|e| setup::refusal(Step::Buffers, &e, kernel))?;
        Ok(ring)
    }
}
