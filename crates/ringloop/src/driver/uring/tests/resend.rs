//! Sends that the kernel ends without sending. It rarely does: the test stops the operation, and
//! changes its completion to the kernel's.

use super::{driver, result, stop};
use crate::buf::SendBuf;
use crate::driver::completion::Sink;
use crate::driver::table::{Phase, flag};
use crate::driver::uring::UringDriver;
use crate::op::Key;
use crate::op::{Request, Send, SendDescriptors, SendMsg};
use crate::sys::fd::{AsRawFd, OwnedFd, RawFd};
use crate::sys::libc;
use crate::sys::socket;
use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::task::Waker;
use std::time::{Duration, Instant};

const BYTES: &[u8] = b"once and whole";

/// A pair whose first end is full, and the number of bytes in it.
fn full_pair(kind: i32) -> (OwnedFd, UnixStream, usize) {
    let (near, far) = socket::pair(kind).unwrap();
    let mut filled = 0;
    while let Ok(count) = socket::send(near.as_raw_fd(), &[b'.'; 4096], libc::MSG_DONTWAIT) {
        filled += count;
    }
    // The first byte that fits would be sent alone.
    while let Ok(count) = socket::send(near.as_raw_fd(), b".", libc::MSG_DONTWAIT) {
        filled += count;
    }
    (near, far.into(), filled)
}

fn sends(fd: RawFd) -> [Request; 3] {
    let buf = || SendBuf::from(BYTES.to_vec());
    let null = File::open("/dev/null").unwrap();
    [
        Request::Send(Send { fd, buf: buf() }),
        Request::SendMsg(SendMsg::new(fd, vec![buf()])),
        Request::SendDescriptors(SendDescriptors::new(fd, buf(), vec![null.into()])),
    ]
}

fn begin(driver: &mut UringDriver, request: Request) -> Key {
    super::begin(driver, request, Sink::Waker(Waker::noop().clone()))
}

/// Reads what the pair was filled with and what came after it.
fn drain(driver: &mut UringDriver, far: &mut UnixStream, filled: usize) -> Vec<u8> {
    far.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let (mut all, mut part) = (Vec::new(), vec![0; 1 << 16]);
    while all.len() < filled + BYTES.len() {
        match far.read(&mut part) {
            Ok(count) => all.extend_from_slice(&part[..count]),
            Err(_) => driver.wait(Some(Duration::from_millis(10))).unwrap(),
        }
        assert!(Instant::now() < deadline, "{} of {filled}", all.len());
    }
    assert!(far.read(&mut part).is_err(), "there is more");
    all.split_off(filled)
}

#[test]
fn send_that_the_kernel_has_stopped_waits_again_and_goes_once() {
    for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
        for at in 0..3 {
            let (near, mut far, filled) = full_pair(kind);
            let [one, several, descriptors] = sends(near.as_raw_fd());
            let request = [one, several, descriptors].into_iter().nth(at).unwrap();
            let mut driver = driver();
            let key = begin(&mut driver, request);
            for errno in [libc::EAGAIN, libc::EINTR, libc::EAGAIN] {
                stop(&mut driver, key, errno);
                let slot = driver.table.slot(key).unwrap();
                assert_eq!(slot.phase, Phase::Armed);
            }
            assert_eq!(drain(&mut driver, &mut far, filled), BYTES);
            assert_eq!(result(&mut driver, key).0, BYTES.len() as i32);
            assert_eq!(driver.table.len(), 0);
        }
    }
}

#[test]
fn cancelled_send_is_not_made_again() {
    let (near, mut far, filled) = full_pair(libc::SOCK_STREAM);
    for is_cancelled_first in [true, false] {
        for request in sends(near.as_raw_fd()) {
            let mut driver = driver();
            let key = begin(&mut driver, request);
            if is_cancelled_first {
                driver.table.slot(key).unwrap().set(flag::CANCELLED);
            }
            stop(&mut driver, key, libc::EAGAIN);
            driver.cancel(key);
            assert_eq!(result(&mut driver, key).0, -libc::ECANCELED);
        }
    }
    let mut all = vec![0; filled];
    far.read_exact(&mut all).unwrap();
    far.set_nonblocking(true).unwrap();
    assert!(far.read(&mut [0; 8]).is_err(), "nothing of it was sent");
}

#[test]
fn send_that_was_made_again_keeps_the_number_of_its_descriptor_taken() {
    let (near, mut far, filled) = full_pair(libc::SOCK_STREAM);
    let fd = near.as_raw_fd();
    let mut driver = driver();
    let [request, ..] = sends(fd);
    let key = begin(&mut driver, request);
    stop(&mut driver, key, libc::EAGAIN);
    driver.close(near);
    let next = File::open("/dev/null").unwrap();
    assert_ne!(next.as_raw_fd(), fd, "it is another file's");
    assert_eq!(drain(&mut driver, &mut far, filled), BYTES);
    assert_eq!(result(&mut driver, key).0, BYTES.len() as i32);
}
