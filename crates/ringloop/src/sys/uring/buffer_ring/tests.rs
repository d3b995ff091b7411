//! The invariants of buffer rings, each against the kernel.

use super::*;
use crate::sys::fd::AsRawFd;
use crate::sys::libc;
use crate::sys::pool::BUFFER_ALIGN;
use crate::sys::testing::LONG;
use crate::sys::uring::Config;
use crate::sys::uring::abi::*;
use std::io::Write;
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
    fixture_of(count, buf_len, 0)
}

fn fixture_of(count: u16, buf_len: u32, flags: u16) -> Fixture {
    let mut ring = Ring::new(&Config { entries: 8, cq_entries: 64, polling: None }).unwrap();
    ring.enable().unwrap();
    let buffers = BufferRing::register(&ring, GROUP, count, buf_len, flags).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    Fixture { ring, buffers, near, far }
}

impl Fixture {
    fn arm(&mut self, ioprio: u16) {
        let sqe = Sqe {
            opcode: IORING_OP_RECV,
            flags: IOSQE_BUFFER_SELECT,
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

    fn claim(&mut self, cqe: &Cqe) -> Option<PoolBuffer> {
        self.buffers.collect();
        // SAFETY: each test claims a completion of this ring once, in order.
        unsafe { self.buffers.claim(cqe) }
    }

    /// Sends bytes, and claims what their completion names.
    fn receive(&mut self, bytes: &[u8]) -> (i32, Option<PoolBuffer>) {
        let cqe = self.send(bytes);
        (cqe.res, self.claim(&cqe))
    }
}

#[test]
fn b1_every_buffer_is_aligned_and_as_long_as_asked() {
    let mut fixture = fixture(4, 100);
    fixture.arm(IORING_RECV_MULTISHOT);
    for fill in 0..8_u8 {
        let cqe = fixture.send(&[fill; 100]);
        assert!(cqe.more() && cqe.res == 100);
        let bytes = fixture.claim(&cqe).unwrap();
        assert_eq!(*bytes, [fill; 100]);
        assert_eq!(bytes.as_ptr() as usize % BUFFER_ALIGN, 0);
        drop(bytes);
        fixture.buffers.collect();
    }
    assert_eq!((fixture.buffers.group, fixture.buffers.count), (GROUP, 4));
    assert_eq!(fixture.buffers.buf_len, 100);
}

#[test]
fn b2_a_claimed_buffer_is_not_written_until_it_is_dropped() {
    let mut fixture = fixture(2, 64);
    fixture.arm(IORING_RECV_MULTISHOT);
    let one = fixture.send(b"one");
    let two = fixture.send(b"two");
    let (one, two) = (fixture.claim(&one).unwrap(), fixture.claim(&two).unwrap());
    assert_ne!(one.as_ptr(), two.as_ptr());
    // Both are claimed: the third message finds no buffer, ends the receive and stays in the
    // socket.
    let third = fixture.send(b"three");
    assert_eq!((third.res, third.more(), third.buffer()), (-libc::ENOBUFS, false, None));
    assert!(fixture.claim(&third).is_none());
    assert_eq!((&*one, &*two), (&b"one"[..], &b"two"[..]));
    let address = two.as_ptr();
    drop(two);
    fixture.buffers.collect();
    fixture.arm(IORING_RECV_MULTISHOT);
    let third = fixture.next();
    let third = fixture.claim(&third).unwrap();
    assert_eq!((third.as_ptr(), &*third), (address, &b"three"[..]));
    assert_eq!(&*one, b"one");
}

#[test]
fn p3_other_memory_is_offered_only_while_the_kernel_has_no_buffer() {
    let mut fixture = fixture(2, 64);
    fixture.arm(IORING_RECV_MULTISHOT);
    let (_, one) = fixture.receive(b"one");
    fixture.buffers.renew().unwrap();
    // The kernel had a buffer of the first memory, and fills that.
    let (_, two) = fixture.receive(b"two");
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(fixture.buffers.has_handed_out(&one) && fixture.buffers.has_handed_out(&two));
    assert_eq!(fixture.send(b"three").res, -libc::ENOBUFS);
    fixture.buffers.renew().unwrap();
    assert!(!fixture.buffers.has_handed_out(&one));
    fixture.arm(IORING_RECV_MULTISHOT);
    let third = fixture.next();
    let three = fixture.claim(&third).unwrap();
    let (_, four) = fixture.receive(b"four");
    let address = one.as_ptr();
    assert_eq!((&*one, &*two, &*three), (&b"one"[..], &b"two"[..], &b"three"[..]));
    drop(one);
    assert_eq!(fixture.send(b"five").res, -libc::ENOBUFS);
    fixture.buffers.renew().unwrap();
    fixture.arm(IORING_RECV_MULTISHOT);
    // Of the first memory one buffer is back, and is used before there is new memory.
    let fifth = fixture.next();
    let five = fixture.claim(&fifth).unwrap();
    assert_eq!((five.as_ptr(), &*five), (address, &b"five"[..]));
    assert_eq!((&*two, &*four.unwrap()), (&b"two"[..], &b"four"[..]));
}

#[test]
fn b2_a_bundle_is_claimed_whole_and_in_order_wherever_it_begins() {
    let mut fixture = fixture(8, 64);
    fixture.arm(IORING_RECV_MULTISHOT | IORING_RECVSEND_BUNDLE);
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
                // Dropped out of order, so that the ring's order is not that of the ids.
                held.drain(..).for_each(drop);
                fixture.buffers.collect();
                fixture.arm(IORING_RECV_MULTISHOT | IORING_RECVSEND_BUNDLE);
                continue;
            }
            // SAFETY: each completion of this ring is claimed once.
            let parts = unsafe { fixture.buffers.claim_bundle(&cqe) };
            let left = usize::try_from(cqe.res).unwrap();
            assert_eq!(parts.len(), left.div_ceil(64));
            let before = came;
            for part in parts {
                assert_eq!(*part, bytes[came..came + part.len()], "round {round}");
                came += part.len();
                held.push(part);
            }
            assert_eq!(came - before, left);
            if !cqe.more() {
                fixture.arm(IORING_RECV_MULTISHOT | IORING_RECVSEND_BUNDLE);
            }
            if held.len() > 5 {
                held.drain(..3).for_each(drop);
                fixture.buffers.collect();
            }
        }
        expected = expected.wrapping_add(len as u8);
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "not the kernel's"))]
fn b2_a_buffer_is_claimed_once() {
    let mut fixture = fixture(2, 64);
    let forged = Cqe { flags: IORING_CQE_F_BUFFER, ..Cqe::default() };
    let held = fixture.claim(&forged).unwrap();
    assert!(fixture.claim(&forged).is_none());
    assert_eq!(fixture.buffers.offered_count(), 1);
    drop(held);
}

#[test]
fn b2_a_dropped_buffer_is_offered_once() {
    let mut fixture = fixture(2, 64);
    let before = fixture.buffers.next;
    fixture.buffers.collect();
    assert_eq!(fixture.buffers.next, before);
    fixture.arm(IORING_RECV_MULTISHOT);
    drop(fixture.receive(b"x"));
    assert!(fixture.buffers.has_returned());
    fixture.buffers.collect();
    fixture.buffers.collect();
    assert_eq!(fixture.buffers.next, before.wrapping_add(1));
    assert_eq!(fixture.buffers.offered_count(), 2);
}

#[test]
fn b2_ids_out_of_range_are_ignored() {
    let mut fixture = fixture(2, 64);
    let forged =
        Cqe { flags: IORING_CQE_F_BUFFER | 9 << IORING_CQE_BUFFER_SHIFT, ..Cqe::default() };
    assert!(fixture.claim(&forged).is_none());
    // SAFETY: it names no buffer.
    assert!(unsafe { fixture.buffers.claim_bundle(&forged) }.is_empty());
}

#[test]
fn b2_a_held_buffer_is_not_offered_meanwhile() {
    let mut fixture = fixture(2, 64);
    fixture.arm(IORING_RECV_MULTISHOT);
    let kept = fixture.receive(b"kept").1.unwrap();
    for fill in 0..6_u8 {
        // Only the other buffer is offered.
        let other = fixture.receive(&[fill; 64]).1.unwrap();
        assert_ne!(other.as_ptr(), kept.as_ptr());
        assert_eq!(&*kept, b"kept");
        drop(other);
        fixture.buffers.collect();
    }
    drop(kept);
    fixture.buffers.collect();
    let addresses = [b"again", b"round"].map(|bytes| {
        let buffer = fixture.receive(bytes).1.unwrap();
        let address = buffer.as_ptr();
        drop(buffer);
        fixture.buffers.collect();
        address
    });
    assert_ne!(addresses[0], addresses[1]);
}

#[test]
fn b1_a_held_buffer_outlives_its_ring() {
    let mut fixture = fixture(2, 64);
    fixture.arm(IORING_RECV_MULTISHOT);
    let kept = fixture.receive(b"later").1.unwrap();
    drop(fixture);
    assert_eq!(&*kept, b"later");
}

#[test]
fn b2_pieces_of_one_buffer_keep_their_bytes_while_it_is_filled() {
    let mut fixture = fixture_of(2, 64, abi::IOU_PBUF_RING_INC);
    fixture.arm(IORING_RECV_MULTISHOT);
    let one = fixture.receive(b"one").1.unwrap();
    let two = fixture.receive(b"second").1.unwrap();
    let three = fixture.receive(&[b'3'; 30]).1.unwrap();
    assert_eq!((&*one, &*two), (&b"one"[..], &b"second"[..]));
    assert_eq!(*three, [b'3'; 30]);
    assert_eq!(one.as_ptr().wrapping_add(3), two.as_ptr());
}

#[test]
fn b2_a_buffer_is_reused_once_it_has_ended_and_no_piece_is_held() {
    let mut fixture = fixture_of(2, 16, abi::IOU_PBUF_RING_INC);
    fixture.arm(IORING_RECV_MULTISHOT);
    let (_, first) = fixture.receive(b"0123456789");
    let (count, rest) = fixture.receive(b"abcdef");
    assert_eq!(count, 6, "the buffer is full");
    assert_eq!(fixture.buffers.offered_count(), 1);
    drop(rest);
    fixture.buffers.collect();
    assert_eq!(fixture.buffers.offered_count(), 1, "its first piece is held");
    let (_, second) = fixture.receive(&[b'x'; 16]);
    assert_eq!(fixture.buffers.offered_count(), 0);
    let (none, _) = fixture.receive(b"y");
    assert_eq!(none, -libc::ENOBUFS);
    assert_eq!(&*first.unwrap(), b"0123456789");
    fixture.buffers.collect();
    assert_eq!(fixture.buffers.offered_count(), 1);
    assert_eq!(*second.unwrap(), [b'x'; 16]);
}

#[test]
fn b3_unregistering_frees_the_group_for_another() {
    let Fixture { ring, buffers, .. } = fixture(8, 64);
    let taken = BufferRing::register(&ring, GROUP, 8, 64, 0);
    assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EEXIST));
    buffers.unregister(&ring).unwrap();
    let again = BufferRing::register(&ring, GROUP, 16, 128, 0).unwrap();
    assert_eq!(again.count, 16);
    let other = Ring::new(&Config { entries: 1, cq_entries: 1, polling: None }).unwrap();
    let wrong = again.unregister(&other).unwrap_err();
    assert!(matches!(wrong.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)), "{wrong}");
}

#[test]
fn b4_the_tail_beside_entry_0_survives_many_rounds() {
    let mut fixture = fixture(1, 64);
    fixture.arm(IORING_RECV_MULTISHOT);
    for round in 0..70_000_u32 {
        let cqe = fixture.send(&round.to_ne_bytes());
        let buffer = fixture.claim(&cqe).unwrap();
        assert_eq!(*buffer, round.to_ne_bytes());
        drop(buffer);
        fixture.buffers.collect();
        if !cqe.more() {
            fixture.arm(IORING_RECV_MULTISHOT);
        }
    }
}

#[test]
fn b5_numbers_that_the_kernel_would_misread_are_refused() {
    let ring = Ring::new(&Config { entries: 1, cq_entries: 1, polling: None }).unwrap();
    for (count, buf_len) in [(0, 64), (3, 64), (65535, 64), (4, 0)] {
        let refused = BufferRing::register(&ring, 1, count, buf_len, 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "{count} × {buf_len}");
    }
    BufferRing::register(&ring, 1, 32768, 1, 0).unwrap().unregister(&ring).unwrap();
}

#[test]
fn a_single_receive_takes_one_buffer() {
    let mut fixture = fixture(4, 8);
    fixture.arm(0);
    let cqe = fixture.send(b"0123456789");
    let is_nonempty = cqe.flags & IORING_CQE_F_SOCK_NONEMPTY != 0;
    assert_eq!((cqe.res, cqe.more(), is_nonempty), (8, false, true));
    assert_eq!(&*fixture.claim(&cqe).unwrap(), b"01234567");
}
