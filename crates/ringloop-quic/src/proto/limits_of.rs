//! The part of a packet key's trait that keys which wrap another one pass on.

/// What a packet key says of itself, for one that wraps another in the field named.
macro_rules! limits_of {
    ($inner:tt) => {
        fn tag_len(&self) -> usize {
            self.$inner.tag_len()
        }

        fn confidentiality_limit(&self) -> u64 {
            self.$inner.confidentiality_limit()
        }

        fn integrity_limit(&self) -> u64 {
            self.$inner.integrity_limit()
        }
    };
}
pub(super) use limits_of;
