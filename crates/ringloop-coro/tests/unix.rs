//! Unix and UDP sockets: waits without an event, time limits, and drops after them; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::sys::socket;
use ringloop_coro::net::{UdpSocket, UnixDatagram, UnixListener, UnixStream};
use ringloop_coro::{sleep, spawn, spawn_local};
use ringloop_testing::coro::on_both;
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net as std_net;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A unique path for a socket, removed when dropped.
struct Name(PathBuf);

impl Name {
    fn new() -> Self {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringloop-coro-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// Sends until the receiver's queue is full.
fn fill(name: &Name) -> usize {
    let sender = std_net::UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    let sent = (0..10_000).take_while(|_| sender.send_to(b"x", &name.0).is_ok());
    sent.count()
}

#[test]
fn datagram_to_a_full_receiver_waits_idle_and_times_out() {
    on_both(|| {
        let name = Name::new();
        let receiver = UnixDatagram::bind(&name.0).unwrap();
        let queued = fill(&name);
        let sender = UnixDatagram::unbound().unwrap();
        let limit = Duration::from_millis(50);
        sender.set_write_timeout(Some(limit)).unwrap();
        let began = Instant::now();
        let error = sender.send_to(b"y", &name.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(began.elapsed() >= limit);

        sender.set_write_timeout(None).unwrap();
        let path = name.0.clone();
        let sending = spawn(move || sender.send_to(b"last", &path));
        sleep(Duration::from_millis(5));
        let mut buf = [0; 8];
        for _ in 0..queued {
            assert_eq!(receiver.recv(&mut buf).unwrap(), 1);
        }
        assert_eq!(receiver.recv(&mut buf).unwrap(), 4);
        assert_eq!(sending.join().unwrap().unwrap(), 4);
    });
}

#[test]
fn connect_to_a_full_backlog_waits_for_room() {
    on_both(|| {
        let name = Name::new();
        let listener = std_net::UnixListener::bind(&name.0).unwrap();
        socket::listen(listener.as_raw_fd(), 0).unwrap();
        let listener = UnixListener::try_from(listener).unwrap();
        let connecting: Vec<_> = (0..4)
            .map(|_| {
                let path = name.0.clone();
                spawn(move || UnixStream::connect(path).and_then(|mut own| own.write_all(b"x")))
            })
            .collect();
        sleep(Duration::from_millis(5));
        for _ in 0..4 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buf = [0; 2];
            assert_eq!(stream.read(&mut buf).unwrap(), 1);
        }
        for connecting in connecting {
            connecting.join().unwrap().unwrap();
        }
    });
}

/// A byte wakes all readers, and the readers that find nothing have waited already: of eight, at
/// most five receive a byte within their limit.
#[test]
fn read_timeout_covers_all_wakes_of_a_read() {
    on_both(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        one.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (one, is_over) = (Rc::new(one), Rc::new(Cell::new(false)));
        let reading: Vec<_> = (0..8)
            .map(|_| {
                let (one, is_over) = (Rc::clone(&one), Rc::clone(&is_over));
                spawn_local(move || {
                    let mut ended_early = 0;
                    loop {
                        let has_ended = one.recv(&mut [0; 1]).is_err();
                        if has_ended && is_over.get() {
                            return ended_early;
                        }
                        ended_early += u32::from(has_ended);
                    }
                })
            })
            .collect();
        for _ in 0..30 {
            sleep(Duration::from_millis(20));
            assert_eq!(other.send(b"x").unwrap(), 1);
        }
        is_over.set(true);
        let counts = reading.into_iter().map(|reading| reading.join().unwrap());
        assert!(counts.sum::<u32>() > 0);
    });
}

#[test]
fn socket_whose_wait_has_timed_out_is_closed_with_its_drop() {
    on_both(|| {
        let limit = Some(Duration::from_millis(2));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        socket.set_read_timeout(limit).unwrap();
        assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(socket);
        std::net::UdpSocket::bind(address).unwrap();

        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_read_timeout(limit).unwrap();
        assert_eq!(ours.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(ours);
        assert_eq!(theirs.send(b"x").unwrap_err().kind(), ErrorKind::ConnectionRefused);

        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(limit).unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(ours);
        theirs.set_nonblocking(true).unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn unix_peer_closed_before_accept_is_accepted() {
    on_both(|| {
        let name = format!("coro-gone-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        drop(UnixStream::connect(&path).unwrap());
        let (mut stream, peer) = listener.accept().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(peer.is_unnamed());
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn unix_streams_by_path() {
    on_both(|| {
        let path = std::env::temp_dir().join(format!("coro-{}.sock", std::process::id()));
        drop(std::fs::remove_file(&path));
        let listener = UnixListener::bind(&path).unwrap();
        let serving = spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut word = [0; 4];
            stream.read_exact(&mut word).unwrap();
            stream.write_all(&word).unwrap();
        });
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"unix").unwrap();
        let mut word = String::new();
        stream.read_to_string(&mut word).unwrap();
        assert_eq!(word, "unix");
        serving.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn datagram_of_a_pair_arrives() {
    on_both(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        one.send(b"a datagram").unwrap();
        assert_eq!(other.recv(&mut [0; 16]).unwrap(), 10);
    });
}
