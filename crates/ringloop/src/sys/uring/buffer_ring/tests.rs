//! The invariants of buffer rings, each against the kernel.

use super::*;
use crate::sys::testing::LONG;
use crate::sys::uring::Config;
use crate::sys::uring::abi::*;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

const GROUP: u16 = 7;

struct Fixture {
    // Dropped in order: the ring's requests end before the buffers are freed.
    ring: Ring,
    buffers: BufferRing,
    near: UnixStream,
    far: UnixStream,
}

fn fixture(count: u16, buf_len: u32) -> Fixture {
    let mut ring = Ring::new(&Config {
        entries: 8,
        cq_entries: 64,
        polling: None,
    })
    .unwrap();
    ring.enable().unwrap();
    let buffers = BufferRing::register(&ring, GROUP, count, buf_len).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    Fixture {
        ring,
        buffers,
        near,
        far,
    }
}

impl Fixture {
    fn arm(&mut self, ioprio: u16) {
        let sqe = Sqe {
            opcode: OP_RECV,
            flags: SQE_BUFFER_SELECT,
            ioprio,
            fd: self.far.as_raw_fd(),
            buf_index: GROUP,
            ..Sqe::default()
        };
        // SAFETY: the entry names only the group, which lives in the fixture.
        unsafe { self.ring.push(sqe) }.unwrap();
        self.ring.enter(0, None).unwrap();
    }

    fn send(&mut self, bytes: &[u8]) -> Cqe {
        self.near.write_all(bytes).unwrap();
        self.next()
    }

    fn next(&mut self) -> Cqe {
        self.ring.enter(1, Some(LONG)).unwrap();
        self.ring.pop().unwrap()
    }

    fn claim(&mut self, cqe: &Cqe) -> Option<u16> {
        // SAFETY: each test claims a completion of this ring once.
        unsafe { self.buffers.claim(cqe) }
    }
}

#[test]
fn b1_every_buffer_is_aligned_and_as_long_as_asked() {
    let mut fixture = fixture(4, 100);
    fixture.arm(RECV_MULTISHOT);
    for fill in 0..8_u8 {
        let cqe = fixture.send(&[fill; 100]);
        assert!(cqe.more() && cqe.res == 100);
        let id = fixture.claim(&cqe).unwrap();
        let bytes = fixture.buffers.bytes(id, 100);
        assert_eq!(bytes, [fill; 100]);
        assert_eq!(bytes.as_ptr() as usize % BUFFER_ALIGN, 0);
        assert_eq!(fixture.buffers.bytes(id, usize::MAX).len(), 100);
        fixture.buffers.recycle(id);
    }
    assert_eq!(
        (fixture.buffers.group(), fixture.buffers.count()),
        (GROUP, 4)
    );
    assert_eq!(fixture.buffers.buf_len(), 100);
}

#[test]
fn b2_a_claimed_buffer_is_not_written_until_it_is_recycled() {
    let mut fixture = fixture(2, 64);
    fixture.arm(RECV_MULTISHOT);
    let one = fixture.send(b"one");
    let two = fixture.send(b"two");
    let (one, two) = (fixture.claim(&one).unwrap(), fixture.claim(&two).unwrap());
    assert_ne!(one, two);
    // Both are claimed: the third message finds no buffer, ends the receive and stays in the
    // socket.
    let third = fixture.send(b"three");
    assert_eq!(
        (third.res, third.more(), third.buffer()),
        (-libc::ENOBUFS, false, None)
    );
    assert_eq!(fixture.claim(&third), None);
    assert_eq!(fixture.buffers.bytes(one, 3), b"one");
    assert_eq!(fixture.buffers.bytes(two, 3), b"two");
    fixture.buffers.recycle(two);
    fixture.arm(RECV_MULTISHOT);
    let third = fixture.next();
    assert_eq!(fixture.claim(&third), Some(two));
    assert_eq!(fixture.buffers.bytes(two, 5), b"three");
    assert_eq!(fixture.buffers.bytes(one, 3), b"one");
}

#[test]
fn b2_a_bundle_is_claimed_whole_and_in_order_wherever_it_begins() {
    let mut fixture = fixture(8, 64);
    fixture.arm(RECV_MULTISHOT | RECVSEND_BUNDLE);
    let mut expected = 0_u8;
    let mut held = Vec::new();
    for round in 0..40_usize {
        let len = 1 + round * 37 % (64 * 6);
        let bytes: Vec<u8> = (0..len).map(|at| expected.wrapping_add(at as u8)).collect();
        fixture.near.write_all(&bytes).unwrap();
        let mut came = 0;
        while came < len {
            let cqe = fixture.next();
            if cqe.res == -libc::ENOBUFS {
                // Recycled out of order, so that the ring's order is not that of the ids.
                held.drain(..)
                    .rev()
                    .for_each(|id| fixture.buffers.recycle(id));
                fixture.arm(RECV_MULTISHOT | RECVSEND_BUNDLE);
                continue;
            }
            let mut ids = Vec::new();
            // SAFETY: each completion of this ring is claimed once.
            unsafe { fixture.buffers.claim_bundle(&cqe, &mut ids) };
            let mut left = usize::try_from(cqe.res).unwrap();
            assert_eq!(ids.len(), left.div_ceil(64));
            for id in ids {
                let part = fixture.buffers.bytes(id, left);
                assert_eq!(part, &bytes[came..came + left.min(64)], "round {round}");
                came += part.len();
                left -= part.len();
                held.push(id);
            }
            if !cqe.more() {
                fixture.arm(RECV_MULTISHOT | RECVSEND_BUNDLE);
            }
            if held.len() > 5 {
                held.drain(..3)
                    .rev()
                    .for_each(|id| fixture.buffers.recycle(id));
            }
        }
        expected = expected.wrapping_add(len as u8);
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "recycled twice"))]
fn b2_recycling_twice_offers_once() {
    let mut fixture = fixture(2, 64);
    let before = fixture.buffers.next;
    fixture.buffers.recycle(0);
    assert_eq!(fixture.buffers.next, before);
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "the kernel's"))]
fn b2_an_offered_buffer_reads_as_empty() {
    assert_eq!(fixture(2, 64).buffers.bytes(0, 64), b"");
}

#[test]
fn b2_ids_out_of_range_are_ignored() {
    let mut fixture = fixture(2, 64);
    let forged = Cqe {
        flags: CQE_F_BUFFER | 9 << CQE_BUFFER_SHIFT,
        ..Cqe::default()
    };
    assert_eq!(fixture.claim(&forged), None);
    assert!(!fixture.buffers.is_claimed(9));
}

#[test]
fn b2_a_detached_buffer_is_its_owners_until_it_is_given_back() {
    let mut fixture = fixture(2, 64);
    fixture.arm(RECV_MULTISHOT);
    let cqe = fixture.send(b"kept");
    let id = fixture.claim(&cqe).unwrap();
    let kept = fixture.buffers.detach(id).unwrap();
    assert!(fixture.buffers.detach(id).is_none(), "detached twice");
    for fill in 0..6_u8 {
        // Only the other buffer is offered meanwhile.
        let cqe = fixture.send(&[fill; 64]);
        let other = fixture.claim(&cqe).unwrap();
        assert_ne!(other, id);
        assert_eq!(&kept.bytes()[..4], b"kept");
        fixture.buffers.recycle(other);
    }
    let stranger = self::fixture(2, 64).buffers.take_back(kept);
    assert!(!stranger, "another group's");
    let cqe = fixture.send(b"again");
    let again = fixture.claim(&cqe).unwrap();
    let again = fixture.buffers.detach(again).unwrap();
    assert!(fixture.buffers.take_back(again));
    let cqe = fixture.send(b"round");
    assert!(fixture.claim(&cqe).is_some());
}

#[test]
fn b1_a_detached_buffer_outlives_its_ring() {
    let mut fixture = fixture(2, 64);
    fixture.arm(RECV_MULTISHOT);
    let cqe = fixture.send(b"later");
    let id = fixture.claim(&cqe).unwrap();
    let kept = fixture.buffers.detach(id).unwrap();
    drop(fixture);
    assert_eq!(&kept.bytes()[..5], b"later");
}

#[test]
fn b3_unregistering_frees_the_group_for_another() {
    let Fixture { ring, buffers, .. } = fixture(8, 64);
    let taken = BufferRing::register(&ring, GROUP, 8, 64);
    assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EEXIST));
    buffers.unregister(&ring).unwrap();
    let again = BufferRing::register(&ring, GROUP, 16, 128).unwrap();
    assert_eq!(again.count(), 16);
    let other = Ring::new(&Config {
        entries: 1,
        cq_entries: 1,
        polling: None,
    })
    .unwrap();
    let wrong = again.unregister(&other).unwrap_err();
    assert!(
        matches!(wrong.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)),
        "{wrong}"
    );
}

#[test]
fn b4_the_tail_beside_entry_0_survives_many_rounds() {
    let mut fixture = fixture(1, 64);
    fixture.arm(RECV_MULTISHOT);
    for round in 0..70_000_u32 {
        let cqe = fixture.send(&round.to_ne_bytes());
        let id = fixture.claim(&cqe).unwrap();
        assert_eq!(fixture.buffers.bytes(id, 4), round.to_ne_bytes());
        fixture.buffers.recycle(id);
        if !cqe.more() {
            fixture.arm(RECV_MULTISHOT);
        }
    }
}

#[test]
fn b5_numbers_that_the_kernel_would_misread_are_refused() {
    let ring = Ring::new(&Config {
        entries: 1,
        cq_entries: 1,
        polling: None,
    })
    .unwrap();
    for (count, buf_len) in [(0, 64), (3, 64), (65535, 64), (4, 0)] {
        let refused = BufferRing::register(&ring, 1, count, buf_len).unwrap_err();
        assert_eq!(
            refused.raw_os_error(),
            Some(libc::EINVAL),
            "{count} × {buf_len}"
        );
    }
    BufferRing::register(&ring, 1, 32768, 1)
        .unwrap()
        .unregister(&ring)
        .unwrap();
}

#[test]
fn a_single_receive_takes_one_buffer() {
    let mut fixture = fixture(4, 8);
    fixture.arm(0);
    let cqe = fixture.send(b"0123456789");
    assert_eq!((cqe.res, cqe.more(), cqe.sock_nonempty()), (8, false, true));
    let id = fixture.claim(&cqe).unwrap();
    assert_eq!(fixture.buffers.bytes(id, 8), b"01234567");
}
