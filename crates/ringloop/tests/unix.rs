//! Unix sockets as applications use them: names, halves, passed descriptors, datagrams, full
//! backlogs; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::buf::SendBuf;
use ringloop::embed::op::{self, SendDatagram};
use ringloop::embed::{Local, Op};
use ringloop::net::{UnixDatagram, UnixListener, UnixName, UnixStream};
use ringloop::{Options, Runtime, spawn, time};
use ringloop_testing::engine;
use ringloop_testing::engine::{alone, full_unix_datagrams, in_runtimes, read_exact};
use ringloop_testing::{PATIENCE, drivers};
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

/// A name unique to this process, test and driver.
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
            writer.write_all_vectored(vec![b"he".to_vec(), b"llo".to_vec()]).await.0.unwrap();
            drop(writer);
            assert_eq!(other.read(Vec::with_capacity(8)).await.1, b"hello");
            assert_eq!(other.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
            other.write_vectored(vec![b"back".to_vec()]).await.0.unwrap();
            assert_eq!(reader.read(Vec::with_capacity(8)).await.1, b"back");
        });
    });
}

#[test]
fn descriptors_pass_through_a_unix_stream_and_a_dropped_receive_closes_them() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, other) = UnixStream::pair().unwrap();
            let before = engine::open_descriptors();
            let (reader, writer) = std::io::pipe().unwrap();
            let passed = vec![OwnedFd::from(reader), OwnedFd::from(writer)];
            let (sent, bytes, back) = one.send_descriptors(b"two".to_vec(), passed).await;
            assert_eq!((sent.unwrap(), &bytes[..], back.len()), (3, &b"two"[..], 2));
            drop(back);
            let (count, bytes, received) = other.recv_descriptors(Vec::with_capacity(8)).await;
            let mut fds = received.list;
            assert_eq!((count.unwrap(), &bytes[..], fds.len()), (3, &b"two"[..], 2));
            let mut writer = std::io::PipeWriter::from(fds.pop().unwrap());
            let mut reader = std::io::PipeReader::from(fds.pop().unwrap());
            std::io::Write::write_all(&mut writer, b"through").unwrap();
            drop(writer);
            let mut all = String::new();
            std::io::Read::read_to_string(&mut reader, &mut all).unwrap();
            assert_eq!(all, "through");
            drop(reader);
            assert_eq!(engine::open_descriptors(), before);
            // Without descriptors it is a plain send and receive.
            one.send_descriptors(b"none".to_vec(), Vec::new()).await.0.unwrap();
            let (_, bytes, fds) = other.recv_descriptors(Vec::with_capacity(8)).await;
            assert_eq!((&bytes[..], fds.list.len()), (&b"none"[..], 0));
            let (nothing, ..) = one.send_descriptors(Vec::new(), Vec::new()).await;
            assert_eq!(nothing.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            // Dropped before and while they arrive.
            for wait in [false, true] {
                let mut recv = Box::pin(other.recv_descriptors(Vec::with_capacity(8)));
                // Ready at once with leftovers of the one before, or pending.
                let first_poll = std::future::poll_fn(|cx| {
                    std::task::Poll::Ready(recv.as_mut().poll(cx).is_ready())
                });
                first_poll.await;
                let null = std::fs::File::open("/dev/null").unwrap();
                one.send_descriptors(b"x".to_vec(), vec![null.into()]).await.0.unwrap();
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
            assert_eq!(engine::open_descriptors(), before, "a descriptor for nobody");
        });
    });
}

#[test]
fn unix_datagrams_keep_their_bounds_and_their_sender() {
    in_runtimes(|runtime| {
        let name = abstract_name("datagram", runtime);
        run(runtime, async {
            let receiver = UnixDatagram::bind(UnixName::Abstract(&name)).unwrap();
            let sender = UnixDatagram::unbound().unwrap();
            sender.send_to(b"one".to_vec(), UnixName::Abstract(&name)).await.0.unwrap();
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
fn unix_datagram_to_a_full_socket_waits_until_there_is_room() {
    in_runtimes(|runtime| {
        let name = abstract_name("full-datagrams", runtime);
        run(runtime, async {
            let full = UnixDatagram::bind(UnixName::Abstract(&name)).unwrap();
            let sender = UnixDatagram::unbound().unwrap();
            let count = Rc::new(Cell::new(0_u32));
            let (counter, to) = (Rc::clone(&count), name.clone());
            let sending = spawn(async move {
                for number in 0..2000_u32 {
                    let bytes = number.to_le_bytes().to_vec();
                    let (result, _) = sender.send_to(bytes, UnixName::Abstract(&to)).await;
                    assert_eq!(result.unwrap(), 4);
                    counter.set(number + 1);
                }
            });
            let mut known = 0;
            loop {
                time::sleep(Duration::from_millis(20)).await;
                if count.get() == known {
                    break;
                }
                known = count.get();
            }
            assert!(!sending.is_finished());
            let before = engine::processor_time();
            time::sleep(Duration::from_millis(300)).await;
            let used = engine::processor_time().saturating_sub(before);
            assert!(used < Duration::from_millis(150), "{used:?}");
            for number in 0..2000_u32 {
                let received = time::timeout(PATIENCE, full.recv(Vec::with_capacity(8)));
                assert_eq!(received.await.unwrap().1, number.to_le_bytes());
            }
            sending.await.unwrap();
        });
    });
}

/// Sends datagrams of 1 to 1,000 bytes, each filled with its number.
async fn send_numbered(sender: UnixDatagram, to: &[u8], is_connected: bool) {
    let to = UnixName::Abstract(to);
    if is_connected {
        sender.connect(to).await.unwrap();
    }
    for number in 0..1000_u32 {
        let bytes = vec![number as u8; 1 + number as usize];
        let len = bytes.len();
        let (sent, back) =
            if is_connected { sender.send(bytes).await } else { sender.send_to(bytes, to).await };
        assert_eq!((sent.unwrap(), back.len()), (len, len));
    }
}

/// A sender that repeatedly waits for room: everything arrives whole, in order, and nothing else.
#[test]
fn unix_datagrams_that_wait_for_room_arrive_whole() {
    in_runtimes(|runtime| {
        let name = abstract_name("whole-datagrams", runtime);
        for is_connected in [true, false] {
            run(runtime, async {
                let receiver = UnixDatagram::bind(UnixName::Abstract(&name)).unwrap();
                let sender = UnixDatagram::unbound().unwrap();
                let to = name.clone();
                let sending = spawn(async move { send_numbered(sender, &to, is_connected).await });
                for number in 0..1000_u32 {
                    if number % 8 == 0 {
                        time::sleep(Duration::from_millis(1)).await;
                    }
                    let next = time::timeout(PATIENCE, receiver.recv(Vec::with_capacity(1024)));
                    let (count, bytes) = next.await.unwrap();
                    assert_eq!(count.unwrap(), 1 + number as usize);
                    assert!(bytes.iter().all(|byte| *byte == number as u8));
                }
                sending.await.unwrap();
            });
        }
    });
}

/// How a stream's bytes are sent.
#[derive(Debug, Clone, Copy)]
enum Sending {
    Some,
    All,
    Vectored,
    AllVectored,
    Descriptors,
}

async fn send_some(stream: &UnixStream, how: Sending, bytes: Vec<u8>) -> io::Result<usize> {
    let len = bytes.len();
    let halves = vec![bytes[..len / 2].to_vec(), bytes[len / 2..].to_vec()];
    match how {
        Sending::Some => stream.write(bytes).await.0,
        Sending::All => stream.write_all(bytes).await.0.map(|()| len),
        Sending::Vectored => stream.write_vectored(halves).await.0,
        Sending::AllVectored => stream.write_all_vectored(halves).await.0.map(|()| len),
        Sending::Descriptors => {
            let null = std::fs::File::open("/dev/null").unwrap();
            let (sent, ..) = stream.send_descriptors(bytes, vec![null.into()]).await;
            sent
        }
    }
}

const TOTAL: usize = 2 << 20;

fn byte_at(at: usize) -> u8 {
    (at % 251) as u8
}

async fn send_total(stream: UnixStream, how: Sending) {
    let mut sent = 0;
    while sent < TOTAL {
        let len = 100_000.min(TOTAL - sent);
        let bytes = (sent..sent + len).map(byte_at).collect();
        sent += send_some(&stream, how, bytes).await.unwrap();
    }
}

/// Ten times a socket's buffer, received in small parts.
#[test]
fn sends_on_a_full_unix_stream_wait_for_room_and_arrive_whole() {
    for how in
        [Sending::Some, Sending::All, Sending::Vectored, Sending::AllVectored, Sending::Descriptors]
    {
        in_runtimes(|runtime| {
            run(runtime, async {
                let (one, other) = UnixStream::pair().unwrap();
                let sending = spawn(send_total(one, how));
                let mut received = 0;
                while received < TOTAL {
                    let next = time::timeout(PATIENCE, other.read(Vec::with_capacity(20_000)));
                    let (count, bytes) = next.await.unwrap();
                    assert_ne!(count.unwrap(), 0, "{how:?}");
                    let expected: Vec<u8> =
                        (received..received + bytes.len()).map(byte_at).collect();
                    assert!(bytes == expected, "{how:?} at {received}");
                    received += bytes.len();
                }
                sending.await.unwrap();
            });
        });
    }
}

/// Sends messages of 1 to 1,000 bytes, each filled with its number.
async fn send_messages(socket: OwnedFd, is_datagram: bool) {
    let fd = socket.as_raw_fd();
    for number in 0..1000_u32 {
        let buf = SendBuf::from(vec![number as u8; 1 + number as usize]);
        let (sent, _) = if is_datagram {
            Op::new(SendDatagram::new(fd, buf)).await
        } else {
            Op::new(op::Send { fd, buf }).await
        };
        assert_eq!(sent.unwrap(), 1 + number as usize);
    }
}

#[test]
fn messages_to_a_full_seqpacket_socket_wait_for_room_and_arrive_whole() {
    for is_datagram in [false, true] {
        in_runtimes(|runtime| {
            let (one, other) = ringloop::embed::sys::socket::pair(libc::SOCK_SEQPACKET).unwrap();
            let other = UnixDatagram::from(other);
            run(runtime, async {
                let sending = spawn(send_messages(one, is_datagram));
                for number in 0..1000_u32 {
                    let next = time::timeout(PATIENCE, other.recv(Vec::with_capacity(2048)));
                    let (count, bytes) = next.await.unwrap();
                    assert_eq!(count.unwrap(), 1 + number as usize);
                    assert!(bytes.iter().all(|byte| *byte == number as u8));
                }
                sending.await.unwrap();
            });
        });
    }
}

#[test]
fn unix_datagram_that_was_forgotten_goes_to_no_other_socket_of_its_number() {
    let _alone = alone();
    for driver in drivers() {
        let options = Options { driver, ..Options::default() };
        // Forgotten operations keep their loop, and so its descriptors.
        run(&Runtime::with_options(options).unwrap(), async {
            let (sender, receiver) = full_unix_datagrams();
            let datagram = SendDatagram::new(sender.as_raw_fd(), b"stray".to_vec().into());
            let mut sending = Op::new(datagram);
            let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut sending).poll(cx)));
            assert!(first.await.is_pending());
            time::sleep(Duration::from_millis(5)).await;
            engine::leak(sending);
            let local = Local::current();
            local.engine().driver_mut().close(sender.into());
            let (one, other) = StdDatagram::pair().unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
            time::sleep(Duration::from_millis(20)).await;
            for end in [one, other] {
                end.set_nonblocking(true).unwrap();
                let empty = end.recv(&mut [0; 8]).unwrap_err();
                assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
            }
        });
    }
}

/// A Unix listener whose backlog holds one connection, and no more.
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
            // Accepts them one after the other, as there is room.
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
            assert!(started.elapsed() < ringloop_testing::PATIENCE);
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
            while ringloop::embed::Local::current().engine().driver_mut().in_flight() > 0 {
                time::sleep(Duration::from_millis(1)).await;
            }
        });
    });
}
