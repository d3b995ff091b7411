//! TCP and UDP sockets as applications use them: addresses, options, halves, vectored writes,
//! datagrams; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::buf::{Outgoing, RecvBuf, SendBuf};
use ringloop::embed::Local;
use ringloop::embed::sys::fd::{AsFd, AsRawFd, OwnedFd};
use ringloop::embed::sys::libc;
use ringloop::net::{
    Interest, Keepalive, ListenOptions, Readiness, TcpListener, TcpStream, UdpSocket,
};
use ringloop::{Runtime, spawn, time};
use ringloop_testing::engine::in_runtimes;
use ringloop_testing::refusing_addr;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_addr(LOCAL.into()).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
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
            for address in [LOCAL.into(), SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0))] {
                let listener = TcpListener::bind_addr(address).unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                for on in [true, false] {
                    stream.set_nodelay(on).unwrap();
                    assert_eq!(stream.nodelay().unwrap(), on);
                }
                stream.set_keepalive(Some(Keepalive::default())).unwrap();
                assert!(stream.keepalive().unwrap());
                let longest =
                    Keepalive { idle: Duration::MAX, interval: Duration::MAX, probes: u32::MAX };
                let shortest =
                    Keepalive { idle: Duration::ZERO, interval: Duration::ZERO, probes: 0 };
                for clamped in [longest, shortest] {
                    stream.set_keepalive(Some(clamped)).unwrap();
                }
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
fn buffers_of_any_kind_are_read_into_and_sent() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            let mut unsent = SendBuf::from(b"hello".to_vec());
            unsent.advance(1);
            let (sent, rest) = ours.write_all(unsent).await;
            sent.unwrap();
            assert!(rest.is_empty());
            let mut record = Vec::with_capacity(16);
            record.extend_from_slice(b"head ");
            for (room, expected) in [(2, "head el"), (100, "head ello")] {
                let (count, buf) = peer.read_buf(RecvBuf::append(record, room)).await;
                assert_eq!(count.unwrap(), 2);
                record = buf.into_vec();
                assert_eq!(record, expected.as_bytes());
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
            let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
            let one = TcpListener::bind_with(LOCAL.into(), options).unwrap();
            let address = one.local_addr().unwrap();
            let other = TcpListener::bind_with(address, options).unwrap();
            assert_eq!(other.local_addr().unwrap(), address);
            let alone = TcpListener::bind_addr(address).unwrap_err();
            assert_eq!(alone.kind(), io::ErrorKind::AddrInUse);
        });
    });
}

#[test]
fn connecting_is_bounded_in_time_and_tries_each_address() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let listener = TcpListener::bind_addr(LOCAL.into()).unwrap();
            let address = listener.local_addr().unwrap();
            let (closed, _kept) = refusing_addr();
            let refused = TcpStream::connect(closed).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let stream = TcpStream::connect(&[closed, address]).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
            let none = TcpStream::connect(Vec::new()).await.unwrap_err();
            assert_eq!(none.kind(), io::ErrorKind::InvalidInput);
            // A listener whose backlog is full does not reply.
            let options = ListenOptions { backlog: 0, ..ListenOptions::default() };
            let full = TcpListener::bind_with(LOCAL.into(), options).unwrap();
            let full_at = full.local_addr().unwrap();
            let _first = TcpStream::connect(full_at).await.unwrap();
            let limit = Duration::from_millis(20);
            let started = Instant::now();
            let late = TcpStream::connect_timeout(full_at, limit).await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            assert!(started.elapsed() >= limit);
        });
    });
}

/// Whether the loop has started a thread for blocking calls.
async fn has_pool_thread() -> bool {
    loop {
        // `None` while the kernel still closes a socket.
        if let Some(threads) = Local::current().quiescent() {
            return threads > 0;
        }
        time::yield_now().await;
    }
}

#[test]
fn name_is_looked_up_beside_the_loop_and_an_address_needs_no_thread() {
    in_runtimes(|runtime| {
        run(runtime, async {
            for text in ["127.0.0.1:0".to_owned(), "[::1]:0".to_owned()] {
                let listener = TcpListener::bind(&text).await.unwrap();
                let address = listener.local_addr().unwrap();
                let (ip, port) = (address.ip().to_string(), address.port());
                let stream = TcpStream::connect((ip.as_str(), port)).await.unwrap();
                assert_eq!(stream.peer_addr().unwrap(), address);
            }
            drop(UdpSocket::bind(LOCAL).await.unwrap());
            assert!(!has_pool_thread().await);
            let listener = TcpListener::bind(("localhost", 0)).await.unwrap();
            assert!(has_pool_thread().await);
            // `localhost` may have two addresses, of which the listener has the first.
            let port = listener.local_addr().unwrap().port();
            let stream = TcpStream::connect(format!("localhost:{port}")).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
        });
    });
}

#[test]
fn unusable_names_are_errors_with_a_reason() {
    in_runtimes(|runtime| {
        run(runtime, async {
            for name in ["localhost", "localhost:http", "localhost:70000", ""] {
                let error = TcpStream::connect(name).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}: {error}");
            }
            // Longer than a name can be, so that no server is asked.
            let none = TcpListener::bind(("a".repeat(300), 1)).await.unwrap_err();
            assert!(!none.to_string().is_empty());
            // The error is the last address's.
            let (closed, _kept) = refusing_addr();
            let listener = TcpListener::bind(LOCAL).await.unwrap();
            let taken = listener.local_addr().unwrap();
            let in_use = TcpListener::bind(&[taken, taken]).await.unwrap_err();
            assert_eq!(in_use.kind(), io::ErrorKind::AddrInUse);
            let refused = TcpStream::connect(&[closed, closed]).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        });
    });
}

#[test]
fn every_kind_of_buffer_is_sent_whole_and_comes_back() {
    async fn echo<B: Outgoing + PartialEq + Clone + 'static>(bytes: B, expected: &[u8]) {
        let (ours, peer) = pair().await;
        let sending = spawn({
            let bytes = bytes.clone();
            async move {
                let (sent, back) = ours.write_all(bytes).await;
                sent.unwrap();
                let (_, mut writer) = ours.split();
                let (count, back) = writer.write(back).await;
                (count.unwrap(), back)
            }
        });
        // More than a socket holds: the first write is partial.
        let mut all = Vec::new();
        while all.len() < expected.len() {
            let (count, bytes) = peer.read(Vec::with_capacity(1 << 20)).await;
            assert!(count.unwrap() > 0);
            all.extend(bytes);
        }
        assert!(all.starts_with(expected));
        let (count, back) = sending.await.unwrap();
        assert!(count > 0 && back == bytes);
    }
    in_runtimes(|runtime| {
        run(runtime, async {
            let long: Vec<u8> = (0..3_000_001_u32).map(|at| b'a' + (at % 23) as u8).collect();
            echo(long.clone(), &long).await;
            echo(long.clone().into_boxed_slice(), &long).await;
            echo(Arc::<[u8]>::from(long.clone()), &long).await;
            echo(String::from_utf8(long.clone()).unwrap(), &long).await;
            echo("short", b"short").await;
            echo(b"short", b"short").await;
            echo(&b"short"[..], b"short").await;
        });
    });
}

#[test]
fn shared_bytes_of_a_dropped_send_are_released_by_the_last_completion() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let bytes: Arc<[u8]> = vec![7; 8 << 20].into();
            let (ours, _peer) = pair().await;
            {
                let mut sending = pin!(ours.write_all(Arc::clone(&bytes)));
                let mut cx = Context::from_waker(Waker::noop());
                assert!(sending.as_mut().poll(&mut cx).is_pending());
            }
            while Arc::strong_count(&bytes) > 1 {
                time::yield_now().await;
            }
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
fn reads_without_room_return_at_once_and_leave_the_bytes() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            // Without bytes to read, then with some.
            for _ in 0..2 {
                assert_eq!(ours.read(Vec::new()).await.0.unwrap(), 0);
                assert_eq!(ours.read_buf(Vec::new().into()).await.0.unwrap(), 0);
                assert_eq!(ours.peek(Vec::new()).await.0.unwrap(), 0);
                assert_eq!(ours.split().0.read(Vec::new()).await.0.unwrap(), 0);
                peer.write_all(b"x").await.0.unwrap();
            }
            drop(peer);
            assert_eq!(read_to_end(&ours).await, b"xx");
        });
    });
}

#[test]
fn vectored_writes_arrive_in_order_and_their_buffers_come_back() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            // More than the socket takes at once, more buffers than one call takes, with empty ones
            // among them.
            let bufs: Vec<Vec<u8>> =
                (0..3_000_u32).map(|at| vec![(at % 251) as u8; (at % 5) as usize * 700]).collect();
            let expected = bufs.concat();
            let reader = spawn(async move { read_to_end(&peer).await });
            let (sent, back) = ours.write_all_vectored(bufs.clone()).await;
            sent.unwrap();
            assert!(back == bufs);
            let (count, back) = ours.write_vectored(vec![b"a".to_vec(), b"bc".to_vec()]).await;
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
            // Reunited, nothing was shut down.
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
            let one = UdpSocket::bind_addr(LOCAL.into()).unwrap();
            let other = UdpSocket::bind_addr(LOCAL.into()).unwrap();
            let (one_at, other_at) = (one.local_addr().unwrap(), other.local_addr().unwrap());
            let (count, back) = one.send_to(b"hello".to_vec(), other_at).await;
            assert_eq!((count.unwrap(), &back[..]), (5, &b"hello"[..]));
            let (from, bytes) = other.recv_from(Vec::with_capacity(3)).await;
            assert_eq!((from.unwrap(), &bytes[..]), ((3, one_at), &b"hel"[..]), "cut");
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
            let sender = UdpSocket::bind_addr(LOCAL.into()).unwrap();
            sender.connect(receiver.local_addr().unwrap()).await.unwrap();
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
            let (count, failed) = sender.send_batch(&[(b"fits", None), (&too_long, None)]).await;
            assert_eq!((count, failed.unwrap_err().raw_os_error()), (1, Some(libc::EMSGSIZE)));
        });
    });
}

#[test]
fn connect_that_is_given_up_leaves_nothing() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let options = ListenOptions { backlog: 0, ..ListenOptions::default() };
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

/// One non-blocking call on a stream of std's that shares the socket.
fn shared(stream: &TcpStream) -> std::net::TcpStream {
    let shared = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned().unwrap());
    shared.set_nonblocking(true).unwrap();
    shared
}

#[test]
fn a_writer_that_meets_eagain_is_told_of_each_change() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            let (mut stream, bytes) = (shared(&ours), vec![0; 1 << 16]);
            let mut readiness = Readiness::new(ours.as_fd(), Interest::WRITE);
            for _ in 0..5 {
                let mut sent = 0;
                loop {
                    match io::Write::write(&mut stream, &bytes) {
                        Ok(count) => sent += count,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                let reader = async {
                    while sent > 0 {
                        let (count, _) = peer.read(Vec::with_capacity(1 << 16)).await;
                        sent -= count.unwrap();
                    }
                };
                let changed = async { readiness.next().await.unwrap() };
                let ((), ready) = ringloop::join!(reader, changed);
                assert_eq!(ready, Interest::WRITE);
            }
        });
    });
}
