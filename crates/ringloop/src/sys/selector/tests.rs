//! The readiness contract, clause by clause, on the backend of this build.

use super::report::EVENTS_PER_WAIT;
use super::*;
use crate::sys::event::EventFd;
use crate::sys::fd::AsRawFd;
use crate::sys::file;
use crate::sys::libc;
use crate::sys::testing::{LONG, interrupted, tcp_pair};
use std::io::Write;
use std::time::Duration;

pub(super) const NOW: Option<Duration> = Some(Duration::ZERO);

pub(super) fn wait(selector: &Selector, timeout: Option<Duration>) -> Vec<Ready> {
    let mut ready = vec![Ready { data: 999, interest: Interest::NONE }];
    selector.wait(&mut ready, timeout).unwrap();
    ready
}

pub(super) fn readable(data: u64) -> Vec<Ready> {
    vec![Ready { data, interest: Interest::READ }]
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn contract_1_a_descriptor_has_one_registration() {
    let (selector, event) = (Selector::new().unwrap(), EventFd::new().unwrap());
    let fd = event.as_raw_fd();
    assert_eq!(errno(selector.modify(fd, Interest::READ, 1, Trigger::Level)), Some(libc::ENOENT));
    assert_eq!(errno(selector.delete(fd)), Some(libc::ENOENT));
    selector.add(fd, Interest::READ, 1, Trigger::Level).unwrap();
    assert_eq!(errno(selector.add(fd, Interest::READ, 2, Trigger::Level)), Some(libc::EEXIST));
    selector.modify(fd, Interest::READ, 3, Trigger::Level).unwrap();
    event.notify();
    assert_eq!(wait(&selector, NOW), readable(3));
    selector.delete(fd).unwrap();
    assert_eq!(wait(&selector, NOW), []);
    assert_eq!(errno(selector.add(-1, Interest::READ, 0, Trigger::Level)), Some(libc::EBADF));
}

#[test]
fn contract_2_level_reports_as_long_as_edge_once_for_each_change() {
    let (selector, event) = (Selector::new().unwrap(), EventFd::new().unwrap());
    let fd = event.as_raw_fd();
    selector.add(fd, Interest::READ, 7, Trigger::Level).unwrap();
    event.notify();
    assert_eq!(wait(&selector, NOW), readable(7));
    assert_eq!(wait(&selector, NOW), readable(7));
    // A modify counts as a change.
    selector.modify(fd, Interest::READ, 7, Trigger::Edge).unwrap();
    assert_eq!(wait(&selector, NOW), readable(7));
    assert_eq!(wait(&selector, NOW), []);
    event.notify();
    assert_eq!(wait(&selector, NOW), readable(7));
    selector.modify(fd, Interest::READ, 7, Trigger::Level).unwrap();
    event.drain();
    assert_eq!(wait(&selector, NOW), []);
}

#[test]
fn contract_3_a_hang_up_and_an_error_are_reported() {
    let (selector, (reader, writer)) = (Selector::new().unwrap(), file::pipe().unwrap());
    selector.add(reader.as_raw_fd(), Interest::READ, 5, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, NOW), []);
    drop(writer);
    assert!(wait(&selector, Some(LONG))[0].interest.contains(Interest::READ));
    selector.delete(reader.as_raw_fd()).unwrap();
    assert_eq!(wait(&selector, NOW), []);
    let (client, server) = tcp_pair();
    selector.add(server.as_raw_fd(), Interest::READ, 6, Trigger::Level).unwrap();
    crate::sys::socket::set_linger(client.as_raw_fd(), Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(wait(&selector, Some(LONG)), [Ready { data: 6, interest: Interest::BOTH }]);
}

#[test]
fn contract_4_both_directions_are_one_report() {
    let (selector, (mut client, server)) = (Selector::new().unwrap(), tcp_pair());
    selector.add(server.as_raw_fd(), Interest::BOTH, 1, Trigger::Edge).unwrap();
    assert_eq!(wait(&selector, NOW), [Ready { data: 1, interest: Interest::WRITE }]);
    client.write_all(b"x").unwrap();
    let ready = wait(&selector, Some(LONG));
    assert!(ready.len() == 1 && ready[0].interest.contains(Interest::READ), "{ready:?}");
    // As a level, both hold.
    selector.modify(server.as_raw_fd(), Interest::BOTH, 2, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, Some(LONG)), [Ready { data: 2, interest: Interest::BOTH }]);
}

#[test]
#[cfg_attr(libkqueue, ignore = "libkqueue does not notice a close (its BUGS.md)")]
fn contract_5_a_number_that_was_reused_is_registered_by_a_change() {
    let selector = Selector::new().unwrap();
    let (first, second) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    let fd = first.as_raw_fd();
    selector.add(fd, Interest::READ, 1, Trigger::Level).unwrap();
    // Closes the first, whose registration goes with it, and gives its number to the second.
    // SAFETY: no pointer is passed.
    assert_eq!(unsafe { libc::dup2(second.as_raw_fd(), fd) }, fd);
    if selector.modify(fd, Interest::READ, 2, Trigger::Level).is_err() {
        selector.add(fd, Interest::READ, 2, Trigger::Level).unwrap();
    }
    assert_eq!(wait(&selector, NOW), []);
    second.notify();
    assert_eq!(wait(&selector, Some(LONG)), readable(2));
}

#[test]
fn contract_6_a_timeout_never_ends_early() {
    let selector = Selector::new().unwrap();
    for timeout in [1, 300_000, 1_000_001].map(Duration::from_nanos) {
        let start = std::time::Instant::now();
        assert_eq!(wait(&selector, Some(timeout)), []);
        assert!(start.elapsed() >= timeout, "{timeout:?} took {:?}", start.elapsed());
    }
}

#[test]
fn contract_7_an_interrupted_wait_returns_with_nothing() {
    let selector = Selector::new().unwrap();
    for timeout in [None, Some(LONG)] {
        assert_eq!(interrupted(|| wait(&selector, timeout)), []);
    }
}

#[test]
fn contract_8_regular_files_are_refused() {
    let selector = Selector::new().unwrap();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let added = selector.add(file.as_raw_fd(), Interest::READ, 1, Trigger::Level);
    assert_eq!(errno(added), Some(libc::EPERM));
}

#[test]
fn contract_9_a_notification_ends_a_wait_of_another_thread() {
    let (selector, event) = (Selector::new().unwrap(), EventFd::new().unwrap());
    selector.add_wake(&event, 9).unwrap();
    assert_eq!(wait(&selector, NOW), []);
    // More than a pipe has room for, of which none is drained here.
    for _ in 0..70_000 {
        event.notify();
    }
    assert_eq!(wait(&selector, Some(LONG)), readable(9));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            event.notify();
        });
        assert_eq!(wait(&selector, None), readable(9));
    });
}

#[test]
fn always_ready_descriptors_are_distinguished_from_pollable_ones() {
    for path in ["/bin/sh", "/", "/dev/null"] {
        let file = std::fs::File::open(path).unwrap();
        let checked = check_waits(file.as_raw_fd());
        assert_eq!(errno(checked), Some(libc::EPERM), "{path}");
    }
    let (reader, _writer) = crate::sys::file::pipe().unwrap();
    check_waits(reader.as_raw_fd()).unwrap();
    check_waits(EventFd::new().unwrap().as_raw_fd()).unwrap();
    assert_eq!(errno(check_waits(1 << 24)), Some(libc::EBADF));
}

#[test]
fn p1_more_descriptors_than_one_wait_reports_come_in_turns() {
    let selector = Selector::new().unwrap();
    let events: Vec<_> = (0..EVENTS_PER_WAIT + 50).map(|_| EventFd::new().unwrap()).collect();
    for (index, event) in events.iter().enumerate() {
        selector.add(event.as_raw_fd(), Interest::READ, index as u64, Trigger::Level).unwrap();
        event.notify();
    }
    let first = wait(&selector, NOW);
    assert_eq!(first.len(), EVENTS_PER_WAIT);
    let mut seen: Vec<_> = first.iter().chain(&wait(&selector, NOW)).map(|r| r.data).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), events.len());
}
