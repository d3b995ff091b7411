//! Polls for which the kernel has no memory. It rarely lacks it: the test stops them, and changes their
//! completions to the kernel's.

use super::{begin, driver, stop};
use crate::driver::Token;
use crate::driver::completion::{Event, Sink};
use crate::driver::table::Phase;
use crate::driver::uring::number::{KIND_CANCEL, KIND_SET, KIND_WAKE};
use crate::driver::uring::{RETRY_AFTER, UringDriver};
use crate::op::{Poll, PollBorrowed, PollMode, PollMulti, Request};
use crate::sys::interest::Interest;
use crate::sys::uring::abi::{self, Sqe};
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn polls(fd: RawFd) -> [Request; 2] {
    let interest = Interest::READ;
    [
        Request::Poll(Poll { fd, interest, level: true }),
        Request::PollMulti(PollMulti { fd, interest }),
    ]
}

/// The next event.
fn event(driver: &mut UringDriver) -> Event {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        driver.wait(Some(Duration::from_millis(10))).unwrap();
        if let Some(event) = driver.next_event() {
            return event;
        }
        assert!(Instant::now() < deadline, "no event came");
    }
}

#[test]
fn repeating_poll_without_memory_is_armed_again_later() {
    for at in 0..2 {
        let (near, mut far) = UnixStream::pair().unwrap();
        let request = polls(near.as_raw_fd()).into_iter().nth(at).unwrap();
        let mut driver = driver();
        let key = begin(&mut driver, request, Sink::Handler(Token(1)));
        for _ in 0..3 {
            let before = Instant::now();
            stop(&mut driver, key, libc::ENOMEM);
            assert_eq!(driver.table.slot(key).unwrap().phase, Phase::Unarmed);
            // A wait without a limit ends, or nothing would arm it again.
            driver.wait(None).unwrap();
            while driver.table.slot(key).unwrap().phase == Phase::Unarmed {
                driver.wait(Some(RETRY_AFTER)).unwrap();
                assert!(driver.next_event().is_none());
            }
            assert!(before.elapsed() >= RETRY_AFTER);
        }
        far.write_all(b"x").unwrap();
        let completion = event(&mut driver).completion;
        assert!(completion.result > 0 && completion.more, "{completion:?}");
    }
}

#[test]
fn refused_poll_can_be_cancelled_and_forgotten() {
    let (near, _far) = UnixStream::pair().unwrap();
    for request in polls(near.as_raw_fd()) {
        let mut driver = driver();
        let key = begin(&mut driver, request, Sink::Handler(Token(1)));
        stop(&mut driver, key, libc::ENOMEM);
        driver.cancel(key);
        assert_eq!(event(&mut driver).completion.result, -libc::ECANCELED);
        let [request, _] = polls(near.as_raw_fd());
        let key = begin(&mut driver, request, Sink::Handler(Token(2)));
        stop(&mut driver, key, libc::ENOMEM);
        driver.forget(key);
        std::thread::sleep(RETRY_AFTER);
        for _ in 0..3 {
            driver.wait(Some(Duration::from_millis(1))).unwrap();
            assert!(driver.next_event().is_none());
        }
        assert_eq!(driver.table.len(), 0);
    }
}

/// Ends the driver's own poll of this kind as if the kernel had no memory for it.
fn stop_own_poll(driver: &mut UringDriver, kind: u64, is_armed: impl Fn(&UringDriver) -> bool) {
    let cancel = Sqe {
        opcode: abi::IORING_OP_ASYNC_CANCEL,
        addr: kind << 56,
        user_data: KIND_CANCEL << 56,
        ..Sqe::default()
    };
    assert!(driver.push(cancel));
    driver.wait(Some(Duration::ZERO)).unwrap();
    while is_armed(driver) {
        assert!(driver.next_event().is_none());
        driver.wait(Some(Duration::from_millis(1))).unwrap();
    }
}

#[test]
fn set_of_borrowed_descriptors_without_memory_is_polled_again_and_no_event_is_lost() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut driver = driver();
    let poll =
        PollBorrowed { fd: near.as_raw_fd(), interest: Interest::READ, mode: PollMode::Level };
    driver.submit_as(Request::PollBorrowed(poll), Sink::Handler(Token(1)), 0);
    driver.wait(Some(Duration::ZERO)).unwrap();
    assert!(!driver.borrowed.needs_poll());
    stop_own_poll(&mut driver, KIND_SET, |driver| !driver.borrowed.needs_poll());
    // It comes while nothing would hear it.
    far.write_all(b"x").unwrap();
    let begun = Instant::now();
    driver.wait(None).unwrap();
    let completion = event(&mut driver).completion;
    assert!(completion.result > 0 && completion.more, "{completion:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn wake_without_memory_is_armed_again_and_no_notification_is_lost() {
    let mut driver = driver();
    stop_own_poll(&mut driver, KIND_WAKE, |driver| driver.wake_armed);
    // It comes while nothing would hear it.
    driver.wake.notify();
    let begun = Instant::now();
    driver.wait(None).unwrap();
    while !driver.wake_armed {
        driver.wait(Some(RETRY_AFTER)).unwrap();
        assert!(driver.next_event().is_none());
    }
    driver.wait(Some(Duration::from_secs(60))).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
}
