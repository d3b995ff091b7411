//! A process without room for another descriptor: which errors are reported, and how often; on both
//! drivers.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::embed::limits;
use ringloop::net::{TcpListener, UnixListener, UnixStream};
use ringloop::{Runtime, time};
use ringloop_testing::engine::{alone, processor_time};
use ringloop_testing::sys::fork::forked;
use ringloop_testing::{PATIENCE, drivers};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Runs a test in its own process, with its own limits, on every driver.
fn in_processes(test: impl Fn(&Runtime)) {
    let _alone = alone();
    for driver in drivers() {
        assert_eq!(forked(|| test(&runtime(driver))), 0, "{driver:?}");
    }
}

fn runtime(driver: Choice) -> Runtime {
    Runtime::builder().driver(driver).build().unwrap()
}

/// Limits the process to `count` more descriptors than it has open now.
fn leave_room_for(count: usize) {
    limit_descriptors(1024);
    // SAFETY: no pointer is passed.
    let next = unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 0) };
    assert!(next >= 0);
    // SAFETY: it was just opened.
    unsafe { libc::close(next) };
    limit_descriptors(next as usize + count);
}

fn limit_descriptors(count: usize) {
    let limit = libc::rlimit { rlim_cur: count as libc::rlim_t, rlim_max: 1024 };
    // SAFETY: a pointer to a live local.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(done, 0);
}

/// How often `accept` returns that error, within a few pauses.
async fn refusals<T>(mut accept: impl AsyncFnMut() -> io::Result<T>) -> usize {
    let (began, spent) = (Instant::now(), processor_time());
    let mut count = 0;
    while began.elapsed() < 3 * limits::ACCEPT_PAUSE {
        let error = accept().await.err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        count += 1;
    }
    let spent = processor_time().saturating_sub(spent);
    assert!(spent < limits::ACCEPT_PAUSE, "{spent:?} of processor time");
    count
}

#[test]
fn accept_without_descriptors_does_not_spin_and_takes_the_connection_later() {
    in_processes(|runtime| {
        let main = async {
            let listener = TcpListener::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            leave_room_for(0);
            assert!((1..=3).contains(&refusals(async || listener.accept().await).await));
            let mut incoming = listener.incoming();
            assert!((1..=3).contains(&refusals(async || incoming.next().await).await));
            leave_room_for(8);
            let taken = time::timeout(PATIENCE, incoming.next()).await.unwrap();
            assert_eq!(taken.unwrap().peer_addr().unwrap(), client.local_addr().unwrap());
        };
        runtime.block_on(main).unwrap();
    });
}

#[test]
fn unix_accept_without_descriptors_does_not_spin_either() {
    in_processes(|runtime| {
        let main = async {
            let name = format!("\0ringloop-exhaustion-{}", std::process::id());
            let name = name.as_bytes();
            let listener =
                UnixListener::bind(ringloop::net::UnixName::Abstract(&name[1..])).unwrap();
            let connect = UnixStream::connect(ringloop::net::UnixName::Abstract(&name[1..]));
            let _client = connect.await.unwrap();
            leave_room_for(0);
            assert!((1..=3).contains(&refusals(async || listener.accept().await).await));
            let mut incoming = listener.incoming();
            assert!((1..=3).contains(&refusals(async || incoming.next().await).await));
            // Dropped during a pause.
            let given_up = time::timeout(Duration::from_millis(1), incoming.next()).await;
            assert!(given_up.is_err());
            let pending = poll_fn(|cx| Poll::Ready(incoming.poll_next(cx).is_pending())).await;
            assert!(pending);
            leave_room_for(8);
            drop(time::timeout(PATIENCE, incoming.next()).await.unwrap());
        };
        runtime.block_on(main).unwrap();
    });
}

#[test]
fn descriptors_without_room_are_reported_and_the_bytes_arrive() {
    in_processes(|runtime| {
        let main = async {
            let (one, other) = UnixStream::pair().unwrap();
            let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
            let three = vec![null(), null(), null()];
            let (sent, _, three) = one.send_descriptors(b"with".to_vec(), three).await;
            sent.unwrap();
            let (sent, _, three) = one.send_descriptors(b"whole".to_vec(), three).await;
            sent.unwrap();
            leave_room_for(1);
            let (count, bytes, fds) = other.recv_descriptors(Vec::with_capacity(4)).await;
            assert_eq!((count.unwrap(), &bytes[..]), (4, &b"with"[..]));
            assert!(fds.list.len() < 3 && fds.is_cut, "{fds:?}");
            drop((three, fds));
            leave_room_for(8);
            let (count, bytes, fds) = other.recv_descriptors(Vec::with_capacity(8)).await;
            assert_eq!((count.unwrap(), &bytes[..]), (5, &b"whole"[..]));
            assert!(fds.list.len() == 3 && !fds.is_cut, "{fds:?}");
        };
        runtime.block_on(main).unwrap();
    });
}
