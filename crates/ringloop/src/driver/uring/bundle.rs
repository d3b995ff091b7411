//! Receives into pools other than the common one: several buffers per completion, or pieces of
//! shared buffers.
//!
//! Called by: `driver::uring`. If the kernel does not support it, a receive uses the common pool.

use super::{UringDriver, claim_bundle};
use crate::buf::PoolKind;
use crate::op::Key;
use crate::sys::pool::PoolBuffer;
use crate::sys::uring::Feature;
use crate::sys::uring::abi::Cqe;

impl UringDriver {
    /// See [`crate::driver::Driver::receive_pool`].
    pub(in crate::driver) fn receive_pool(&mut self, wanted: PoolKind) -> PoolKind {
        let feature = match wanted {
            PoolKind::Bundles => Feature::RecvsendBundle,
            PoolKind::Pieces => Feature::IncrementalBuffers,
            PoolKind::Streams | PoolKind::Datagrams | PoolKind::Singles => return wanted,
        };
        let is_there =
            self.ring.features().has(feature) && self.pools.open(&self.ring, wanted).is_ok();
        if is_there { wanted } else { PoolKind::Streams }
    }

    /// Delivers all buffers of a bundle but the last, which is returned with its length and
    /// completes as usual.
    pub(super) fn hand_out_bundle(&mut self, key: Key, cqe: &Cqe) -> (i32, Option<PoolBuffer>) {
        let mut left = cqe.res;
        let mut last = None;
        for buffer in claim_bundle(&mut self.pools, cqe) {
            if let Some(full) = last.replace(buffer) {
                let len = PoolKind::Bundles.buffer_len() as i32;
                left -= len;
                let event = self.deliver(key, len, true, Some(full));
                debug_assert!(event.is_none(), "only futures receive bundles");
            }
        }
        (left, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::uring::tests::driver;

    #[test]
    fn kernel_without_such_buffers_receives_into_the_common_ones() {
        let mut driver = driver();
        let special = [PoolKind::Bundles, PoolKind::Pieces];
        let features = driver.ring.features();
        let has =
            [Feature::RecvsendBundle, Feature::IncrementalBuffers].map(|one| features.has(one));
        for (wanted, has) in special.into_iter().zip(has) {
            let expected = if has { wanted } else { PoolKind::Streams };
            assert_eq!(driver.receive_pool(wanted), expected);
        }
        driver.ring.pretend_plain();
        for wanted in special {
            assert_eq!(driver.receive_pool(wanted), PoolKind::Streams);
        }
        assert_eq!(driver.receive_pool(PoolKind::Datagrams), PoolKind::Datagrams);
    }
}
