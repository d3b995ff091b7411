//! The ring's invariants and promises, each on the running kernel.

use super::*;
use crate::sys::uring::abi::*;

fn disabled(entries: u32, cq_entries: u32) -> Ring {
    Ring::new(&Config {
        entries,
        cq_entries,
    })
    .unwrap()
}

fn enabled(entries: u32, cq_entries: u32) -> Ring {
    let mut ring = disabled(entries, cq_entries);
    ring.enable().unwrap();
    ring
}

fn nop(user_data: u64) -> Sqe {
    Sqe {
        opcode: OP_NOP,
        user_data,
        ..Sqe::default()
    }
}

/// Push an entry that names no memory, or memory that outlives the test's ring.
fn push(ring: &mut Ring, sqe: Sqe) -> Result<(), Sqe> {
    // SAFETY: R4, see above.
    unsafe { ring.push(sqe) }
}

fn reap(ring: &mut Ring, count: usize) -> Vec<Cqe> {
    let mut cqes = Vec::new();
    while cqes.len() < count {
        ring.enter(1, None).unwrap();
        cqes.extend(std::iter::from_fn(|| ring.pop()));
    }
    cqes
}

#[test]
fn r1_every_slot_carries_its_entry_also_when_the_indices_wrap() {
    let mut ring = enabled(8, 16);
    assert_eq!(ring.capacity(), (8, 16));
    for round in 0..100_u64 {
        for slot in 0..8 {
            push(&mut ring, nop(round * 8 + slot)).unwrap();
        }
        let data: Vec<_> = reap(&mut ring, 8).iter().map(|cqe| cqe.user_data).collect();
        assert_eq!(data, (round * 8..round * 8 + 8).collect::<Vec<_>>());
    }
}
