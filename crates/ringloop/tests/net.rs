//! Sockets as programs use them: addresses, options, halves, vectored writes, names, datagrams; on both drivers.
#![allow(clippy::unwrap_used)]

mod support;

use ringloop::net::{
    Keepalive, ListenOptions, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener,
    UnixName, UnixStream,
};
use ringloop::{Runtime, spawn, time};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use support::{in_runtimes, read_exact};

const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(LOCAL.into()).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    (ours, listener.accept().await.unwrap())
}

async fn read_to_end(stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let (count, bytes) = stream.read(Vec::with_capacity(4096)).await;
        if count.unwrap() == 0 {
            return all;
        }
        all.extend(bytes);
    }
}

#[test]
fn options_are_what_was_set() {
    in_runtimes(|runtime| {
        run(runtime, async {
            for address in [
                LOCAL.into(),
                SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0)),
            ] {
                let listener = TcpListener::bind(address).unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap())
                    .await
                    .unwrap();
                for on in [true, false] {
                    stream.set_nodelay(on).unwrap();
                    assert_eq!(stream.nodelay().unwrap(), on);
                }
                stream.set_keepalive(Some(Keepalive::default())).unwrap();
                assert!(stream.keepalive().unwrap());
                stream.set_keepalive(None).unwrap();
                assert!(!stream.keepalive().unwrap());
                stream.set_ttl(9).unwrap();
                assert_eq!(stream.ttl().unwrap(), 9);
                stream.set_send_buffer(1 << 16).unwrap();
                stream.set_receive_buffer(1 << 16).unwrap();
                assert_eq!(stream.as_fd().as_raw_fd(), stream.as_raw_fd());
            }
        });
    });
}

#[test]
fn linger_of_zero_resets_the_connection() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            peer.set_linger(Some(Duration::ZERO)).unwrap();
            drop(peer);
            let (result, _) = ours.read(Vec::with_capacity(8)).await;
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        });
    });
}

#[test]
fn listeners_share_an_address_only_where_both_say_so() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let options = ListenOptions {
                reuse_port: true,
                ..ListenOptions::default()
            };
            let one = TcpListener::bind_with(LOCAL.into(), options).unwrap();
            let address = one.local_addr().unwrap();
            let other = TcpListener::bind_with(address, options).unwrap();
            assert_eq!(other.local_addr().unwrap(), address);
            let alone = TcpListener::bind(address).unwrap_err();
            assert_eq!(alone.kind(), io::ErrorKind::AddrInUse);
        });
    });
}

#[test]
fn connecting_is_bounded_in_time_and_tries_each_address() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let listener = TcpListener::bind(LOCAL.into()).unwrap();
            let address = listener.local_addr().unwrap();
            let closed = {
                let gone = TcpListener::bind(LOCAL.into()).unwrap();
                gone.local_addr().unwrap()
            };
            let refused = TcpStream::connect(closed).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let stream = TcpStream::connect_any(&[closed, address]).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
            let none = TcpStream::connect_any(&[]).await.unwrap_err();
            assert_eq!(none.kind(), io::ErrorKind::InvalidInput);
            // A listener whose backlog is full does not answer.
            let options = ListenOptions {
                backlog: 0,
                ..ListenOptions::default()
            };
            let full = TcpListener::bind_with(LOCAL.into(), options).unwrap();
            let full_at = full.local_addr().unwrap();
            let _first = TcpStream::connect(full_at).await.unwrap();
            let limit = Duration::from_millis(20);
            let started = Instant::now();
            let late = TcpStream::connect_timeout(full_at, limit)
                .await
                .unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            assert!(started.elapsed() >= limit);
        });
    });
}

#[test]
fn peeked_bytes_stay_on_the_socket() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            peer.write_all(b"look".to_vec()).await.0.unwrap();
            for _ in 0..3 {
                let (count, bytes) = ours.peek(Vec::with_capacity(2)).await;
                assert_eq!((count.unwrap(), &bytes[..]), (2, &b"lo"[..]));
            }
            let (_, bytes) = ours.read(Vec::with_capacity(64)).await;
            assert_eq!(bytes, b"look");
            drop(peer);
            let (end, _) = ours.peek(Vec::with_capacity(2)).await;
            assert_eq!(end.unwrap(), 0);
        });
    });
}

#[test]
fn vectored_writes_arrive_in_order_and_their_buffers_come_back() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            // More than the socket takes at once, more buffers than one call takes, empty ones among them.
            let bufs: Vec<Vec<u8>> = (0..3_000_u32)
                .map(|at| vec![(at % 251) as u8; (at % 5) as usize * 700])
                .collect();
            let expected = bufs.concat();
            let reader = spawn(async move { read_to_end(&peer).await });
            let (sent, back) = ours.write_all_vectored(bufs.clone()).await;
            sent.unwrap();
            assert!(back == bufs);
            let (count, back) = ours
                .write_vectored(vec![b"a".to_vec(), b"bc".to_vec()])
                .await;
            assert_eq!((count.unwrap(), back.len()), (3, 2));
            let (nothing, _) = ours.write_all_vectored(Vec::new()).await;
            nothing.unwrap();
            drop(ours);
            assert!(reader.await.unwrap() == [&expected[..], b"abc"].concat());
        });
    });
}

#[test]
fn vectored_write_to_a_closed_peer_gives_every_buffer_back() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            peer.set_linger(Some(Duration::ZERO)).unwrap();
            drop(peer);
            let bufs = vec![vec![b'x'; 10], Vec::new(), vec![b'y'; 20]];
            loop {
                let (sent, back) = ours.write_all_vectored(bufs.clone()).await;
                assert_eq!(back, bufs);
                if sent.is_err() {
                    break;
                }
            }
        });
    });
}

#[test]
fn halves_work_at_once_and_become_whole_again() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            let (mut reader, mut writer) = ours.split();
            writer.write_all(b"borrowed".to_vec()).await.0.unwrap();
            let (_, bytes) = peer.read(Vec::with_capacity(64)).await;
            assert_eq!(bytes, b"borrowed");
            peer.write_all(b"back".to_vec()).await.0.unwrap();
            let (_, bytes) = reader.read(Vec::with_capacity(64)).await;
            assert_eq!(bytes, b"back");
            drop((reader, writer));
            let (reader, mut writer) = ours.into_split();
            writer.write_all(b"owned".to_vec()).await.0.unwrap();
            let (other, _) = pair().await;
            let (_, stranger) = other.into_split();
            let (reader, stranger) = reader.reunite(stranger).unwrap_err();
            drop(stranger);
            let ours = reader.reunite(writer).unwrap();
            // Whole again, nothing was shut down.
            ours.write_all(b" and more".to_vec()).await.0.unwrap();
            let (reader, writer) = ours.into_split();
            drop(writer);
            assert_eq!(read_to_end(&peer).await, b"owned and more");
            peer.write_all(b"still".to_vec()).await.0.unwrap();
            let mut reader = reader;
            let (_, bytes) = reader.read(Vec::with_capacity(64)).await;
            assert_eq!(bytes, b"still");
        });
    });
}

#[test]
fn shutdown_ends_one_direction() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            ours.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_to_end(&peer).await, b"");
            peer.write_all(b"heard".to_vec()).await.0.unwrap();
            let (_, bytes) = ours.read(Vec::with_capacity(64)).await;
            assert_eq!(bytes, b"heard");
            let (result, _) = ours.write(b"x".to_vec()).await;
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        });
    });
}

#[test]
fn descriptor_moves_to_another_runtime() {
    in_runtimes(|runtime| {
        let (ours, peer) = run(runtime, async {
            let (ours, peer) = pair().await;
            ours.write_all(b"one".to_vec()).await.0.unwrap();
            (OwnedFd::from(ours), OwnedFd::from(peer))
        });
        let elsewhere = std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            run(&runtime, async {
                let (ours, peer) = (TcpStream::from(ours), TcpStream::from(peer));
                ours.write_all(b" two".to_vec()).await.0.unwrap();
                drop(ours);
                read_to_end(&peer).await
            })
        });
        assert_eq!(elsewhere.join().unwrap(), b"one two");
    });
}

#[test]
fn datagrams_go_to_their_address_and_to_the_peer() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let one = UdpSocket::bind(LOCAL.into()).unwrap();
            let other = UdpSocket::bind(LOCAL.into()).unwrap();
            let (one_at, other_at) = (one.local_addr().unwrap(), other.local_addr().unwrap());
            let (count, back) = one.send_to(b"hello".to_vec(), other_at).await;
            assert_eq!((count.unwrap(), &back[..]), (5, &b"hello"[..]));
            let (from, bytes) = other.recv_from(Vec::with_capacity(3)).await;
            assert_eq!(
                (from.unwrap(), &bytes[..]),
                ((3, one_at), &b"hel"[..]),
                "cut"
            );
            other.connect(one_at).await.unwrap();
            assert_eq!(other.peer_addr().unwrap(), one_at);
            other.send(Vec::new()).await.0.unwrap();
            other.send(b"peer".to_vec()).await.0.unwrap();
            let (empty, bytes) = one.recv_from(Vec::with_capacity(8)).await;
            assert_eq!((empty.unwrap(), bytes.len()), ((0, other_at), 0));
            assert_eq!(one.peek(Vec::with_capacity(8)).await.1, b"peer");
            assert_eq!(one.recv(Vec::with_capacity(8)).await.1, b"peer");
            let (result, _) = one.send_to(vec![0; 70_000], other_at).await;
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
            one.set_broadcast(true).unwrap();
            one.set_ttl(3).unwrap();
            one.set_send_buffer(1 << 16).unwrap();
            one.set_receive_buffer(1 << 16).unwrap();
        });
    });
}

#[test]
fn batches_arrive_whole_while_the_receiver_keeps_up() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let receiver = UdpSocket::bind_reuse_port(LOCAL.into()).unwrap();
            receiver.set_receive_buffer(8 << 20).unwrap();
            let sender = UdpSocket::bind(LOCAL.into()).unwrap();
            sender
                .connect(receiver.local_addr().unwrap())
                .await
                .unwrap();
            let payloads: Vec<Vec<u8>> = (0..100_u8).map(|at| vec![at; 100]).collect();
            let batch: Vec<(&[u8], Option<SocketAddr>)> =
                payloads.iter().map(|bytes| (&bytes[..], None)).collect();
            let (count, sent) = sender.send_batch(&batch).await;
            sent.unwrap();
            assert_eq!(count, 100);
            for payload in &payloads {
                let (_, bytes) = receiver.recv(Vec::with_capacity(200)).await;
                assert_eq!(&bytes, payload);
            }
            let too_long = vec![0; 70_000];
            let (count, failed) = sender
                .send_batch(&[(b"fits", None), (&too_long, None)])
                .await;
            assert_eq!(
                (count, failed.unwrap_err().raw_os_error()),
                (1, Some(libc::EMSGSIZE))
            );
        });
    });
}

/// A name of this process, test and driver.
fn abstract_name(test: &str, runtime: &Runtime) -> Vec<u8> {
    format!("ringloop-{}-{test}-{}", std::process::id(), runtime.kind()).into_bytes()
}

#[test]
fn unix_listeners_are_reached_by_path_and_by_abstract_name() {
    in_runtimes(|runtime| {
        let name = abstract_name("stream", runtime);
        let path = std::env::temp_dir().join(String::from_utf8(name.clone()).unwrap());
        for name in [UnixName::Abstract(&name), UnixName::Path(&path)] {
            run(runtime, async {
                let listener = UnixListener::bind(name).unwrap();
                assert_eq!(listener.local_addr().unwrap().to_unix(), Some(name));
                let taken = UnixListener::bind(name).unwrap_err();
                assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
                let client = UnixStream::connect(name).await.unwrap();
                assert_eq!(client.peer_addr().unwrap().to_unix(), Some(name));
                let server = listener.accept().await.unwrap();
                client.write_all(b"hello".to_vec()).await.0.unwrap();
                assert_eq!(server.peek(Vec::with_capacity(8)).await.1, b"hello");
                assert_eq!(server.read(Vec::with_capacity(8)).await.1, b"hello");
                let second = UnixStream::connect(name).await.unwrap();
                let mut incoming = listener.incoming();
                let accepted = incoming.next().await.unwrap();
                second.shutdown(Shutdown::Write).unwrap();
                assert_eq!(accepted.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
            });
        }
        let gone = run(runtime, UnixStream::connect(&path)).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
        let absent = run(runtime, UnixStream::connect(&path)).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn unix_pairs_talk_both_ways_in_halves() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, other) = UnixStream::pair().unwrap();
            let (mut reader, mut writer) = one.into_split();
            writer
                .write_all_vectored(vec![b"he".to_vec(), b"llo".to_vec()])
                .await
                .0
                .unwrap();
            drop(writer);
            assert_eq!(other.read(Vec::with_capacity(8)).await.1, b"hello");
            assert_eq!(other.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
            other
                .write_vectored(vec![b"back".to_vec()])
                .await
                .0
                .unwrap();
            assert_eq!(reader.read(Vec::with_capacity(8)).await.1, b"back");
        });
    });
}

#[test]
fn descriptors_pass_through_a_unix_stream_and_a_dropped_receive_closes_them() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, other) = UnixStream::pair().unwrap();
            let before = support::open_descriptors();
            let (reader, writer) = std::io::pipe().unwrap();
            let passed = vec![OwnedFd::from(reader), OwnedFd::from(writer)];
            let (sent, bytes, back) = one.send_descriptors(b"two".to_vec(), passed).await;
            assert_eq!((sent.unwrap(), &bytes[..], back.len()), (3, &b"two"[..], 2));
            drop(back);
            let (count, bytes, mut fds) = other.recv_descriptors(Vec::with_capacity(8)).await;
            assert_eq!((count.unwrap(), &bytes[..], fds.len()), (3, &b"two"[..], 2));
            let mut writer = std::io::PipeWriter::from(fds.pop().unwrap());
            let mut reader = std::io::PipeReader::from(fds.pop().unwrap());
            std::io::Write::write_all(&mut writer, b"through").unwrap();
            drop(writer);
            let mut all = String::new();
            std::io::Read::read_to_string(&mut reader, &mut all).unwrap();
            assert_eq!(all, "through");
            drop(reader);
            assert_eq!(support::open_descriptors(), before);
            // Without any it is a plain send and receive.
            one.send_descriptors(b"none".to_vec(), Vec::new())
                .await
                .0
                .unwrap();
            let (_, bytes, fds) = other.recv_descriptors(Vec::with_capacity(8)).await;
            assert_eq!((&bytes[..], fds.len()), (&b"none"[..], 0));
            let (nothing, ..) = one.send_descriptors(Vec::new(), Vec::new()).await;
            assert_eq!(nothing.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            // Given up before and while they arrive.
            for wait in [false, true] {
                let mut recv = Box::pin(other.recv_descriptors(Vec::with_capacity(8)));
                // Ready at once with what the one before it has left behind, else waiting.
                let first_poll = std::future::poll_fn(|cx| {
                    std::task::Poll::Ready(recv.as_mut().poll(cx).is_ready())
                });
                first_poll.await;
                let null = std::fs::File::open("/dev/null").unwrap();
                one.send_descriptors(b"x".to_vec(), vec![null.into()])
                    .await
                    .0
                    .unwrap();
                if wait {
                    time::sleep(Duration::from_millis(1)).await;
                }
                drop(recv);
                time::sleep(Duration::from_millis(1)).await;
            }
            one.write_all(b"end".to_vec()).await.0.unwrap();
            loop {
                let (_, bytes) = other.read(Vec::with_capacity(8)).await;
                if bytes.ends_with(b"end") {
                    break;
                }
            }
            time::sleep(Duration::from_millis(1)).await;
            assert_eq!(
                support::open_descriptors(),
                before,
                "a descriptor for nobody"
            );
        });
    });
}

#[test]
fn unix_datagrams_keep_their_bounds_and_tell_their_sender() {
    in_runtimes(|runtime| {
        let name = abstract_name("datagram", runtime);
        run(runtime, async {
            let receiver = UnixDatagram::bind(UnixName::Abstract(&name)).unwrap();
            let sender = UnixDatagram::unbound().unwrap();
            sender
                .send_to(b"one".to_vec(), UnixName::Abstract(&name))
                .await
                .0
                .unwrap();
            sender.connect(UnixName::Abstract(&name)).await.unwrap();
            sender.send(b"two".to_vec()).await.0.unwrap();
            let (from, bytes) = receiver.recv_from(Vec::with_capacity(64)).await;
            let (count, source) = from.unwrap();
            assert_eq!((count, &bytes[..]), (3, &b"one"[..]));
            assert!(matches!(source.to_unix(), None | Some(UnixName::Unnamed)));
            assert_eq!(receiver.recv(Vec::with_capacity(64)).await.1, b"two");
            let (one, other) = UnixDatagram::pair().unwrap();
            // More than the queue holds: the sender waits.
            let sending = spawn(async move {
                for at in 0..2_000_u32 {
                    one.send(at.to_ne_bytes().to_vec()).await.0.unwrap();
                }
            });
            let mut datagrams = other.datagrams();
            for at in 0..2_000_u32 {
                let datagram = datagrams.next().await.unwrap();
                assert_eq!(datagram.payload(), at.to_ne_bytes());
            }
            sending.await.unwrap();
            let (refused, bytes) = sender.send_to(b"x".to_vec(), "/nonexistent/socket").await;
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(bytes, b"x");
            let (too_long, bytes) = sender.send_to(b"x".to_vec(), &*"n".repeat(200)).await;
            assert_eq!(
                (too_long.unwrap_err().raw_os_error(), &bytes[..]),
                (Some(libc::ENAMETOOLONG), &b"x"[..])
            );
        });
    });
}

#[test]
fn connect_that_is_given_up_leaves_nothing() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let options = ListenOptions {
                backlog: 0,
                ..ListenOptions::default()
            };
            let full = TcpListener::bind_with(LOCAL.into(), options).unwrap();
            let address = full.local_addr().unwrap();
            let _first = TcpStream::connect(address).await.unwrap();
            for _ in 0..10 {
                let late = time::timeout(Duration::from_millis(1), TcpStream::connect(address));
                assert!(late.await.is_err());
            }
        });
    });
}

/// A Unix listener that takes one connection into its backlog, and no more.
fn full_unix_listener(name: &[u8]) -> (std::os::unix::net::UnixListener, UnixStream) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream as Std};
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let full = UnixListener::bind_addr(&address).unwrap();
    // SAFETY: no pointer is passed.
    assert_eq!(unsafe { libc::listen(full.as_raw_fd(), 0) }, 0);
    let first = Std::connect_addr(&address).unwrap();
    (full, OwnedFd::from(first).into())
}

#[test]
fn unix_connect_waits_while_the_backlog_is_full() {
    in_runtimes(|runtime| {
        let name = abstract_name("full", runtime);
        run(runtime, async {
            let (full, _first) = full_unix_listener(&name);
            let started = Instant::now();
            let waiting: Vec<_> = (0..3)
                .map(|at| {
                    let name = name.clone();
                    spawn(async move {
                        let stream = UnixStream::connect(UnixName::Abstract(&name)).await;
                        let stream = stream.unwrap();
                        stream.write_all(vec![at]).await.0.unwrap();
                    })
                })
                .collect();
            time::sleep(Duration::from_millis(20)).await;
            assert!(waiting.iter().all(|task| !task.is_finished()));
            // Takes them one after the other, as there is room.
            let (send, mut taken) = ringloop::sync::mpsc::channel(8);
            let accepting = std::thread::spawn(move || {
                full.accept().unwrap();
                for _ in 0..3 {
                    let (mut stream, _) = full.accept().unwrap();
                    let byte = read_exact(&mut stream, 1)[0];
                    send.try_send(byte).unwrap();
                }
            });
            let mut bytes = Vec::new();
            for _ in 0..3 {
                bytes.push(taken.recv().await.unwrap());
            }
            bytes.sort_unstable();
            assert_eq!(bytes, [0, 1, 2]);
            accepting.join().unwrap();
            for task in waiting {
                task.await.unwrap();
            }
            assert!(started.elapsed() < support::PATIENCE);
        });
    });
}

#[test]
fn unix_connect_that_waits_is_given_up_refused_or_bounded_in_time() {
    in_runtimes(|runtime| {
        let name = abstract_name("given-up", runtime);
        run(runtime, async {
            let (full, _first) = full_unix_listener(&name);
            let connect = || UnixStream::connect(UnixName::Abstract(&name));
            for _ in 0..5 {
                let late = time::timeout(Duration::from_millis(2), connect());
                assert!(late.await.is_err());
            }
            let waiting = {
                let name = name.clone();
                spawn(async move { UnixStream::connect(UnixName::Abstract(&name)).await })
            };
            time::sleep(Duration::from_millis(5)).await;
            drop(full);
            let refused = waiting.await.unwrap().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            while ringloop::executor::Local::current()
                .engine()
                .driver_mut()
                .in_flight()
                > 0
            {
                time::sleep(Duration::from_millis(1)).await;
            }
        });
    });
}
