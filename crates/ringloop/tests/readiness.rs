//! Readiness as a sequence: each change is reported once, on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::sys::file;
use ringloop::embed::sys::interest::Interest;
use ringloop::net::{Readiness, TcpStream, UnixStream};
use ringloop::{Runtime, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine;
use ringloop_testing::engine::{in_runtimes, processor_time};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(20);

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

/// Number of reports of a change within a moment, at almost no cost.
async fn reports(readiness: &mut Readiness<'_>) -> usize {
    let mut count = 0;
    while time::timeout(MOMENT, readiness.next()).await.is_ok() {
        count += 1;
        assert!(count < 100, "told again and again");
    }
    // A second wait, of code that has run: an emulator translates it the first time.
    let began = processor_time();
    assert!(time::timeout(MOMENT, readiness.next()).await.is_err(), "told late");
    let spent = processor_time().saturating_sub(began);
    assert!(spent < MOMENT, "the loop spins");
    count
}

async fn expect(readiness: &mut Readiness<'_>, interest: Interest) {
    let next = time::timeout(PATIENCE, readiness.next()).await;
    assert_eq!(next.unwrap().unwrap(), interest);
}

#[test]
fn hang_up_is_reported_once() {
    in_runtimes(|runtime| {
        // SAFETY: no pointer is passed.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        assert!(socket >= 0);
        // SAFETY: it was just created.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        run(runtime, async {
            for interest in [Interest::READ, Interest::WRITE, Interest::BOTH] {
                let mut readiness = Readiness::new(socket.as_fd(), interest);
                assert_eq!(reports(&mut readiness).await, 1);
            }
        });
    });
}

#[test]
fn unread_data_is_not_reported_again_and_new_data_is() {
    in_runtimes(|runtime| {
        let (reader, writer) = file::pipe().unwrap();
        run(runtime, async {
            let mut readiness = Readiness::new(reader.as_fd(), Interest::READ);
            for _ in 0..3 {
                file::write(writer.as_raw_fd(), b"x", None).unwrap();
                assert_eq!(reports(&mut readiness).await, 1);
            }
            // Nothing was read: the end is a change all the same.
            drop(writer);
            assert_eq!(reports(&mut readiness).await, 1);
        });
    });
}

#[test]
fn each_direction_is_reported_when_it_changes() {
    in_runtimes(|runtime| {
        let (mut ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let watched = ours.try_clone().unwrap();
        run(runtime, async {
            let mut readiness = Readiness::new(watched.as_fd(), Interest::BOTH);
            expect(&mut readiness, Interest::WRITE).await;
            assert_eq!(reports(&mut readiness).await, 0);
            peer.write_all(b"x").unwrap();
            let next = time::timeout(PATIENCE, readiness.next()).await;
            assert!(next.unwrap().unwrap().contains(Interest::READ));
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
            while ours.write(&[0; 4096]).is_ok() {}
            reports(&mut readiness).await;
            let mut room = vec![0; 1 << 20];
            assert!(peer.read(&mut room).unwrap() > 0);
            let next = time::timeout(PATIENCE, readiness.next()).await;
            assert!(next.unwrap().unwrap().contains(Interest::WRITE));
        });
    });
}

#[test]
fn two_watchers_of_one_descriptor_both_get_each_change() {
    in_runtimes(|runtime| {
        let (reader, writer) = file::pipe().unwrap();
        run(runtime, async {
            let mut one = Readiness::new(reader.as_fd(), Interest::READ);
            let mut other = Readiness::new(reader.as_fd(), Interest::READ);
            assert_eq!((reports(&mut one).await, reports(&mut other).await), (0, 0));
            file::write(writer.as_raw_fd(), b"x", None).unwrap();
            assert_eq!((reports(&mut one).await, reports(&mut other).await), (1, 1));
        });
    });
}

/// A level-triggered operation on the descriptor, concurrent with one that waits for changes.
#[test]
fn concurrent_reads_lose_nothing_and_leave_no_spinning() {
    in_runtimes(|runtime| {
        let (ours, mut peer) = engine::tcp_pair();
        let watched = ours.try_clone().unwrap();
        let stream = TcpStream::from(ours);
        run(runtime, async {
            let mut readiness = Readiness::new(watched.as_fd(), Interest::READ);
            assert_eq!(reports(&mut readiness).await, 0);
            let read = time::timeout(MOMENT, stream.read(Vec::with_capacity(8))).await;
            assert!(read.is_err(), "there was nothing to read");
            peer.write_all(b"first").unwrap();
            assert!(reports(&mut readiness).await >= 1);
            let (count, bytes) = stream.read(Vec::with_capacity(8)).await;
            assert_eq!((count.unwrap(), &bytes[..]), (5, &b"first"[..]));
            peer.write_all(b"second").unwrap();
            assert!(reports(&mut readiness).await >= 1);
            let (count, bytes) = stream.read(Vec::with_capacity(8)).await;
            assert_eq!((count.unwrap(), &bytes[..]), (6, &b"second"[..]));
        });
    });
}

/// A later read of the descriptor must not miss data that was there before.
#[test]
fn later_reads_get_data_that_was_there_before() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = UnixStream::pair().unwrap();
            for round in 0..3 {
                peer.write_all(vec![round]).await.0.unwrap();
                let fd = ours.as_fd().try_clone_to_owned().unwrap();
                let mut readiness = Readiness::new(fd.as_fd(), Interest::READ);
                expect(&mut readiness, Interest::READ).await;
                drop(readiness);
                let read = time::timeout(PATIENCE, ours.read(Vec::with_capacity(8))).await;
                assert_eq!(read.unwrap().1, [round]);
            }
        });
    });
}
