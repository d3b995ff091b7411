//! Polls of borrowed descriptors: in the set, and brief ones on their way there.

use super::{begin, driver};
use crate::driver::completion::{Event, Sink, Token};
use crate::driver::table::{Phase, flag};
use crate::driver::uring::UringDriver;
use crate::limits;
use crate::op::{Key, PollBorrowed, PollMode, Request};
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::file;
use crate::sys::interest::Interest;
use crate::sys::libc;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const MODES: [PollMode; 2] = [PollMode::Level, PollMode::Brief];

/// A descriptor that is closed while it is polled. The tests share the numbers, and the kernel gives the
/// lowest.
const CLOSED: RawFd = 720;

const PATIENCE: Duration = Duration::from_secs(10);

fn poll(driver: &mut UringDriver, fd: RawFd, mode: PollMode) -> Key {
    let poll = PollBorrowed { fd, interest: Interest::READ, mode };
    begin(driver, Request::PollBorrowed(poll), Sink::Handler(Token(1)))
}

fn is_in_set(driver: &mut UringDriver, key: Key) -> bool {
    let slot = driver.table.slot(key).unwrap();
    slot.phase == Phase::Armed && slot.is(flag::IN_SET)
}

/// Runs turns, in which nothing completes, until the set has the poll.
fn until_in_set(driver: &mut UringDriver, key: Key) {
    let begun = Instant::now();
    while !is_in_set(driver, key) {
        driver.wait(None).unwrap();
        assert!(driver.next_event().is_none());
        assert!(begun.elapsed() < PATIENCE);
    }
    driver.wait(Some(Duration::ZERO)).unwrap();
    assert!(driver.next_event().is_none());
}

fn event(driver: &mut UringDriver) -> Event {
    let begun = Instant::now();
    loop {
        if let Some(event) = driver.next_event() {
            return event;
        }
        driver.wait(Some(Duration::from_millis(100))).unwrap();
        assert!(begun.elapsed() < PATIENCE, "no event came");
    }
}

#[test]
fn brief_poll_is_the_rings_first_and_the_sets_later() {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    for is_late in [false, true] {
        let mut driver = driver();
        let key = poll(&mut driver, near.as_raw_fd(), PollMode::Brief);
        assert!(!is_in_set(&mut driver, key));
        let begun = Instant::now();
        if is_late {
            until_in_set(&mut driver, key);
            assert!(begun.elapsed() >= Duration::from_millis(limits::BRIEF_POLL_MS - 1));
        }
        far.write_all(b"x").unwrap();
        // As long as the byte is not read.
        for _ in 0..3 {
            let completion = event(&mut driver).completion;
            assert!(completion.result > 0 && completion.more, "{completion:?}");
        }
        near.read_exact(&mut [0]).unwrap();
        driver.cancel(key);
        let completion = event(&mut driver).completion;
        // One may have been under way.
        let completion = if completion.more { event(&mut driver).completion } else { completion };
        assert_eq!((completion.result, completion.more), (-libc::ECANCELED, false));
        assert_eq!(driver.table.len(), 0);
    }
}

#[test]
fn wait_without_a_limit_ends_for_a_brief_poll_and_for_nothing_after_it() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut driver = driver();
    let key = poll(&mut driver, near.as_raw_fd(), PollMode::Brief);
    until_in_set(&mut driver, key);
    assert!(!driver.borrowed.has_brief());
    let begun = Instant::now();
    driver.wait(Some(Duration::from_millis(50))).unwrap();
    assert!(driver.next_event().is_none());
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn file_is_closed_with_its_descriptor() {
    for mode in MODES {
        for closed_first in [false, true] {
            let (original, mut far) = UnixStream::pair().unwrap();
            let near = file::duplicate_from(original.as_raw_fd(), CLOSED).unwrap();
            drop(original);
            let mut driver = driver();
            let key = poll(&mut driver, near.as_raw_fd(), mode);
            if !closed_first {
                until_in_set(&mut driver, key);
            }
            drop(near);
            let in_set = is_in_set(&mut driver, key);
            if in_set {
                // The set does not report it.
                driver.cancel(key);
            }
            let completion = event(&mut driver).completion;
            let expected = if in_set { -libc::ECANCELED } else { -libc::EBADF };
            assert_eq!((completion.result, completion.more), (expected, false));
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(far.read(&mut [0]).unwrap(), 0, "{mode:?}");
            assert_eq!(driver.table.len(), 0);
            assert!(!driver.borrowed.needs_poll());
        }
    }
}

#[test]
fn poll_is_forgotten_wherever_it_is() {
    for mode in MODES {
        for is_late in [false, true] {
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut driver = driver();
            let key = poll(&mut driver, near.as_raw_fd(), mode);
            if is_late {
                until_in_set(&mut driver, key);
            }
            driver.forget_now(key);
            far.write_all(b"x").unwrap();
            driver.wait(Some(Duration::from_millis(2 * limits::BRIEF_POLL_MS))).unwrap();
            assert!(driver.next_event().is_none());
            driver.wait(Some(Duration::ZERO)).unwrap();
            assert!(driver.next_event().is_none());
            assert_eq!(driver.table.len(), 0);
        }
    }
}

#[test]
fn release_of_a_descriptor_ends_its_polls() {
    for mode in MODES {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut driver = driver();
        let key = poll(&mut driver, near.as_raw_fd(), mode);
        until_in_set(&mut driver, key);
        driver.release(near.as_raw_fd());
        let completion = event(&mut driver).completion;
        assert_eq!((completion.result, completion.more), (-libc::ECANCELED, false));
        assert_eq!(driver.table.len(), 0);
    }
}
