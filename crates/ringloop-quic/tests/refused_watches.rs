//! epoll without memory: the endpoints' sockets are watched a moment later, and nothing spins meanwhile.
#![allow(clippy::unwrap_used)]

use ringloop_testing::engine::processor_time;
use ringloop_testing::quic::{on_both, pair, pattern};
use ringloop_testing::sys::refusal::{ADD, CHANGE, REMOVE, refusals_left, refuse};
use std::time::{Duration, Instant};

ringloop_testing::refusing_epoll_ctl!();

#[test]
fn transfer_goes_on_through_refusals() {
    on_both(|| async {
        let (ours, theirs, _endpoints) = pair().await.parts();
        for round in 0..20 {
            refuse(3, ADD | CHANGE | REMOVE);
            let (mut send, _recv) = ours.open_bi().await.unwrap();
            let bytes = pattern(200_000, round);
            let expected = bytes.clone();
            let sending = ringloop::spawn(async move {
                send.write_all(&bytes).await.unwrap();
                send.finish().unwrap();
                send
            });
            let (_answer, mut recv) = theirs.accept_bi().await.unwrap();
            assert!(recv.read_to_end(200_000).await.unwrap() == expected);
            drop(sending.await.unwrap());
        }
        refuse(0, 0);
    });
}

#[test]
fn endpoint_that_cannot_be_watched_sleeps_between_tries() {
    on_both(|| async {
        // Both endpoints, from their first receive on. The handshake itself takes a few milliseconds.
        refuse(100, ADD | CHANGE);
        let (begun, used) = (Instant::now(), processor_time());
        let (ours, _theirs, _endpoints) = pair().await.parts();
        if refusals_left() == 0 {
            // On epoll.
            let used = processor_time().saturating_sub(used);
            assert!(begun.elapsed() > Duration::from_millis(500), "{:?}", begun.elapsed());
            assert!(used < begun.elapsed() / 2, "{used:?} of {:?}", begun.elapsed());
        }
        refuse(0, 0);
        assert!(ours.close_reason().is_none());
    });
}
