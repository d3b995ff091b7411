//! Ended operations release their file: before the completion is taken, and before the next wait.
#![allow(clippy::unwrap_used)]

use ringloop::embed::op::{Poll, Request};
use ringloop::embed::sys::interest::Interest;
use ringloop_testing::engine::on_both;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let seconds = Some(ringloop_testing::PATIENCE);
    theirs.set_read_timeout(seconds).unwrap();
    (ours, theirs)
}

fn poll(socket: &UnixStream) -> Request {
    Request::Poll(Poll { fd: socket.as_raw_fd(), interest: Interest::READ, level: true })
}

fn sees_the_end(mut socket: UnixStream) -> bool {
    matches!(socket.read(&mut [0]), Ok(0))
}

#[test]
fn cancelled_operation_has_ended_before_its_completion_is_taken() {
    on_both(|bed| {
        let (ours, theirs) = pair();
        let (key, token) = bed.submit(poll(&ours));
        bed.engine.driver_mut().wait(Some(Duration::ZERO)).unwrap();
        assert!(!bed.engine.driver_mut().has_ended(key));
        bed.engine.driver_mut().cancel(key);
        bed.engine.driver_mut().wait(Some(Duration::ZERO)).unwrap();
        assert!(bed.engine.driver_mut().has_ended(key));
        // Its completion has not been taken, and the file is released.
        assert_eq!(bed.in_flight(), 1);
        bed.release(&ours);
        drop(ours);
        assert!(sees_the_end(theirs));
        assert_eq!(bed.expect(token).result, -libc::ECANCELED);
        assert_eq!(bed.in_flight(), 0);
        assert!(bed.engine.driver_mut().has_ended(key));
    });
}

#[test]
fn forget_now_releases_the_file() {
    on_both(|bed| {
        for is_armed in [true, false] {
            let (ours, theirs) = pair();
            let (key, _) = bed.submit(poll(&ours));
            if is_armed {
                bed.engine.driver_mut().wait(Some(Duration::ZERO)).unwrap();
            }
            bed.engine.driver_mut().forget_now(key);
            bed.release(&ours);
            drop(ours);
            assert!(sees_the_end(theirs), "armed: {is_armed}");
        }
    });
}
