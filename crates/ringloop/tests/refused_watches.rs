//! epoll without memory: an operation that waits ends with `ENOMEM` at once, takes nothing with it, and
//! may be made again; registrations that could not be taken back do not spin. A ring polls by itself.
#![allow(clippy::unwrap_used)]

use ringloop::embed::op::{Poll, Request};
use ringloop::net::{
    Interest, Readiness, TcpListener, TcpStream, UdpSocket, UnixListener, UnixName, UnixStream,
};
use ringloop::process::{Command, pipe};
use ringloop::signal::{Signal, Signals};
use ringloop::{Choice, Options, Runtime, spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::drivers;
use ringloop_testing::engine::{
    Bed, alone, expect_descriptors, open_descriptors, tcp_pair, write_all,
};
use ringloop_testing::sys::refusal::{ADD, CHANGE, REMOVE, refusals_left, refuse};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream as UnixStd;
use std::time::{Duration, Instant};

ringloop_testing::refusing_epoll_ctl!();

const SOON: Duration = Duration::from_millis(5);

/// Runs a test on every driver; with how often the kernel's refusal of a poll is an error.
fn on_all<F: Future<Output = ()>>(test: impl Fn(usize) -> F) {
    let _alone = alone();
    for driver in drivers() {
        let before = open_descriptors();
        let runtime = Runtime::with_options(Options { driver, ..Options::default() }).unwrap();
        let errors = usize::from(driver == Choice::Epoll);
        let limited = runtime.block_on(time::timeout(PATIENCE, test(errors)));
        limited.unwrap().expect("it hung");
        refuse(0, 0);
        drop(runtime);
        expect_descriptors(before);
    }
}

/// Refuses the first poll, and tries again until it is taken.
async fn refused_once<T>(errors: usize, mut attempt: impl AsyncFnMut() -> io::Result<T>) -> T {
    refuse(1, ADD | CHANGE);
    for seen in 0.. {
        match attempt().await {
            Ok(value) => {
                assert_eq!(seen, errors);
                refuse(0, 0);
                return value;
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}"),
        }
        assert!(seen < errors, "it was refused once");
    }
    unreachable!("it ends above");
}

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn stream_reads_and_writes_again() {
    on_all(|errors| async move {
        let (ours, mut peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        let sending = spawn(async move {
            time::sleep(SOON).await;
            write_all(&mut peer, b"bytes");
        });
        let read = refused_once(errors, async || stream.read(Vec::with_capacity(10)).await.0);
        assert_eq!(read.await, 5);
        sending.await.unwrap();

        let (ours, mut peer) = full_pair();
        let stream = UnixStream::from(ours);
        let reading = std::thread::spawn(move || {
            std::thread::sleep(SOON);
            let mut bytes = Vec::new();
            peer.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let written = refused_once(errors, async || stream.write(b"last".to_vec()).await.0).await;
        assert_eq!(written, 4);
        drop(stream);
        assert!(reading.join().unwrap().ends_with(b"last"));
    });
}

#[test]
fn connection_in_progress_is_refused_and_may_be_made_again() {
    on_all(|errors| async move {
        let listener = std::net::TcpListener::bind(local()).unwrap();
        let addr = listener.local_addr().unwrap();
        // SAFETY: no pointer is passed.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        // A full backlog leaves further connections in progress.
        let mut clients = Vec::new();
        while let Ok(client) = time::timeout(SOON * 10, TcpStream::connect(addr)).await {
            clients.push(client.unwrap());
        }
        refuse(1, ADD | CHANGE);
        let connected = time::timeout(SOON * 10, TcpStream::connect(addr)).await;
        match connected {
            Ok(refused) => {
                assert_eq!((refused.unwrap_err().raw_os_error(), errors), (Some(libc::ENOMEM), 1));
            }
            Err(_) => assert_eq!(errors, 0),
        }
        refuse(0, 0);
        let count = clients.len() + 1;
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().take(count) {
                drop(stream.unwrap());
            }
        });
        TcpStream::connect(addr).await.unwrap();
        accepting.join().unwrap();
    });
}

#[test]
fn listeners_accept_again() {
    on_all(|errors| async move {
        let listener = TcpListener::bind_addr(local()).unwrap();
        let addr = listener.local_addr().unwrap();
        let connecting = spawn(async move {
            time::sleep(SOON).await;
            TcpStream::connect(addr).await.unwrap()
        });
        drop(refused_once(errors, async || listener.accept().await).await);
        drop(connecting.await.unwrap());
        let mut incoming = listener.incoming();
        let connecting = spawn(async move {
            time::sleep(SOON).await;
            TcpStream::connect(addr).await.unwrap()
        });
        drop(refused_once(errors, async || incoming.next().await).await);
        drop(connecting.await.unwrap());

        let name = format!("ringloop-refused-{}", std::process::id());
        let listener = UnixListener::bind(UnixName::Abstract(name.as_bytes())).unwrap();
        let connecting = spawn(async move {
            time::sleep(SOON).await;
            UnixStream::connect(UnixName::Abstract(name.as_bytes())).await.unwrap()
        });
        drop(refused_once(errors, async || listener.accept().await).await);
        drop(connecting.await.unwrap());
    });
}

#[test]
fn datagrams_are_received_after_a_refusal() {
    let bind = || {
        let socket = UdpSocket::bind_addr(local()).unwrap();
        let addr = socket.local_addr().unwrap();
        let sending = spawn(async move {
            time::sleep(SOON).await;
            let peer = std::net::UdpSocket::bind(local()).unwrap();
            peer.send_to(b"datagram", addr).unwrap();
        });
        (socket, sending)
    };
    on_all(|errors| async move {
        let (socket, sending) = bind();
        let received = refused_once(errors, async || socket.recv(Vec::with_capacity(20)).await.0);
        assert_eq!(received.await, 8);
        sending.await.unwrap();

        let (socket, sending) = bind();
        let mut datagrams = socket.datagrams();
        let datagram = refused_once(errors, async || datagrams.next().await).await;
        assert_eq!(datagram.payload(), b"datagram");
        sending.await.unwrap();
    });
}

#[test]
fn readiness_and_signals_and_pipes_come_after_a_refusal() {
    // The process keeps the descriptors that report its signals: no other test counts meanwhile.
    {
        let _alone = alone();
        Runtime::new().unwrap().block_on(async { drop(Signals::new(&[Signal::USER_1])) }).unwrap();
    }
    on_all(|errors| async move {
        let (ours, mut peer) = tcp_pair();
        let mut readiness = Readiness::new(ours.as_fd(), Interest::READ);
        write_all(&mut peer, b"x");
        refused_once(errors, async || readiness.next().await).await;
        drop(readiness);

        let mut signals = Signals::new(&[Signal::USER_1]).unwrap();
        let raising = spawn(async {
            time::sleep(SOON).await;
            // SAFETY: no pointer is passed.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        });
        let signal = refused_once(errors, async || signals.next().await).await;
        assert_eq!(signal, Signal::USER_1);
        raising.await.unwrap();

        let (reader, writer) = pipe().unwrap();
        let writing = spawn(async move {
            time::sleep(SOON).await;
            writer.write_all(b"piped".to_vec()).await.0.unwrap();
        });
        let read = refused_once(errors, async || reader.read(Vec::with_capacity(10)).await.0);
        assert_eq!(read.await, 5);
        writing.await.unwrap();
    });
}

#[test]
fn child_can_be_waited_for_again_and_a_dropped_one_is_reaped() {
    on_all(|errors| async move {
        let mut child = Command::new("sleep").arg("0.02").spawn().unwrap();
        let status = refused_once(errors, async || child.wait().await).await;
        assert!(status.success());

        let child = Command::new("sleep").arg("0.02").spawn().unwrap();
        let pid = child.id().unwrap();
        refuse(1, ADD | CHANGE);
        drop(child);
        let begun = Instant::now();
        // SAFETY: no pointer is passed.
        while unsafe { libc::kill(pid as i32, 0) } == 0 {
            assert!(begun.elapsed() < PATIENCE, "it is not reaped");
            time::sleep(SOON).await;
        }
        assert_eq!(refusals_left() as usize, 1 - errors);
    });
}

fn poll(fd: &impl AsRawFd, interest: Interest, level: bool) -> Request {
    Request::Poll(Poll { fd: fd.as_raw_fd(), interest, level })
}

fn beds() -> impl Iterator<Item = Bed> {
    drivers().into_iter().filter(|driver| *driver == Choice::Epoll).map(Bed::new)
}

#[test]
fn registration_that_could_not_be_removed_is_removed_later() {
    let _alone = alone();
    for mut bed in beds() {
        let (ours, mut peer) = tcp_pair();
        write_all(&mut peer, b"x");
        let (key, token) = bed.submit(poll(&ours, Interest::READ, true));
        bed.expect(token);
        refuse(3, REMOVE | CHANGE);
        bed.cancel(key);
        bed.drain();
        bed.take_all();
        let begun = Instant::now();
        while refusals_left() > 0 {
            assert!(begun.elapsed() < PATIENCE, "it is not tried again");
            bed.turn(Duration::from_millis(1));
        }
        bed.turn(Duration::from_millis(1));
        bed.assert_sleeps();
        // It is watched anew.
        let (_, token) = bed.submit(poll(&ours, Interest::READ, false));
        assert!(bed.expect(token).result > 0);
    }
}

#[test]
fn others_keep_waiting_while_a_registration_cannot_be_narrowed() {
    let _alone = alone();
    for mut bed in beds() {
        let (ours, mut peer) = tcp_pair();
        let (_, reads) = bed.submit(poll(&ours, Interest::READ, true));
        let (writes, room) = bed.submit(poll(&ours, Interest::WRITE, true));
        assert!(bed.expect(room).more);
        // The kernel goes on to report room, which nothing waits for.
        refuse(3, REMOVE | CHANGE);
        bed.forget(writes);
        for _ in 0..10 {
            bed.turn(Duration::from_millis(1));
        }
        assert_eq!(refusals_left(), 0);
        bed.take_all();
        bed.assert_sleeps();
        write_all(&mut peer, b"x");
        assert!(bed.expect(reads).more);
        let mut byte = [0];
        assert_eq!((&ours).read(&mut byte).unwrap(), 1);
        bed.take_all();
        bed.turn(Duration::from_millis(1));
        bed.take_all();

        // One that begins before the kernel has followed takes no one's place.
        let (writes, room) = bed.submit(poll(&ours, Interest::WRITE, true));
        assert!(bed.expect(room).more);
        refuse(1, REMOVE | CHANGE);
        bed.forget(writes);
        assert_eq!(refusals_left(), 0);
        let (writes, room) = bed.submit(poll(&ours, Interest::WRITE, true));
        assert!(bed.expect(room).more);
        bed.forget(writes);
        bed.settle();
        bed.take_all();
        write_all(&mut peer, b"y");
        assert!(bed.expect(reads).more);
    }
}

#[test]
fn number_of_a_descriptor_that_was_not_removed_is_watched_anew() {
    let _alone = alone();
    for mut bed in beds() {
        for _ in 0..5 {
            let (ours, mut peer) = tcp_pair();
            let (key, _) = bed.submit(poll(&ours, Interest::READ, true));
            refuse(2, REMOVE);
            bed.forget(key);
            bed.release(&ours);
            let number = ours.as_raw_fd();
            drop(ours);
            refuse(0, 0);
            let (next, mut far) = tcp_pair();
            let (_, token) = bed.submit(poll(&next, Interest::READ, false));
            write_all(&mut far, b"x");
            assert!(bed.expect(token).result > 0, "{number} and {}", next.as_raw_fd());
            drop(peer.read(&mut [0]));
        }
        bed.assert_sleeps();
    }
}

/// A descriptor that is closed under its waiters, without a word to the driver, and the next file that
/// gets its number.
#[test]
fn next_file_of_a_number_is_watched_whatever_waited_for_the_last() {
    let _alone = alone();
    for mut bed in beds() {
        for (old, new) in [
            (Interest::WRITE, Interest::WRITE),
            (Interest::READ, Interest::READ),
            (Interest::READ, Interest::WRITE),
            (Interest::WRITE, Interest::READ),
        ] {
            for level in [true, false] {
                if old != new && !level {
                    // The new one is ready at once, and never watched.
                    continue;
                }
                let (ours, _peer) = full_pair();
                let number = ours.as_raw_fd();
                let (_, waited) = bed.submit(poll(&ours, old, level));
                bed.settle();
                assert!(bed.take(waited).is_none());
                let (fresh, mut far) = tcp_pair();
                drop(ours);
                let next = fresh.try_clone().unwrap();
                assert_eq!(next.as_raw_fd(), number, "the lowest one is used again");
                write_all(&mut far, b"x");
                let (key, token) = bed.submit(poll(&next, new, level));
                assert!(bed.expect(token).result > 0, "{old:?} {new:?} {level}");
                let ended = bed.expect(waited);
                assert_eq!((ended.result, ended.more), (-libc::EBADF, false));
                bed.forget(key);
                bed.release(&next);
                bed.take_all();
            }
        }
        bed.assert_sleeps();
    }
}

/// Neither readable nor writable.
fn full_pair() -> (UnixStd, UnixStd) {
    let (ours, peer) = UnixStd::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[0; 4096]).is_ok() {}
    (ours, peer)
}
