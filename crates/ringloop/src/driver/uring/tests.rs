//! The ring driver where the kernel has no memory for all that it is asked for. The seam is `Ring::takes_at_most`:
//! the kernel is told of fewer entries than there are, and does with them what it does where it stops by itself.

use super::UringDriver;
use crate::buf::{RecvBuf, SendBuf};
use crate::driver::Setup;
use crate::driver::{Key, Sink};
use crate::op::Request;
use crate::op::{Nop, Recv, Timeout, Write};
use crate::sys::event::EventFd;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// A driver with nothing on its queue.
pub fn driver() -> UringDriver {
    let setup = Setup {
        choice: crate::driver::Choice::Uring,
        polling: None,
        entries: 16,
        completion_entries: 64,
    };
    let mut driver = UringDriver::new(Arc::new(EventFd::new().unwrap()), &setup).unwrap();
    driver.bind().unwrap();
    // The wake's poll, so that what follows is the link's alone.
    driver.wait(Some(Duration::ZERO)).unwrap();
    driver
}

fn submit(driver: &mut UringDriver, request: Request, sink: Sink) -> Key {
    driver.submit_as(request, sink, false)
}

/// Turns until the operation is over.
fn result(driver: &mut UringDriver, key: Key) -> (i32, Option<Request>) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Ok(taken) = driver.table_mut().poll(key, Waker::noop(), |back| back) {
            let (taken, back) = taken.unwrap();
            return (taken.result, back.expect("the last result"));
        }
        assert!(
            Instant::now() < deadline,
            "not over: {:?}",
            driver.table.slot(key)
        );
        driver.wait(Some(Duration::from_millis(10))).unwrap();
        assert!(driver.next_event().is_none());
    }
}

fn write(fd: i32, bytes: &[u8]) -> Request {
    Request::Write(Write {
        fd,
        buf: SendBuf::from(bytes.to_vec()),
        offset: None,
    })
}

#[test]
fn link_that_memory_fails_in_the_middle_of_ends_there() {
    for taken in 1..4 {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let mut driver = driver();
        driver.ring.takes_at_most = taken;
        let links = [b"1", b"2", b"3", b"4"].map(|byte| write(near.as_raw_fd(), byte));
        let keys = driver.submit_linked(links.into(), Waker::noop());
        // An operation beside it, behind it on the queue, is not harmed.
        let beside = submit(
            &mut driver,
            Request::Nop(Nop),
            Sink::Waker(Waker::noop().clone()),
        );
        let results: Vec<_> = keys.iter().map(|key| result(&mut driver, *key).0).collect();
        let mut expected = vec![-libc::ECANCELED; 4];
        expected[..taken as usize].fill(1);
        expected[taken as usize] = -libc::ENOMEM;
        assert_eq!(results, expected, "of 4 entries the kernel took {taken}");
        assert_eq!(result(&mut driver, beside).0, 0);
        driver.ring.takes_at_most = u32::MAX;
        for _ in 0..3 {
            driver.wait(Some(Duration::from_millis(1))).unwrap();
            assert!(driver.next_event().is_none());
        }
        let mut written = [0; 8];
        assert_eq!(far.read(&mut written).unwrap(), taken as usize);
        assert_eq!(driver.in_flight(), 0);
        // The next link is whole again.
        let links = [b"5", b"6"].map(|byte| write(near.as_raw_fd(), byte));
        for key in driver.submit_linked(links.into(), Waker::noop()) {
            assert_eq!(result(&mut driver, key).0, 1);
        }
    }
}

#[test]
fn operation_that_lost_its_timeout_is_cancelled() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut driver = driver();
    driver.ring.takes_at_most = 1;
    let recv = Recv {
        fd: near.as_raw_fd(),
        buf: RecvBuf::with_capacity(8),
    };
    let limit = Timeout::of_link(HOUR);
    let requests = vec![
        Request::Recv(recv),
        Request::Timeout(limit),
        Request::Nop(Nop),
    ];
    let keys = driver.submit_linked(requests, Waker::noop());
    let results: Vec<_> = keys.iter().map(|key| result(&mut driver, *key).0).collect();
    // A link that a submission cuts short is begun by a thread of the kernel's, whose waits end so.
    assert!([libc::ECANCELED, libc::EINTR].contains(&-results[0]));
    assert_eq!(results[1..], [-libc::ENOMEM, -libc::ECANCELED]);
    assert_eq!(driver.in_flight(), 0);
}

#[test]
fn split_link_whose_future_is_gone_leaves_nothing() {
    let mut driver = driver();
    driver.ring.takes_at_most = 2;
    let nops = (0..5).map(|_| Request::Nop(Nop)).collect();
    let keys = driver.submit_linked(nops, Waker::noop());
    for key in keys {
        driver.forget(key);
    }
    driver.ring.takes_at_most = u32::MAX;
    for _ in 0..5 {
        driver.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(driver.next_event().is_none());
    }
    assert_eq!(driver.in_flight(), 0);
}

#[test]
fn operations_wait_out_a_kernel_without_memory() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut driver = driver();
    driver.ring.takes_at_most = 0;
    let sink = || Sink::Waker(Waker::noop().clone());
    let recv = Recv {
        fd: near.as_raw_fd(),
        buf: RecvBuf::with_capacity(8),
    };
    let recv = submit(&mut driver, Request::Recv(recv), sink());
    let given_up = submit(&mut driver, Request::Timeout(Timeout::after(HOUR)), sink());
    driver.forget(given_up);
    // More than the queue holds.
    let nops: Vec<_> = (0..40)
        .map(|_| submit(&mut driver, Request::Nop(Nop), sink()))
        .collect();
    std::io::Write::write_all(&mut far, b"bytes").unwrap();
    for _ in 0..5 {
        driver.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(driver.next_event().is_none());
    }
    assert_eq!(driver.in_flight(), 42, "nothing is lost, nothing has begun");
    // A little at a time, then all there is.
    driver.ring.takes_at_most = 3;
    assert_eq!(result(&mut driver, nops[0]).0, 0);
    driver.ring.takes_at_most = u32::MAX;
    for key in &nops[1..] {
        assert_eq!(result(&mut driver, *key).0, 0);
    }
    let received = result(&mut driver, recv);
    assert_eq!(received.0, 5);
    while driver.in_flight() > 0 {
        driver.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(driver.next_event().is_none());
    }
}

#[test]
fn driver_dropped_while_the_kernel_has_no_memory_frees_what_it_never_took() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut driver = driver();
    driver.ring.takes_at_most = 1;
    for _ in 0..30 {
        let recv = Recv {
            fd: near.as_raw_fd(),
            buf: RecvBuf::with_capacity(8),
        };
        submit(
            &mut driver,
            Request::Recv(recv),
            Sink::Waker(Waker::noop().clone()),
        );
    }
    driver.wait(Some(Duration::ZERO)).unwrap();
    drop(driver);
    // Nobody takes what comes now.
    std::io::Write::write_all(&mut far, b"bytes").unwrap();
    let mut near = near;
    near.set_nonblocking(true).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(near.read(&mut bytes).unwrap(), 5);
}
