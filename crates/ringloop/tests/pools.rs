//! An exhausted pool of receive buffers: starved receives get their bytes, can be cancelled, and
//! neither keep the loop spinning nor lose a buffer. `datagrams.rs` has the same for the pool of
//! datagrams.
#![allow(clippy::unwrap_used)]

use ringloop::embed::limits;
use ringloop::embed::op::{RecvMulti, Request};
use ringloop::embed::{Event, Kind};
use ringloop_testing::drivers;
use ringloop_testing::engine::{Bed, alone, on_both, open_descriptors, tcp_pair, write_all};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Takes all of the pool: as many one-byte messages as there are buffers, on a separate connection.
fn exhaust_pool(bed: &mut Bed) -> Vec<Event> {
    let (ours, mut peer) = tcp_pair();
    let fd = ours.as_raw_fd();
    let (key, token) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
    let mut held = Vec::new();
    while held.len() < usize::from(limits::POOL_BUFFERS) {
        write_all(&mut peer, b"x");
        let completion = bed.expect(token);
        assert!(completion.buffer.is_some());
        held.push(Event { token, key, completion });
    }
    bed.forget(key);
    bed.settle();
    bed.release(&ours);
    held
}

fn give_back_held(bed: &mut Bed, held: Vec<Event>) {
    for mut event in held {
        assert_eq!(bed.take_bytes(&mut event.completion), b"x");
    }
}

#[test]
fn starved_receiver_gets_its_bytes_once_a_buffer_is_back() {
    on_both(|bed| {
        let held = exhaust_pool(bed);
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (key, token) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
        write_all(&mut peer, b"hello");
        bed.expect_none(token);
        // Out of buffers is a pause; it must not keep the loop spinning.
        bed.assert_sleeps();
        give_back_held(bed, held);
        let mut completion = bed.expect(token);
        assert_eq!(bed.take_bytes(&mut completion), b"hello");
        assert!(completion.more);
        bed.forget(key);
        bed.drain();
    });
}

#[test]
fn starved_receivers_get_the_buffers_in_the_order_in_which_they_came_to_wait() {
    on_both(|bed| {
        let mut held = exhaust_pool(bed);
        let mut waiting = Vec::new();
        for _ in 0..8 {
            let (ours, mut peer) = tcp_pair();
            let receive = Request::RecvMulti(RecvMulti::new(ours.as_raw_fd()));
            let (key, token) = bed.submit(receive);
            write_all(&mut peer, b"hello");
            bed.expect_none(token);
            waiting.push((ours, peer, key, token));
        }
        let mut served = Vec::new();
        for at in 0..waiting.len() {
            give_back_held(bed, held.pop().into_iter().collect());
            served.push(bed.expect(waiting[at].3));
            for later in &waiting[at + 1..] {
                bed.expect_none(later.3);
            }
            bed.assert_sleeps();
        }
        for (_, _, key, _) in &waiting {
            bed.forget(*key);
        }
        for mut completion in served {
            assert_eq!(bed.take_bytes(&mut completion), b"hello");
        }
        give_back_held(bed, held);
        bed.drain();
    });
}

/// Of the readiness driver: on the ring, the kernel chooses between receives that it has.
#[test]
fn stream_that_became_ready_later_does_not_overtake_starved_receivers() {
    on_both(|bed| {
        if bed.kind() == Kind::Uring {
            return;
        }
        let (later, mut later_peer) = tcp_pair();
        let receive = Request::RecvMulti(RecvMulti::new(later.as_raw_fd()));
        let (later_key, later_token) = bed.submit(receive);
        bed.settle();
        let mut held = exhaust_pool(bed);
        let mut starved = Vec::new();
        for _ in 0..2 {
            let (ours, mut peer) = tcp_pair();
            let receive = Request::RecvMulti(RecvMulti::new(ours.as_raw_fd()));
            let (key, token) = bed.submit(receive);
            write_all(&mut peer, b"hello");
            bed.expect_none(token);
            starved.push((ours, peer, key, token));
        }
        write_all(&mut later_peer, b"later");
        let mut completions = Vec::new();
        for (_, _, key, token) in &starved {
            give_back_held(bed, held.pop().into_iter().collect());
            completions.push(bed.expect(*token));
            bed.expect_none(later_token);
            bed.forget(*key);
        }
        give_back_held(bed, held);
        let mut completion = bed.expect(later_token);
        assert_eq!(bed.take_bytes(&mut completion), b"later");
        bed.forget(later_key);
        for mut completion in completions {
            assert_eq!(bed.take_bytes(&mut completion), b"hello");
        }
        bed.drain();
    });
}

/// The socket of a borrowed receive may be closed, and its number reused, while it starves: the
/// driver must not re-arm it by the number, and must report that buffers are back.
#[test]
fn starved_borrowed_receive_is_not_rearmed_by_its_number() {
    on_both(|bed| {
        let held = exhaust_pool(bed);
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (mut key, token) = bed.submit(Request::RecvMulti(RecvMulti::borrowed(fd)));
        write_all(&mut peer, b"hello");
        bed.expect_none(token);
        bed.assert_sleeps();
        give_back_held(bed, held);
        let mut completion = bed.expect(token);
        if bed.kind() == Kind::Uring {
            assert_eq!(completion.result, -libc::ENOBUFS);
            assert!(!completion.more);
            assert_eq!(bed.in_flight(), 0);
            let again = bed.submit(Request::RecvMulti(RecvMulti::borrowed(fd)));
            key = again.0;
            completion = bed.expect(again.1);
        }
        assert_eq!(bed.take_bytes(&mut completion), b"hello");
        assert!(completion.more);
        bed.forget(key);
        bed.drain();
    });
}

/// A future that is leaked (`mem::forget`) has not cancelled its receive.
#[test]
fn starved_receiver_of_a_closed_stream_takes_nothing_from_the_next_of_its_number() {
    on_both(|bed| {
        let held = exhaust_pool(bed);
        let (next, mut next_peer) = tcp_pair();
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (_, token) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
        write_all(&mut peer, b"hello");
        bed.expect_none(token);
        bed.engine.driver_mut().close(ours.into());
        let clones: Vec<_> = (0..8).map(|_| next.try_clone().unwrap()).collect();
        let next = clones.iter().find(|clone| clone.as_raw_fd() == fd).unwrap();
        give_back_held(bed, held);
        bed.settle();
        write_all(&mut next_peer, b"mine");
        bed.settle();
        let mut bytes = [0; 8];
        let count = std::io::Read::read(&mut &*next, &mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"mine");
        let last = bed.expect(token);
        assert_eq!((last.result, last.more), (-libc::ECANCELED, false));
        assert_eq!(bed.in_flight(), 0);
    });
}

#[test]
fn starved_borrowed_receive_can_be_cancelled() {
    on_both(|bed| {
        let held = exhaust_pool(bed);
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (key, token) = bed.submit(Request::RecvMulti(RecvMulti::borrowed(fd)));
        write_all(&mut peer, b"hello");
        bed.expect_none(token);
        bed.cancel(key);
        assert_eq!(bed.expect(token).result, -libc::ECANCELED);
        give_back_held(bed, held);
        bed.expect_none(token);
        bed.drain();
    });
}

#[test]
fn starved_receiver_can_be_given_up_before_and_after_a_buffer_is_back() {
    on_both(|bed| {
        for (forgets, early) in [(false, true), (true, true), (false, false), (true, false)] {
            let held = exhaust_pool(bed);
            let (ours, mut peer) = tcp_pair();
            let fd = ours.as_raw_fd();
            let (key, token) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
            write_all(&mut peer, b"hello");
            bed.expect_none(token);
            let mut held = Some(held);
            if !early {
                give_back_held(bed, held.take().unwrap());
            }
            if forgets {
                bed.forget(key);
            } else {
                bed.cancel(key);
            }
            // The buffers come back between the cancel and its completion.
            if let Some(held) = held {
                give_back_held(bed, held);
            }
            bed.drain();
            if !forgets {
                let last = bed.expect(token);
                assert_eq!((last.result, last.more), (-libc::ECANCELED, false));
            }
            assert!(bed.take_all().is_empty());
            // The descriptor is readable, without a waiting operation: no spinning.
            bed.assert_sleeps();
            assert_eq!(bed.recv(fd, 64), (5, b"hello".to_vec()));
            bed.release(&ours);
        }
    });
}

/// The embedder takes a few events, recycles their buffers, and waits again before it sees that
/// another receive had run out of buffers.
#[test]
fn receiver_that_ran_out_before_the_last_buffer_came_back_is_not_left_behind() {
    on_both(|bed| {
        let held = exhaust_pool(bed);
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (key, token) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
        write_all(&mut peer, b"hello");
        // The kernel has reported that there is no buffer, but the completion is not read yet.
        bed.engine.park(Some(Duration::ZERO)).unwrap();
        give_back_held(bed, held);
        bed.engine.park(Some(Duration::ZERO)).unwrap();
        let mut completion = bed.expect(token);
        assert_eq!(bed.take_bytes(&mut completion), b"hello");
        bed.forget(key);
        bed.drain();
    });
}

#[test]
fn drop_of_the_driver_while_the_pool_is_taken_and_a_receiver_starves() {
    let _alone = alone();
    for choice in drivers() {
        let before = open_descriptors();
        let mut bed = Bed::new(choice);
        let held = exhaust_pool(&mut bed);
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
        write_all(&mut peer, b"hello");
        bed.settle();
        drop(bed);
        drop(held);
        drop((ours, peer));
        assert_eq!(open_descriptors(), before);
    }
}
