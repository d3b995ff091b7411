//! Multishot operations as sequences: order, ends, pauses, every way to drop them; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::limits;
use ringloop::embed::sys::fd::{AsFd, AsRawFd};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::libc;
use ringloop::embed::sys::{file, socket};
use ringloop::net::{Incoming, Readiness, Receive, TcpListener, TcpStream, UdpSocket, UnixStream};
use ringloop::{Runtime, spawn, time};
use ringloop_testing::engine;
use ringloop_testing::engine::{connect_to, in_runtimes, is_closed, tcp_pair};
use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::task::Poll;
use std::time::Duration;

const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

async fn turns() {
    for _ in 0..5 {
        time::yield_now().await;
    }
    time::sleep(Duration::from_millis(1)).await;
}

/// Polls a sequence once; it must be pending.
async fn assert_pending<T>(next: impl Future<Output = T>) {
    let mut next = std::pin::pin!(next);
    let pending = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await;
    assert!(pending);
}

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

fn listener() -> (TcpListener, std::net::TcpListener) {
    let std = engine::listener();
    (std.try_clone().unwrap().into(), std)
}

#[test]
fn connections_come_in_order_and_belong_to_their_taker() {
    in_runtimes(|runtime| {
        let (listener, std) = listener();
        run(runtime, async {
            let mut incoming = listener.incoming();
            assert_pending(incoming.next()).await;
            for round in 0..3 {
                let clients: Vec<_> = (0..10).map(|_| connect_to(&std)).collect();
                for client in &clients {
                    let stream = incoming.next().await.unwrap();
                    assert_eq!(
                        stream.peer_addr().unwrap(),
                        client.local_addr().unwrap(),
                        "{round}"
                    );
                }
            }
        });
    });
}

#[test]
fn untaken_connections_are_closed_with_their_sequence() {
    in_runtimes(|runtime| {
        for taken in [0, 1] {
            let (listener, std) = listener();
            let mut clients = run(runtime, async {
                let mut incoming = listener.incoming();
                assert_pending(incoming.next()).await;
                let clients: Vec<_> = (0..5).map(|_| connect_to(&std)).collect();
                for _ in 0..taken {
                    incoming.next().await.unwrap();
                }
                turns().await;
                clients
            });
            drop(listener);
            drop(std);
            for client in &mut clients {
                assert!(is_closed(client), "{taken}");
            }
        }
    });
}

/// More than the limit: the sequence stops accepting, and its successor gets the others.
#[test]
fn accepting_pauses_at_its_bound_and_goes_on_once_connections_are_taken() {
    in_runtimes(|runtime| {
        let (listener, std) = listener();
        // The rest fits into the listener's backlog of 128.
        let count = limits::UNTAKEN_CONNECTIONS_MAX + 100;
        run(runtime, async {
            let mut incoming = listener.incoming();
            assert_pending(incoming.next()).await;
            let mut clients = Vec::new();
            let before = engine::open_descriptors();
            for _ in 0..count {
                clients.push(connect_to(&std));
                time::sleep(Duration::from_micros(20)).await;
            }
            turns().await;
            let untaken_count = engine::open_descriptors() - before - count;
            // The kernel may be a batch ahead.
            assert!(untaken_count < limits::UNTAKEN_CONNECTIONS_MAX + 50, "{untaken_count}");
            for client in &clients {
                let stream = incoming.next().await.unwrap();
                assert_eq!(stream.peer_addr().unwrap(), client.local_addr().unwrap());
            }
            assert_pending(incoming.next()).await;
            let last = connect_to(&std);
            let stream = incoming.next().await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), last.local_addr().unwrap());
        });
    });
}

#[test]
fn accept_that_fails_goes_on_with_the_next_call() {
    in_runtimes(|runtime| {
        let (listener, std) = listener();
        run(runtime, async {
            let mut incoming = listener.incoming();
            assert_pending(incoming.next()).await;
            turns().await;
            // A listener that was shut down fails to accept.
            socket::shutdown(std.as_raw_fd(), std::net::Shutdown::Read).unwrap();
            let error = incoming.next().await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            socket::listen(std.as_raw_fd(), 8).unwrap();
            let client = connect_to(&std);
            let stream = incoming.next().await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), client.local_addr().unwrap());
        });
    });
}

#[test]
fn bytes_come_in_order_and_the_end_comes_once() {
    in_runtimes(|runtime| {
        let (ours, mut peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let expected = sent.clone();
        let writer = std::thread::spawn(move || peer.write_all(&sent).unwrap());
        run(runtime, async {
            let mut receive = stream.receive();
            let mut received = Vec::new();
            while let Some(bytes) = receive.next().await {
                received.extend_from_slice(&bytes.unwrap());
            }
            assert!(received == expected);
            assert!(receive.next().await.is_none());
        });
        writer.join().unwrap();
    });
}

#[test]
fn reset_is_an_error_and_then_the_end() {
    in_runtimes(|runtime| {
        let (ours, peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        run(runtime, async {
            let mut receive = stream.receive();
            assert_pending(receive.next()).await;
            engine::reset(peer);
            let error = receive.next().await.unwrap().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
            assert!(receive.next().await.is_none());
        });
    });
}

/// A slow reader holds a quarter of the pool, and the bytes it did not take stay in order.
#[test]
fn receiving_pauses_at_its_bound_and_leaves_buffers_to_others() {
    in_runtimes(|runtime| {
        let (slow, mut slow_peer) = tcp_pair();
        let (other, mut other_peer) = tcp_pair();
        let (slow, other) = (TcpStream::from(slow), TcpStream::from(other));
        run(runtime, async {
            let mut lazy = slow.receive();
            assert_pending(lazy.next()).await;
            turns().await;
            let count = usize::from(limits::POOL_BUFFERS) * 2;
            for at in 0..count {
                slow_peer.write_all(&[at as u8]).unwrap();
                time::yield_now().await;
            }
            turns().await;
            let mut receive = other.receive();
            for round in 0..100_u8 {
                other_peer.write_all(&[round]).unwrap();
                let bytes = receive.next().await.unwrap().unwrap();
                assert_eq!(*bytes, [round]);
            }
            let mut arrived = Vec::new();
            while arrived.len() < count {
                arrived.extend_from_slice(&lazy.next().await.unwrap().unwrap());
            }
            let expected: Vec<u8> = (0..count).map(|at| at as u8).collect();
            assert_eq!(arrived, expected);
            slow_peer.write_all(b"and on").unwrap();
            assert_eq!(&*lazy.next().await.unwrap().unwrap(), b"and on");
        });
    });
}

#[test]
fn paused_sequence_is_dropped_without_a_trace() {
    in_runtimes(|runtime| {
        for _ in 0..3 {
            let (ours, mut peer) = tcp_pair();
            let stream = TcpStream::from(ours);
            run(runtime, async {
                let mut lazy = stream.receive();
                assert_pending(lazy.next()).await;
                for _ in 0..usize::from(limits::POOL_BUFFERS) {
                    peer.write_all(b"x").unwrap();
                    time::yield_now().await;
                }
                turns().await;
                drop(lazy);
                turns().await;
                peer.write_all(b"last").unwrap();
                read_until(&stream, b"last").await;
            });
        }
    });
}

#[test]
fn datagrams_come_with_their_source_and_batches_come_apart() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let receiver = UdpSocket::bind_addr(LOCAL.into()).unwrap();
            receiver.set_gro(true).unwrap();
            let sender = UdpSocket::bind_addr(LOCAL.into()).unwrap();
            let to = receiver.local_addr().unwrap();
            let mut datagrams = receiver.datagrams();
            let batch: Vec<(&[u8], _)> = [&b"aaaa"[..], b"bbbb", b"cc", b"", b"dddd"]
                .map(|bytes| (bytes, Some(to)))
                .to_vec();
            let (count, sent) = sender.send_batch(&batch).await;
            sent.unwrap();
            assert_eq!(count, batch.len());
            let mut arrived = Vec::new();
            while arrived.len() < batch.len() {
                let datagram = datagrams.next().await.unwrap();
                let source = datagram.source().to_std();
                assert_eq!(source, Some(sender.local_addr().unwrap()));
                arrived.extend(datagram.segments().map(<[u8]>::to_vec));
            }
            let expected: Vec<&[u8]> = batch.iter().map(|(bytes, _)| *bytes).collect();
            assert_eq!(arrived, expected);
        });
    });
}

#[test]
fn flooded_datagrams_pause_and_those_that_were_kept_arrive_in_order() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let receiver = UdpSocket::bind_addr(LOCAL.into()).unwrap();
            let sender = UdpSocket::bind_addr(LOCAL.into()).unwrap();
            let to = receiver.local_addr().unwrap();
            let mut datagrams = receiver.datagrams();
            assert_pending(datagrams.next()).await;
            let count = u32::from(limits::DATAGRAM_POOL_BUFFERS) * 3;
            for at in 0..count {
                sender.send_to(at.to_ne_bytes().to_vec(), to).await.0.unwrap();
            }
            turns().await;
            for at in 0..count {
                let datagram = datagrams.next().await.unwrap();
                assert_eq!(datagram.payload(), at.to_ne_bytes());
            }
        });
    });
}

#[test]
fn refused_datagram_is_an_error_and_the_sequence_goes_on() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let gone = UdpSocket::bind_addr(LOCAL.into()).unwrap();
            let peer = gone.local_addr().unwrap();
            drop(gone);
            let ours = UdpSocket::bind_addr(LOCAL.into()).unwrap();
            ours.connect(peer).await.unwrap();
            let mut datagrams = ours.datagrams();
            assert_pending(datagrams.next()).await;
            ours.send(b"anybody?".to_vec()).await.0.unwrap();
            let error = datagrams.next().await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
            let back = UdpSocket::bind_addr(peer).unwrap();
            back.send_to(b"here".to_vec(), ours.local_addr().unwrap()).await.0.unwrap();
            assert_eq!(datagrams.next().await.unwrap().payload(), b"here");
        });
    });
}

#[test]
fn readiness_reports_each_change_to_a_reader_that_drains() {
    in_runtimes(|runtime| {
        let (reader, writer) = file::pipe().unwrap();
        run(runtime, async {
            let mut readiness = Readiness::new(reader.as_fd(), Interest::READ);
            assert_pending(readiness.next()).await;
            for round in 0..20_usize {
                // Changes between polls merge into one.
                for _ in 0..=round % 3 {
                    file::write(writer.as_raw_fd(), b"x", None).unwrap();
                    turns().await;
                }
                let mut count = 0;
                while count <= round % 3 {
                    let ready = readiness.next().await.unwrap();
                    assert_eq!(ready, Interest::READ);
                    count += drain(reader.as_raw_fd());
                }
                assert_eq!(count, round % 3 + 1);
            }
            drop(writer);
            loop {
                readiness.next().await.unwrap();
                if at_end(reader.as_raw_fd()) {
                    break;
                }
            }
        });
        // Its number has been reused.
        drop(reader);
        let (next, writer) = file::pipe().unwrap();
        run(runtime, async {
            let mut readiness = Readiness::new(next.as_fd(), Interest::READ);
            assert_pending(readiness.next()).await;
            file::write(writer.as_raw_fd(), b"x", None).unwrap();
            readiness.next().await.unwrap();
        });
    });
}

/// Reads what is available, up to and including `end`: a paced sender may need a moment.
async fn read_until(stream: &TcpStream, end: &[u8]) {
    let mut arrived = Vec::new();
    while !arrived.ends_with(end) {
        let (count, bytes) = stream.read(Vec::with_capacity(1 << 16)).await;
        assert!(count.unwrap() > 0, "the end is missing: {arrived:?}");
        arrived.extend(bytes);
    }
}

fn drain(fd: i32) -> usize {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 64];
    file::read(fd, &mut buffer, None).unwrap_or(0)
}

fn at_end(fd: i32) -> bool {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 64];
    matches!(file::read(fd, &mut buffer, None), Ok(0))
}

#[test]
fn untaken_readiness_keeps_no_loop_awake() {
    in_runtimes(|runtime| {
        let (reader, writer) = file::pipe().unwrap();
        run(runtime, async {
            let mut readiness = Readiness::new(reader.as_fd(), Interest::READ);
            assert_pending(readiness.next()).await;
            file::write(writer.as_raw_fd(), b"x", None).unwrap();
            turns().await;
            let started = cpu_time();
            time::sleep(Duration::from_millis(100)).await;
            assert!(cpu_time().abs_diff(started) < Duration::from_millis(50), "spins");
            readiness.next().await.unwrap();
        });
    });
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = stat.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(nanoseconds)
}

/// Every state: never polled, armed, completed, partly taken, paused; each then dropped, or
/// forgotten with its runtime.
#[test]
fn sequence_is_dropped_or_forgotten_at_every_state() {
    in_runtimes(|runtime| {
        for state in 0..5 {
            let (listener, std) = listener();
            let (ours, mut peer) = tcp_pair();
            let stream = TcpStream::from(ours);
            run(runtime, async {
                let mut incoming = listener.incoming();
                let mut receive = stream.receive();
                let mut clients = Vec::new();
                bring_to(state, &mut incoming, &mut receive, &mut || {
                    clients.push(connect_to(&std));
                    peer.write_all(b"x").unwrap();
                })
                .await;
                drop((incoming, receive));
                turns().await;
                peer.write_all(b"!").unwrap();
                read_until(&stream, b"!").await;
            });
        }
    });
}

/// Echoes everything until the peer ends the stream.
async fn echo(stream: TcpStream) {
    let mut receive = stream.receive();
    while let Some(Ok(bytes)) = receive.next().await {
        stream.write_all(bytes.to_vec()).await.0.unwrap();
    }
}

async fn bring_to(
    state: u32,
    incoming: &mut Incoming<'_, TcpStream>,
    receive: &mut Receive<'_>,
    feed: &mut impl FnMut(),
) {
    if state >= 1 {
        assert_pending(incoming.next()).await;
        assert_pending(receive.next()).await;
    }
    if state >= 2 {
        feed();
        turns().await;
    }
    if state >= 3 {
        incoming.next().await.unwrap();
        receive.next().await.unwrap().unwrap();
    }
    if state >= 4 {
        for _ in 0..limits::UNTAKEN_CONNECTIONS_MAX + 5 {
            feed();
            time::sleep(Duration::from_micros(20)).await;
        }
        turns().await;
    }
}

#[test]
fn forgotten_sequence_leaves_its_runtime_and_no_other_harm() {
    let _alone = engine::alone();
    for driver in ringloop_testing::drivers() {
        let options = ringloop::Options { driver, ..ringloop::Options::default() };
        let runtime = Runtime::with_options(options).unwrap();
        let (ours, mut peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        run(&runtime, async {
            let mut receive = stream.receive();
            assert_pending(receive.next()).await;
            engine::leak(receive);
            for _ in 0..usize::from(limits::POOL_BUFFERS) * 2 {
                peer.write_all(b"x").unwrap();
                time::yield_now().await;
            }
            // It holds its quarter of the pool, and the others work.
            let (one, mut other) = tcp_pair();
            let one = TcpStream::from(one);
            let mut receive = one.receive();
            for round in 0..100_u8 {
                other.write_all(&[round]).unwrap();
                assert_eq!(*receive.next().await.unwrap().unwrap(), [round]);
            }
        });
    }
}

#[test]
fn sequences_of_many_tasks_run_concurrently() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let listener = TcpListener::bind_addr(LOCAL.into()).unwrap();
            let address = listener.local_addr().unwrap();
            let server = spawn(async move {
                let mut incoming = listener.incoming();
                for _ in 0..20 {
                    let stream = incoming.next().await.unwrap();
                    spawn(echo(stream));
                }
            });
            let clients: Vec<_> = (0..20_u8)
                .map(|number| {
                    spawn(async move {
                        let stream = TcpStream::connect(address).await.unwrap();
                        let (mut reader, mut writer) = stream.into_split();
                        let sent = vec![number; 100_000];
                        let writing = spawn(async move { writer.write_all(sent).await.0.unwrap() });
                        let mut receive = reader.receive();
                        let mut count = 0;
                        while let Some(bytes) = receive.next().await {
                            let bytes = bytes.unwrap();
                            assert!(bytes.iter().all(|byte| *byte == number));
                            count += bytes.len();
                        }
                        writing.await.unwrap();
                        assert_eq!(count, 100_000);
                    })
                })
                .collect();
            for client in clients {
                client.await.unwrap();
            }
            server.await.unwrap();
        });
    });
}

#[test]
fn unix_streams_have_sequences_too() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, other) = UnixStream::pair().unwrap();
            let writing = spawn(async move {
                other.write_all(vec![b'u'; 300_000]).await.0.unwrap();
            });
            let mut receive = one.receive();
            let mut count = 0;
            while let Some(bytes) = receive.next().await {
                count += bytes.unwrap().len();
            }
            assert_eq!(count, 300_000);
            writing.await.unwrap();
        });
        let (mut one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(other);
        assert_eq!(one.read(&mut [0]).unwrap(), 0);
    });
}
