//! Constants of the ring driver.

use std::time::Duration;

/// The kinds of `user_data`, in its top byte.
pub(super) const KIND_OP: u64 = 0;
pub(super) const KIND_CANCEL: u64 = 1;
pub(super) const KIND_WAKE: u64 = 2;
pub(super) const KIND_SET: u64 = 3;

/// Most descriptors that an entry names.
pub(super) const DESCRIPTORS_MAX: usize = 2;

/// How long a closing driver waits at a time for operations to end.
pub(super) const DRAIN_STEP: Duration = Duration::from_millis(10);
