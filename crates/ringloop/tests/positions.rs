//! Positional calls on unseekable files: ESPIPE, and nothing is taken; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::fs::{File, RegisteredBuf, RegisteredFile};
use ringloop_testing::engine::in_runtimes;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ESPIPE));
}

/// Every positional call of a file, whole and registered.
async fn try_all(end: &OwnedFd) {
    let clone = || File::from(end.try_clone().unwrap());
    let file = clone();
    for offset in [0, 5] {
        let room = || Vec::with_capacity(2);
        let (result, buf) = file.read_at(room(), offset).await;
        assert_refused(result);
        assert_eq!(buf.capacity(), 2);
        assert_refused(file.read_exact_at(room(), 2, offset).await.0);
        assert_refused(file.read_vectored_at(vec![room(), room()], offset).await.0);
        let (result, buf) = file.write_at(b"ab".to_vec(), offset).await;
        assert_refused(result);
        assert_eq!(buf, b"ab");
        assert_refused(file.write_all_at(b"ab".to_vec(), offset).await.0);
        let parts = vec![b"a".to_vec(), b"b".to_vec()];
        let (result, parts) = file.write_vectored_at(parts, offset).await;
        assert_refused(result);
        assert_eq!(parts, [b"a", b"b"]);
    }
    let file = RegisteredFile::new(clone());
    let (result, buf) = file.read_at(RegisteredBuf::with_capacity(2), 5).await;
    assert_refused(result);
    let (result, buf) = file.write_at(buf, 5).await;
    assert_refused(result);
    assert_refused(file.write_all_at(buf, 5).await.0);
}

fn assert_holds(reads: &mut impl Read, expected: &[u8]) {
    let mut all = Vec::new();
    reads.read_to_end(&mut all).unwrap();
    assert_eq!(all, expected);
}

#[test]
fn pipe_and_socket_keep_their_bytes_and_are_given_none() {
    in_runtimes(|runtime| {
        let (mut reads, mut writes) = io::pipe().unwrap();
        writes.write_all(b"data").unwrap();
        let reading = reads.try_clone().unwrap().into();
        runtime.block_on(try_all(&reading)).unwrap();
        let writing = writes.try_clone().unwrap().into();
        runtime.block_on(try_all(&writing)).unwrap();
        drop((writing, writes));
        assert_holds(&mut reads, b"data");

        let (mut ours, mut peer) = UnixStream::pair().unwrap();
        peer.write_all(b"data").unwrap();
        runtime.block_on(try_all(&ours.try_clone().unwrap().into())).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert_holds(&mut ours, b"data");
        drop(ours);
        assert_holds(&mut peer, b"");
    });
}

#[test]
fn terminal_has_no_positions_and_memory_devices_have() {
    in_runtimes(|runtime| {
        // SAFETY: no pointer is passed.
        let terminal = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) };
        if terminal >= 0 {
            // SAFETY: it was just opened.
            let terminal = unsafe { std::os::fd::FromRawFd::from_raw_fd(terminal) };
            runtime.block_on(try_all(&terminal)).unwrap();
        }
        let zero = async {
            let zero = File::open("/dev/zero").await.unwrap();
            let (count, bytes) = zero.read_at(Vec::with_capacity(3), 7).await;
            assert_eq!((count.unwrap(), &bytes[..]), (3, &[0; 3][..]));
        };
        runtime.block_on(zero).unwrap();
    });
}
