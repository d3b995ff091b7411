//! The readiness contract of `sys/selector` with sockets, on the backend of this system.
#![allow(clippy::unwrap_used)]

use ringloop::embed::sys::fd::AsRawFd;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::libc;
use ringloop::embed::sys::selector::{Ready, Selector, Trigger};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::{read_exact, reset, tcp_pair, write_all};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(PATIENCE);

fn wait(selector: &Selector, timeout: Option<Duration>) -> Vec<Ready> {
    let mut ready = vec![Ready { data: 999, interest: Interest::NONE }];
    selector.wait(&mut ready, timeout).unwrap();
    ready
}

fn ready(data: u64, interest: Interest) -> Vec<Ready> {
    vec![Ready { data, interest }]
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn contract_1_a_descriptor_has_one_registration() {
    let (selector, (ours, mut peer)) = (Selector::new().unwrap(), tcp_pair());
    let fd = ours.as_raw_fd();
    assert_eq!(errno(selector.modify(fd, Interest::READ, 1, Trigger::Level)), Some(libc::ENOENT));
    assert_eq!(errno(selector.delete(fd)), Some(libc::ENOENT));
    selector.add(fd, Interest::READ, 1, Trigger::Level).unwrap();
    assert_eq!(errno(selector.add(fd, Interest::READ, 2, Trigger::Level)), Some(libc::EEXIST));
    selector.modify(fd, Interest::READ, 3, Trigger::Level).unwrap();
    write_all(&mut peer, b"x");
    assert_eq!(wait(&selector, LONG), ready(3, Interest::READ));
    selector.delete(fd).unwrap();
    assert_eq!(wait(&selector, NOW), []);
    assert_eq!(errno(selector.add(-1, Interest::READ, 0, Trigger::Level)), Some(libc::EBADF));
}

#[test]
fn contract_2_a_level_is_reported_as_long_as_it_holds() {
    let (selector, (mut ours, mut peer)) = (Selector::new().unwrap(), tcp_pair());
    selector.add(ours.as_raw_fd(), Interest::READ, 7, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, NOW), []);
    write_all(&mut peer, b"ab");
    for _ in 0..3 {
        assert_eq!(wait(&selector, LONG), ready(7, Interest::READ));
    }
    read_exact(&mut ours, 2);
    assert_eq!(wait(&selector, NOW), []);
}

#[test]
fn contract_2_a_change_of_interest_reports_what_holds_already() {
    let (selector, (ours, mut peer)) = (Selector::new().unwrap(), tcp_pair());
    let fd = ours.as_raw_fd();
    selector.add(fd, Interest::READ, 1, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, NOW), []);
    selector.modify(fd, Interest::WRITE, 2, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, NOW), ready(2, Interest::WRITE));
    write_all(&mut peer, b"x");
    selector.modify(fd, Interest::READ, 3, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, LONG), ready(3, Interest::READ));
    selector.modify(fd, Interest::NONE, 4, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, NOW), []);
    selector.modify(fd, Interest::READ, 5, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, NOW), ready(5, Interest::READ));
}

/// Writes until the next write would block; returns how many bytes.
fn fill(stream: &mut TcpStream) -> usize {
    let (bytes, mut total) = (vec![0; 1 << 16], 0);
    loop {
        match io::Write::write(stream, &bytes) {
            Ok(count) => total += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return total,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn contract_2_an_idle_writer_s_edge_is_reported_once() {
    let (selector, (ours, mut peer)) = (Selector::new().unwrap(), tcp_pair());
    let fd = ours.as_raw_fd();
    selector.add(fd, Interest::WRITE, 1, Trigger::Edge).unwrap();
    assert_eq!(wait(&selector, NOW), ready(1, Interest::WRITE));
    let begun = Instant::now();
    assert_eq!(wait(&selector, Some(Duration::from_millis(20))), []);
    assert!(begun.elapsed() >= Duration::from_millis(20));
    // A change of the interest is a change; and the other direction is watched all the while.
    selector.modify(fd, Interest::BOTH, 2, Trigger::Edge).unwrap();
    assert_eq!(wait(&selector, NOW), ready(2, Interest::WRITE));
    assert_eq!(wait(&selector, NOW), []);
    write_all(&mut peer, b"x");
    let [report] = wait(&selector, LONG)[..] else { panic!("no report, or several") };
    assert!(report.interest.contains(Interest::READ), "{report:?}");
    // Unread, and nothing new.
    assert_eq!(wait(&selector, NOW), []);
    // A level of the same descriptor is reported each time.
    selector.modify(fd, Interest::READ, 3, Trigger::Level).unwrap();
    for _ in 0..3 {
        assert_eq!(wait(&selector, LONG), ready(3, Interest::READ));
    }
}

#[test]
fn contract_2_no_edge_is_lost_between_eagain_and_the_next_wait() {
    let (selector, (mut ours, mut peer)) = (Selector::new().unwrap(), tcp_pair());
    let fd = ours.as_raw_fd();
    selector.add(fd, Interest::BOTH, 1, Trigger::Edge).unwrap();
    assert_eq!(wait(&selector, NOW), ready(1, Interest::WRITE));
    let reported = |wanted: Interest| {
        let begun = Instant::now();
        while !wait(&selector, LONG).iter().any(|report| report.interest.contains(wanted)) {
            assert!(begun.elapsed() < PATIENCE, "{wanted:?} is not reported");
        }
    };
    for round in 0..10 {
        let sent = fill(&mut ours);
        // Before, or after, the peer makes room.
        if round % 2 == 0 {
            selector.rearm(fd, Interest::WRITE);
        }
        read_exact(&mut peer, sent);
        if round % 2 == 1 {
            selector.rearm(fd, Interest::WRITE);
        }
        reported(Interest::WRITE);

        assert_eq!(errno(io::Read::read(&mut ours, &mut [0; 1])), Some(libc::EAGAIN));
        if round % 2 == 0 {
            selector.rearm(fd, Interest::READ);
        }
        write_all(&mut peer, b"x");
        if round % 2 == 1 {
            selector.rearm(fd, Interest::READ);
        }
        reported(Interest::READ);
        read_exact(&mut ours, 1);
    }
}

#[test]
fn contract_3_an_end_is_readable_and_a_reset_is_both() {
    for is_reset in [false, true] {
        let (selector, (ours, peer)) = (Selector::new().unwrap(), tcp_pair());
        selector.add(ours.as_raw_fd(), Interest::READ, 6, Trigger::Level).unwrap();
        if is_reset {
            reset(peer);
            assert_eq!(wait(&selector, LONG), ready(6, Interest::BOTH));
        } else {
            drop(peer);
            assert_eq!(wait(&selector, LONG), ready(6, Interest::READ));
        }
    }
}

#[test]
fn contract_4_both_directions_are_one_report() {
    let (selector, (ours, mut peer)) = (Selector::new().unwrap(), tcp_pair());
    selector.add(ours.as_raw_fd(), Interest::BOTH, 1, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, NOW), ready(1, Interest::WRITE));
    write_all(&mut peer, b"x");
    let begun = Instant::now();
    while wait(&selector, LONG) != ready(1, Interest::BOTH) {
        assert!(begun.elapsed() < PATIENCE);
    }
}

#[test]
fn contract_5_a_closed_socket_is_reported_no_more_and_its_number_is_free() {
    let selector = Selector::new().unwrap();
    for _ in 0..50 {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        selector.add(fd, Interest::READ, 1, Trigger::Level).unwrap();
        assert_eq!(wait(&selector, NOW), []);
        selector.delete(fd).unwrap();
        drop(ours);
        drop(peer.set_nodelay(true));
        assert_eq!(wait(&selector, NOW), []);
        let _ = io::Write::write(&mut peer, b"x");
    }
}

#[test]
fn contract_6_a_timeout_never_ends_early() {
    let (selector, (ours, _peer)) = (Selector::new().unwrap(), tcp_pair());
    selector.add(ours.as_raw_fd(), Interest::READ, 1, Trigger::Level).unwrap();
    for timeout in [1, 300_000, 1_000_001, 20_000_000].map(Duration::from_nanos) {
        let begun = Instant::now();
        assert_eq!(wait(&selector, Some(timeout)), []);
        assert!(begun.elapsed() >= timeout, "{timeout:?} took {:?}", begun.elapsed());
    }
}

#[test]
fn a_listener_and_a_connect_are_reported() {
    let selector = Selector::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    selector.add(listener.as_raw_fd(), Interest::READ, 1, Trigger::Level).unwrap();
    assert_eq!(wait(&selector, NOW), []);
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(wait(&selector, LONG), ready(1, Interest::READ));
    listener.accept().unwrap();
    assert_eq!(wait(&selector, NOW), []);
}

#[test]
fn many_sockets_are_reported_in_few_waits() {
    let selector = Selector::new().unwrap();
    let mut pairs: Vec<_> = (0..100).map(|_| tcp_pair()).collect();
    for (index, (ours, peer)) in pairs.iter_mut().enumerate() {
        selector.add(ours.as_raw_fd(), Interest::READ, index as u64, Trigger::Level).unwrap();
        write_all(peer, b"x");
    }
    let (begun, mut seen) = (Instant::now(), std::collections::HashSet::new());
    while seen.len() < pairs.len() {
        seen.extend(wait(&selector, LONG).iter().map(|ready| ready.data));
        assert!(begun.elapsed() < PATIENCE, "{} of {}", seen.len(), pairs.len());
    }
    // Dropped with polls in flight.
    for (ours, _) in &mut pairs {
        read_exact(ours, 1);
    }
    assert_eq!(wait(&selector, NOW), []);
}

/// What completes at the port for somebody else.
#[cfg(windows)]
mod others {
    use super::*;
    use std::ffi::c_void;
    use std::thread;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn PostQueuedCompletionStatus(
            port: *mut c_void,
            transferred: u32,
            key: usize,
            overlapped: *mut c_void,
        ) -> i32;
    }

    /// Posts what an operation at this address would, which is never looked into.
    fn post(port: i32, address: usize) {
        // SAFETY: the port is open, and the address a number for it.
        let done = unsafe {
            PostQueuedCompletionStatus((port & !1) as isize as _, 0, 0, address as *mut c_void)
        };
        assert_ne!(done, 0);
    }

    #[test]
    fn completions_of_others_make_the_port_readable_until_they_are_taken() {
        let selector = Selector::new().unwrap();
        let port = selector.completions();
        assert_eq!(errno(selector.delete(port)), Some(libc::ENOENT));
        selector.add(port, Interest::READ, 5, Trigger::Level).unwrap();
        assert_eq!(
            errno(selector.add(port, Interest::READ, 6, Trigger::Level)),
            Some(libc::EEXIST)
        );
        assert_eq!(wait(&selector, NOW), []);
        post(port, 8);
        post(port, 16);
        for _ in 0..3 {
            assert_eq!(wait(&selector, LONG), ready(5, Interest::READ));
        }
        assert_eq!(selector.take_completions(), [8, 16]);
        assert_eq!(selector.take_completions(), []);
        assert_eq!(wait(&selector, NOW), []);
        // One that comes while the port is not watched is kept.
        selector.delete(port).unwrap();
        post(port, 24);
        assert_eq!(wait(&selector, NOW), []);
        selector.add(port, Interest::READ, 7, Trigger::Level).unwrap();
        assert_eq!(wait(&selector, LONG), ready(7, Interest::READ));
        selector.modify(port, Interest::READ, 8, Trigger::Level).unwrap();
        assert_eq!(wait(&selector, LONG), ready(8, Interest::READ));
        assert_eq!(selector.take_completions(), [24]);
    }

    #[test]
    fn completions_of_others_end_a_wait_and_come_beside_a_socket_s() {
        let (selector, (ours, mut peer)) = (Selector::new().unwrap(), tcp_pair());
        let port = selector.completions();
        selector.add(port, Interest::READ, 1, Trigger::Level).unwrap();
        selector.add(ours.as_raw_fd(), Interest::READ, 2, Trigger::Level).unwrap();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            post(port, 8);
        });
        let start = Instant::now();
        assert_eq!(wait(&selector, LONG), ready(1, Interest::READ));
        assert!(start.elapsed() < PATIENCE);
        thread.join().unwrap();
        write_all(&mut peer, b"x");
        let mut both = Vec::new();
        while !both.contains(&2) {
            both.extend(wait(&selector, LONG).iter().map(|ready| ready.data));
        }
        assert!(both.contains(&1));
        assert_eq!(selector.take_completions(), [8]);
    }

    #[test]
    fn port_of_another_selector_cannot_be_watched() {
        let (selector, other) = (Selector::new().unwrap(), Selector::new().unwrap());
        let refused = selector.add(other.completions(), Interest::READ, 1, Trigger::Level);
        assert_eq!(errno(refused), Some(libc::EPERM));
    }
}
