//! Stream ids: initiator and direction.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Opened the connection; sends requests.
    Client,
    /// Responds to them.
    Server,
}

/// The id of a QUIC stream (RFC 9000 §2.1), at most 2^62 − 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The end that opened it.
    pub const fn initiator(self) -> Role {
        if self.0 & 1 == 0 { Role::Client } else { Role::Server }
    }

    /// True if both ends send on it.
    pub const fn is_bidirectional(self) -> bool {
        self.0 & 2 == 0
    }

    /// True if it may carry a request: bidirectional, and opened by the client.
    pub const fn is_request(self) -> bool {
        self.is_bidirectional() && matches!(self.initiator(), Role::Client)
    }
}

/// A map by stream id.
pub type StreamMap<K, V> = HashMap<K, V, BuildHasherDefault<StreamHasher>>;

/// Hashes ids of streams. Not for keys that a peer chooses freely: ids are consecutive, and the limits
/// on streams bound how many are open.
#[derive(Debug, Default, Clone, Copy)]
pub struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, id: u64) {
        // Fibonacci hashing: the upper half of the product is mixed well.
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    #[test]
    fn consecutive_streams_have_different_hashes_in_both_halves() {
        let hashes = BuildHasherDefault::<StreamHasher>::default();
        let of = |number: u64| hashes.hash_one(StreamId(number * 4));
        for first in [0, 1 << 20, 1 << 40] {
            let low: HashSet<u64> = (first..first + 1024).map(|number| of(number) % 2048).collect();
            let high: HashSet<u64> = (first..first + 128).map(|number| of(number) >> 57).collect();
            assert!(low.len() > 600, "{} places of 1024 ids", low.len());
            assert!(high.len() > 40, "{} tags of 128 ids", high.len());
        }
    }
}
