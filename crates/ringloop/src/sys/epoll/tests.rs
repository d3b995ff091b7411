//! The readiness contract, clause by clause, and the invariants.

use super::*;
use crate::sys::event::EventFd;
use crate::sys::file;
use crate::sys::testing::{LONG, interrupted, tcp_pair, with_calls_denied};
use std::io::{Read, Write};
use std::time::Instant;

const NOW: Option<Duration> = Some(Duration::ZERO);

fn wait(epoll: &Epoll, timeout: Option<Duration>) -> Vec<Ready> {
    let mut ready = vec![Ready { data: 999, interest: Interest::NONE }];
    epoll.wait(&mut ready, timeout).unwrap();
    ready
}

fn readable(data: u64) -> Vec<Ready> {
    vec![Ready { data, interest: Interest::READ }]
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn contract_1_a_descriptor_has_one_registration() {
    let (epoll, event) = (Epoll::new().unwrap(), EventFd::new().unwrap());
    let fd = event.as_raw_fd();
    assert_eq!(errno(epoll.modify(fd, Interest::READ, 1, Trigger::Level)), Some(libc::ENOENT));
    assert_eq!(errno(epoll.delete(fd)), Some(libc::ENOENT));
    epoll.add(fd, Interest::READ, 1, Trigger::Level).unwrap();
    assert_eq!(errno(epoll.add(fd, Interest::READ, 2, Trigger::Level)), Some(libc::EEXIST));
    epoll.modify(fd, Interest::READ, 3, Trigger::Level).unwrap();
    event.notify();
    assert_eq!(wait(&epoll, NOW), readable(3));
    epoll.delete(fd).unwrap();
    assert_eq!(wait(&epoll, NOW), []);
    assert_eq!(errno(epoll.add(-1, Interest::READ, 0, Trigger::Level)), Some(libc::EBADF));
}

#[test]
fn contract_2_level_reports_as_long_as_edge_once_for_each_change() {
    let (epoll, event) = (Epoll::new().unwrap(), EventFd::new().unwrap());
    let fd = event.as_raw_fd();
    epoll.add(fd, Interest::READ, 7, Trigger::Level).unwrap();
    event.notify();
    assert_eq!(wait(&epoll, NOW), readable(7));
    assert_eq!(wait(&epoll, NOW), readable(7));
    // A modify counts as a change.
    epoll.modify(fd, Interest::READ, 7, Trigger::Edge).unwrap();
    assert_eq!(wait(&epoll, NOW), readable(7));
    assert_eq!(wait(&epoll, NOW), []);
    event.notify();
    assert_eq!(wait(&epoll, NOW), readable(7));
    epoll.modify(fd, Interest::READ, 7, Trigger::Level).unwrap();
    event.drain();
    assert_eq!(wait(&epoll, NOW), []);
}

#[test]
fn contract_3_errors_and_hang_ups_come_as_both_directions_even_unasked() {
    let (epoll, (reader, writer)) = (Epoll::new().unwrap(), file::pipe().unwrap());
    epoll.add(reader.as_raw_fd(), Interest::NONE, 5, Trigger::Level).unwrap();
    assert_eq!(wait(&epoll, NOW), []);
    drop(writer);
    assert_eq!(wait(&epoll, NOW), [Ready { data: 5, interest: Interest::BOTH }]);
    epoll.delete(reader.as_raw_fd()).unwrap();
    assert_eq!(wait(&epoll, NOW), []);
}

#[test]
fn contract_4_both_directions_are_one_report() {
    let (epoll, (mut client, server)) = (Epoll::new().unwrap(), tcp_pair());
    epoll.add(server.as_raw_fd(), Interest::BOTH, 1, Trigger::Edge).unwrap();
    assert_eq!(wait(&epoll, NOW), [Ready { data: 1, interest: Interest::WRITE }]);
    client.write_all(b"x").unwrap();
    assert_eq!(wait(&epoll, Some(LONG)), [Ready { data: 1, interest: Interest::BOTH }]);
}

#[test]
fn contract_5_a_duplicate_keeps_the_registration_alive() {
    let (epoll, event) = (Epoll::new().unwrap(), EventFd::new().unwrap());
    // SAFETY: no pointer is passed.
    let duplicate = unsafe { libc::dup(event.as_raw_fd()) };
    epoll.add(duplicate, Interest::READ, 8, Trigger::Level).unwrap();
    file::close(duplicate).unwrap();
    event.notify();
    assert_eq!(wait(&epoll, NOW), readable(8));
    drop(event);
    assert_eq!(wait(&epoll, NOW), []);
}

#[test]
fn contract_6_a_timeout_never_ends_early_with_or_without_nanoseconds() {
    for nanoseconds in [true, false] {
        let epoll = Epoll::new().unwrap();
        epoll.nanoseconds.store(nanoseconds, Ordering::Relaxed);
        for timeout in [1, 300_000, 1_000_001].map(Duration::from_nanos) {
            let start = Instant::now();
            assert_eq!(wait(&epoll, Some(timeout)), []);
            assert!(start.elapsed() >= timeout, "{timeout:?} took {:?}", start.elapsed());
        }
    }
    assert_eq!(round_up_to_milliseconds(Duration::from_nanos(1)), 1);
    assert_eq!(round_up_to_milliseconds(Duration::from_millis(2)), 2);
    assert_eq!(round_up_to_milliseconds(Duration::from_micros(2001)), 3);
    assert_eq!(round_up_to_milliseconds(Duration::MAX), i32::MAX);
}

#[test]
fn contract_6_the_longest_timeouts_wait() {
    for nanoseconds in [true, false] {
        let (epoll, event) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        epoll.nanoseconds.store(nanoseconds, Ordering::Relaxed);
        epoll.add(event.as_raw_fd(), Interest::READ, 2, Trigger::Level).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                event.notify();
            });
            assert_eq!(wait(&epoll, Some(Duration::MAX)), readable(2));
        });
        assert_eq!(wait(&epoll, None), readable(2));
    }
}

#[test]
fn contract_7_an_interrupted_wait_returns_with_nothing() {
    let epoll = Epoll::new().unwrap();
    for timeout in [None, Some(LONG)] {
        assert_eq!(interrupted(|| wait(&epoll, timeout)), []);
    }
}

#[test]
fn contract_8_regular_files_are_refused() {
    let epoll = Epoll::new().unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let added = epoll.add(file.as_raw_fd(), Interest::READ, 1, Trigger::Level);
    assert_eq!(errno(added), Some(libc::EPERM));
}

#[test]
fn always_ready_descriptors_are_distinguished_from_pollable_ones() {
    for path in ["/proc/self/exe", "/", "/dev/null"] {
        let file = std::fs::File::open(path).unwrap();
        let checked = check_waits(file.as_raw_fd());
        assert_eq!(errno(checked), Some(libc::EPERM), "{path}");
    }
    // A regular file by its mode, but pollable.
    let mounts = std::fs::File::open("/proc/self/mounts").unwrap();
    check_waits(mounts.as_raw_fd()).unwrap();
    let (reader, _writer) = crate::sys::file::pipe().unwrap();
    check_waits(reader.as_raw_fd()).unwrap();
    check_waits(EventFd::new().unwrap().as_raw_fd()).unwrap();
    assert_eq!(errno(check_waits(1 << 24)), Some(libc::EBADF));
}

#[test]
fn p1_more_descriptors_than_one_wait_reports_come_in_turns() {
    let epoll = Epoll::new().unwrap();
    let events: Vec<_> = (0..EVENTS_PER_WAIT + 50).map(|_| EventFd::new().unwrap()).collect();
    for (index, event) in events.iter().enumerate() {
        epoll.add(event.as_raw_fd(), Interest::READ, index as u64, Trigger::Level).unwrap();
        event.notify();
    }
    let first = wait(&epoll, NOW);
    assert_eq!(first.len(), EVENTS_PER_WAIT);
    let mut seen: Vec<_> = first.iter().chain(&wait(&epoll, NOW)).map(|r| r.data).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), events.len());
}

#[test]
fn p2_a_filter_that_denies_the_newer_call_is_worked_around() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        with_calls_denied(&[libc::SYS_epoll_pwait2], errno, || {
            let (epoll, event) = (Epoll::new().unwrap(), EventFd::new().unwrap());
            epoll.add(event.as_raw_fd(), Interest::READ, 4, Trigger::Level).unwrap();
            let start = Instant::now();
            assert_eq!(wait(&epoll, Some(Duration::from_micros(1500))), []);
            assert!(start.elapsed() >= Duration::from_micros(1500));
            assert!(!epoll.nanoseconds.load(Ordering::Relaxed));
            event.notify();
            assert_eq!(wait(&epoll, Some(LONG)), readable(4));
        });
    }
}

#[test]
fn p3_the_descriptor_is_closed_with_the_value_and_on_exec() {
    let epoll = Epoll::new().unwrap();
    // SAFETY: no pointer is passed.
    let flags = unsafe { libc::fcntl(epoll.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    // The set holds the pipe's only other reference: when the set is dropped, the writer is alone.
    let (mut client, server) = tcp_pair();
    epoll.add(server.as_raw_fd(), Interest::READ, 1, Trigger::Level).unwrap();
    drop((epoll, server));
    client.set_nonblocking(false).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}
