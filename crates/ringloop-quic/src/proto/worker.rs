//! Connection ids that carry a worker's number, and are recognised by a key.
//!
//! ```text
//!   byte   0       1            2 – 3    4 – 7
//!          random  byte 0 ^ x   random   hash of the key and the rest
//! ```
//! `x` is a random byte which, modulo the number of workers, is the worker's number: without the
//! number of workers, little can be learned from it.

use super::{ConnectionId, ConnectionIdGenerator, InvalidCid, RandomConnectionIdGenerator};
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

const LEN: usize = 8;

/// Generates the ids of one worker.
pub(crate) struct WorkerIds {
    number: usize,
    count: usize,
    key: u64,
}

impl WorkerIds {
    pub(crate) fn new(number: usize, count: usize, key: u64) -> Self {
        Self { number, count, key }
    }

    pub(crate) fn random_key() -> u64 {
        let bytes = RandomConnectionIdGenerator::new(8).generate_cid();
        bytes.iter().fold(0, |key, byte| key << 8 | u64::from(*byte))
    }

    fn tag(&self, rest: &[u8]) -> [u8; 4] {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.key);
        hasher.write(rest);
        (hasher.finish() as u32).to_be_bytes()
    }
}

impl ConnectionIdGenerator for WorkerIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let random = RandomConnectionIdGenerator::new(LEN).generate_cid();
        let mut id = [0; LEN];
        id.copy_from_slice(&random);
        // One of the numbers below 256 that map to this worker.
        let choices = (255 - self.number) / self.count + 1;
        let x = self.number + usize::from(id[1]) % choices * self.count;
        id[1] = id[0] ^ x as u8;
        let tag = self.tag(&id[..4]);
        id[4..].copy_from_slice(&tag);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let is_ours = id.len() == LEN && self.tag(&id[..4]) == id[4..];
        is_ours.then_some(()).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_carry_their_worker_and_validate() {
        for count in [1, 2, 3, 7, 256] {
            for number in (0..count).step_by(3) {
                let mut ids = WorkerIds::new(number, count, 42);
                for _ in 0..50 {
                    let id = ids.generate_cid();
                    assert_eq!(usize::from(id[0] ^ id[1]) % count, number);
                    assert!(ids.validate(&id).is_ok());
                    assert!(WorkerIds::new(0, count, 43).validate(&id).is_err());
                }
            }
        }
    }
}
