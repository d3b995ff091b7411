//! Each form against Linux's own call of its name.

use super::*;
use crate::sys::descriptors::Rights;
use crate::sys::socket::{empty_message, pair, sendmsg};
use crate::sys::testing::{alone, with_calls_denied};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Takes a fresh descriptor.
fn owned(fd: c_int) -> OwnedFd {
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call has returned a fresh descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// True for non-blocking, true for close-on-exec.
fn flags_of(fd: &OwnedFd) -> (bool, bool) {
    // SAFETY: no pointer is passed.
    let status = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: no pointer is passed.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
    (status & libc::O_NONBLOCK != 0, flags & libc::FD_CLOEXEC != 0)
}

/// Every set of flags, and what they set.
const KINDS: [(c_int, (bool, bool)); 4] = [
    (0, (false, false)),
    (SOCK_NONBLOCK, (true, false)),
    (SOCK_CLOEXEC, (false, true)),
    (SOCK_NONBLOCK | SOCK_CLOEXEC, (true, true)),
];

#[test]
fn x1_flags_of_new_sockets_are_set() {
    for (flags, expected) in KINDS {
        // SAFETY: no pointer is passed.
        let one = owned(unsafe { socket(libc::AF_INET, libc::SOCK_STREAM | flags, 0) });
        let mut ends = [-1; 2];
        let kind = libc::SOCK_DGRAM | flags;
        // SAFETY: room for two.
        assert_eq!(unsafe { socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
        for fd in [&one, &owned(ends[0]), &owned(ends[1])] {
            assert_eq!(flags_of(fd), expected, "{flags:#x}");
        }
    }
    // SAFETY: no pointer is passed.
    assert_eq!(unsafe { socket(-1, libc::SOCK_STREAM, 0) }, -1);
    assert_eq!(errno(), libc::EAFNOSUPPORT);
}

#[test]
fn x1_flags_of_new_pipes_are_set() {
    for (flags, expected) in [
        (0, (false, false)),
        (libc::O_NONBLOCK, (true, false)),
        (libc::O_CLOEXEC, (false, true)),
        (libc::O_NONBLOCK | libc::O_CLOEXEC, (true, true)),
    ] {
        let mut ends = [-1; 2];
        // SAFETY: room for two.
        assert_eq!(unsafe { pipe2(ends.as_mut_ptr(), flags) }, 0);
        for end in ends.map(owned) {
            assert_eq!(flags_of(&end), expected);
        }
    }
}

#[test]
fn x1_descriptor_whose_flags_cannot_be_set_is_closed() {
    // SAFETY: no pointer is passed.
    let next = || owned(unsafe { libc::dup(0) }).as_raw_fd();
    // No other test opens descriptors meanwhile.
    alone(module_path!(), "x1_descriptor_whose_flags_cannot_be_set_is_closed", move || {
        let (failed, errno, leaked) =
            with_calls_denied(&[libc::SYS_fcntl], libc::EPERM, move || {
                let before = next();
                // SAFETY: no pointer is passed.
                let failed = unsafe { socket(libc::AF_INET, libc::SOCK_STREAM | SOCK_CLOEXEC, 0) };
                (failed, errno(), next() - before)
            });
        assert_eq!((failed, errno, leaked), (-1, libc::EPERM, 0));
    });
}

fn entry(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

#[test]
fn x1_vectors_use_the_position_or_the_offset() {
    // SAFETY: the name is a live C string.
    let file = owned(unsafe { libc::memfd_create(c"vectors".as_ptr(), libc::MFD_CLOEXEC) });
    let fd = file.as_raw_fd();
    let (mut a, mut b) = (*b"0123", *b"456789");
    let vector = [entry(&mut a), entry(&mut b)];
    // SAFETY: both arrays are live.
    assert_eq!(unsafe { pwritev2(fd, vector.as_ptr(), 2, -1, 0) }, 10);
    // SAFETY: as above.
    assert_eq!(unsafe { pwritev2(fd, vector.as_ptr(), 1, 6, 0) }, 4);
    let mut read = [0; 5];
    let room = [entry(&mut read)];
    // SAFETY: the array is live.
    assert_eq!(unsafe { preadv2(fd, room.as_ptr(), 1, 4, 0) }, 5);
    assert_eq!(&read, b"45012");
    // SAFETY: as above.
    assert_eq!(unsafe { preadv2(fd, room.as_ptr(), 1, -1, 0) }, 0, "the position is at 10");
    // SAFETY: as above.
    assert_eq!(unsafe { preadv2(fd, room.as_ptr(), 1, 0, RWF_NOWAIT) }, -1);
    assert_eq!(errno(), libc::EOPNOTSUPP);
}

#[test]
fn x1_descriptors_that_arrive_are_closed_on_exec() {
    let (one, other) = pair(libc::SOCK_STREAM).unwrap();
    for (flags, expected) in [(0, false), (MSG_CMSG_CLOEXEC, true)] {
        let mut byte = [1];
        let mut vector = entry(&mut byte);
        let mut message = empty_message();
        (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
        let mut sent = Rights::carrying(vec![one.try_clone().unwrap()]);
        let (at, len) = sent.as_mut_ptr();
        (message.msg_control, message.msg_controllen) = (at, len as _);
        // SAFETY: all that the message names is live.
        assert_eq!(unsafe { sendmsg(one.as_raw_fd(), &raw const message, 0) }.unwrap(), 1);
        let mut room = Rights::empty();
        let (at, len) = room.room();
        (message.msg_control, message.msg_controllen) = (at, len as _);
        // SAFETY: all that the message names is live.
        assert_eq!(unsafe { recvmsg(other.as_raw_fd(), &raw mut message, flags) }, 1);
        // SAFETY: the call has written it.
        let arrived = unsafe { room.take(message.msg_controllen as _) };
        assert_eq!(
            arrived.iter().map(flags_of).map(|flags| flags.1).collect::<Vec<_>>(),
            [expected]
        );
    }
}

#[test]
fn x1_family_is_known_before_a_socket_is_bound() {
    for family in [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX] {
        // SAFETY: no pointer is passed.
        let one = owned(unsafe { socket(family, libc::SOCK_DGRAM | SOCK_CLOEXEC, 0) });
        let mut found = -1;
        // SAFETY: the value is live.
        assert_eq!(unsafe { domain(one.as_raw_fd(), &raw mut found) }, 0);
        assert_eq!(found, family);
    }
    // SAFETY: nothing is written.
    assert_eq!(unsafe { domain(-1, std::ptr::null_mut()) }, -1);
    assert_eq!(errno(), libc::EBADF);
}
