//! epoll without memory: what a coroutine parks on ends with `ENOMEM`, takes nothing with it, and may be
//! called again.
#![allow(clippy::unwrap_used)]

use ringloop_coro::event::{EventSource, Interest};
use ringloop_coro::net::{TcpListener, TcpStream, UdpSocket};
use ringloop_coro::process::Command;
use ringloop_coro::signal::{Signal, Signals};
use ringloop_coro::{sleep, spawn_local};
use ringloop_testing::coro::on_both;
use ringloop_testing::sys::refusal::{ADD, CHANGE, refusals_left, refuse};
use std::io::{self, Read as _, Write as _};
use std::thread;
use std::time::Duration;

ringloop_testing::refusing_epoll_ctl!();

const SOON: Duration = Duration::from_millis(5);

/// Refuses the first poll, and tries again until it is taken. A ring polls by itself.
fn refused_once<T>(mut attempt: impl FnMut() -> io::Result<T>) -> T {
    refuse(1, ADD | CHANGE);
    let first = attempt();
    let is_refused = refusals_left() == 0;
    refuse(0, 0);
    match first {
        Ok(value) => {
            assert!(!is_refused);
            value
        }
        Err(error) => {
            assert_eq!((error.raw_os_error(), is_refused), (Some(libc::ENOMEM), true));
            attempt().unwrap()
        }
    }
}

#[test]
fn reads_and_writes_and_accepts_go_on_after_a_refusal() {
    on_both(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Of threads, to which nothing is refused.
        let (mut peer, _) = listener.accept().unwrap();
        let sending = thread::spawn(move || {
            thread::sleep(SOON);
            peer.write_all(b"bytes").unwrap();
            peer
        });
        let mut into = [0; 10];
        assert_eq!(refused_once(|| ours.read(&mut into)), 5);
        let mut peer = sending.join().unwrap();

        ours.set_write_timeout(Some(SOON)).unwrap();
        let mut sent = 0;
        while let Ok(count) = ours.write(&[0; 1 << 14]) {
            sent += count;
        }
        ours.set_write_timeout(None).unwrap();
        let reading = thread::spawn(move || {
            thread::sleep(SOON);
            let mut bytes = vec![0; sent + 4];
            peer.read_exact(&mut bytes).unwrap();
            bytes[sent..].to_vec()
        });
        assert_eq!(refused_once(|| ours.write(b"last")), 4);
        assert_eq!(reading.join().unwrap(), b"last");

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let connecting = spawn_local(move || {
            sleep(SOON);
            TcpStream::connect(addr).unwrap()
        });
        drop(refused_once(|| listener.accept()));
        drop(connecting.join().unwrap());
    });
}

#[test]
fn datagrams_and_events_come_after_a_refusal() {
    on_both(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let sending = spawn_local(move || {
            sleep(SOON);
            let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            peer.send_to(b"datagram", addr).unwrap();
        });
        let mut into = [0; 20];
        assert_eq!(refused_once(|| socket.recv(&mut into)), 8);
        sending.join().unwrap();

        let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let source = EventSource::new(ours).unwrap();
        let sending = spawn_local(move || {
            sleep(SOON);
            peer.write_all(b"x").unwrap();
            peer
        });
        let read = refused_once(|| {
            source.when(Interest::READ, |mut source: &std::os::unix::net::UnixStream| {
                source.read(&mut into)
            })
        });
        assert_eq!(read, 1);
        drop(sending.join().unwrap());
    });
}

#[test]
fn children_and_signals_are_waited_for_again() {
    on_both(|| {
        let mut child = Command::new("sleep").arg("0.02").spawn().unwrap();
        assert!(refused_once(|| child.wait()).success());

        let mut signals = Signals::new(&[Signal::USER_2]).unwrap();
        let raising = spawn_local(|| {
            sleep(SOON);
            // SAFETY: no pointer is passed.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
        });
        assert_eq!(refused_once(|| signals.wait()), Signal::USER_2);
        raising.join().unwrap();
    });
}
