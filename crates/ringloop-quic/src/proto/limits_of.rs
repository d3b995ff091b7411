//! Trait methods that a packet key forwards to the key it wraps.

/// Forwards a packet key's limits to the wrapped key in the named field.
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
