//! TCP in std's shape: bytes, ends, time limits, cancellation, several workers; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::sys::fd::OwnedFd;
use ringloop_coro::net::{Shutdown, TcpListener, TcpStream, UnixStream};
use ringloop_coro::sync::channel;
use ringloop_coro::{JoinError, block_on, sleep, spawn, spawn_local, yield_now};
use ringloop_testing::coro::{on_both, on_workers, pattern};
use ringloop_testing::refusing_addr;
use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let client = TcpStream::connect(addr).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (client, server)
}

#[test]
fn every_size_arrives_whole_and_in_order() {
    on_both(|| {
        for len in [1, 63, 4095, 4096, 4097, 16_384, 100_000, 3_000_001] {
            let (mut client, mut server) = pair();
            let writer = spawn(move || client.write_all(&pattern(len)));
            let mut bytes = Vec::new();
            server.read_to_end(&mut bytes).unwrap();
            assert!(bytes == pattern(len), "{len}");
            writer.join().unwrap().unwrap();
        }
    });
}

#[test]
fn small_reads_of_a_large_message_lose_nothing() {
    on_both(|| {
        let (mut client, mut server) = pair();
        let writer = spawn(move || client.write_all(&pattern(50_000)));
        let mut bytes = Vec::new();
        for len in [1, 7, 4096, 5000, 10_000].into_iter().cycle() {
            let mut part = vec![0; len];
            let count = server.read(&mut part).unwrap();
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&part[..count]);
        }
        assert!(bytes == pattern(50_000));
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn vectored_calls_and_peeks() {
    on_both(|| {
        let (mut client, server) = pair();
        let parts = [IoSlice::new(b"one "), IoSlice::new(b"two")];
        assert_eq!(client.write_vectored(&parts).unwrap(), 7);
        let mut seen = [0; 7];
        assert_eq!(server.peek(&mut seen).unwrap(), 7);
        let (mut one, mut two) = ([0; 4], [0; 8]);
        let mut parts = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!((&server).read_vectored(&mut parts).unwrap(), 7);
        assert_eq!((&seen, &one, &two[..3]), (b"one two", b"one ", &b"two"[..]));
        // A call that has to wait.
        let writer = spawn(move || client.write_all(b"later"));
        let mut parts = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!((&server).read_vectored(&mut parts).unwrap(), 5);
        assert_eq!((&one, two[0]), (b"late", b'r'));
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn peer_that_closes_ends_the_stream_and_breaks_the_pipe() {
    on_both(|| {
        let (mut client, server) = pair();
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        drop(server);
        let broken = loop {
            if let Err(error) = client.write(&[0; 1000]) {
                break error.kind();
            }
            yield_now();
        };
        assert!(matches!(broken, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
    });
}

#[test]
fn connect_within_a_limit() {
    on_both(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let none = TcpStream::connect_timeout(&addr, Duration::ZERO).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::InvalidInput);
        let client = TcpStream::connect_timeout(&addr, Duration::from_secs(60)).unwrap();
        assert_eq!(client.peer_addr().unwrap(), addr);
        // Once the backlog is full, the next handshake does not complete.
        let options =
            ringloop::net::ListenOptions { backlog: 0, ..ringloop::net::ListenOptions::default() };
        let full =
            ringloop::net::TcpListener::bind_with(([127, 0, 0, 1], 0).into(), options).unwrap();
        let addr = full.local_addr().unwrap();
        let _first = TcpStream::connect(addr).unwrap();
        let late = TcpStream::connect_timeout(&addr, SHORT).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn connection_refused_is_an_error() {
    on_both(|| {
        let (addr, _kept) = refusing_addr();
        let refused = TcpStream::connect(addr).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let none: &[SocketAddr] = &[];
        let empty = TcpStream::connect(none).unwrap_err();
        assert_eq!(empty.kind(), ErrorKind::InvalidInput);
        // The first of several that answers.
        let listener = TcpListener::bind("localhost:0").unwrap();
        let both = [addr, listener.local_addr().unwrap()];
        TcpStream::connect(&both[..]).unwrap();
    });
}

/// A client that resets its connection before it is accepted.
fn connect_and_reset(addr: SocketAddr) {
    let client = std::net::TcpStream::connect(addr).unwrap();
    let client = ringloop::net::TcpStream::from(client);
    client.set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn reset_before_accept_does_not_end_an_accept_loop() {
    on_both(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        connect_and_reset(addr);
        let client = TcpStream::connect(addr).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        connect_and_reset(addr);
        let client = TcpStream::connect(addr).unwrap();
        let peer = client.local_addr().unwrap();
        // The reset connection may be among them, as a stream.
        let mut streams = listener.incoming().take(2).map(Result::unwrap);
        assert!(streams.any(|stream| stream.peer_addr().is_ok_and(|addr| addr == peer)));
        // A non-blocking listener accepts in another way.
        listener.set_nonblocking(true).unwrap();
        connect_and_reset(addr);
        let client = TcpStream::connect(addr).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
    });
}

#[test]
fn time_limits_end_a_read_and_a_write_and_lose_nothing() {
    on_both(|| {
        let (mut client, mut server) = pair();
        assert!(client.set_read_timeout(Some(Duration::ZERO)).is_err());
        client.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(client.read_timeout().unwrap(), Some(SHORT));
        let start = Instant::now();
        let error = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(start.elapsed() >= SHORT);
        server.write_all(b"late").unwrap();
        let mut late = [0; 4];
        client.read_exact(&mut late).unwrap();
        assert_eq!(&late, b"late");
        server.set_write_timeout(Some(SHORT)).unwrap();
        let error = server.write_all(&vec![0; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn nonblocking_calls_return_at_once() {
    on_both(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let (client, mut server) = pair();
        client.set_nonblocking(true).unwrap();
        let mut byte = [0];
        assert_eq!((&client).read(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
        client.set_nonblocking(false).unwrap();
        server.write_all(b"!").unwrap();
        (&client).read_exact(&mut byte).unwrap();
    });
}

/// Reports that its coroutine has unwound.
struct Unwound(channel::Sender<&'static str>, &'static str);

impl Drop for Unwound {
    fn drop(&mut self) {
        // The test may be over.
        let _ = self.0.try_send(self.1);
    }
}

#[test]
fn cancelled_read_write_and_accept_unwind() {
    on_both(|| {
        let (sender, receiver) = channel::unbounded();
        // An address of its own: no other socket gets the port once it is closed.
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let note = Unwound(sender.clone(), "accept");
        let accepting = spawn(move || {
            let _note = note;
            listener.accept().map(drop)
        });
        let (mut reader, _silent) = pair();
        let note = Unwound(sender.clone(), "read");
        let reading = spawn(move || {
            let _note = note;
            let mut buffer = [7; 4096];
            reader.read(&mut buffer).map(drop)
        });
        let (mut writer, _deaf) = pair();
        let note = Unwound(sender, "write");
        let writing = spawn(move || {
            let _note = note;
            writer.write_all(&vec![0; 64 << 20])
        });
        sleep(SHORT);
        for (handle, name) in [(reading, "read"), (writing, "write"), (accepting, "accept")] {
            assert!(receiver.try_recv().is_err());
            handle.cancel();
            assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
            assert_eq!(receiver.recv().unwrap(), name);
        }
        // The kernel releases the listener when it has processed the cancel.
        while TcpStream::connect(addr).is_ok() {
            sleep(SHORT);
        }
    });
}

#[test]
fn bytes_after_a_cancelled_read_do_not_reach_its_stack() {
    on_both(|| {
        for _ in 0..50 {
            let (mut client, server) = pair();
            let reading = spawn(move || {
                let mut buffer = [0; 4096];
                (&server).read(&mut buffer).unwrap()
            });
            yield_now();
            reading.cancel();
            client.write_all(&[0xff; 4096]).unwrap();
            // If they arrived before the cancel, the read returns them.
            let joined = reading.join();
            assert!(matches!(joined, Ok(4096) | Err(JoinError::Cancelled)));
            // The next coroutine runs on the cancelled one's stack.
            let zeros = spawn(|| {
                let memory = [0u8; 8192];
                sleep(Duration::from_micros(200));
                memory.iter().all(|byte| *byte == 0)
            });
            assert!(zeros.join().unwrap());
        }
    });
}

#[test]
fn stream_is_read_by_one_coroutine_and_written_by_another() {
    on_both(|| {
        let (client, server) = pair();
        let echo = spawn(move || io::copy(&mut &server, &mut &server));
        let client = Arc::new(client);
        let writer = Arc::clone(&client);
        let writing = spawn(move || {
            (&*writer).write_all(&pattern(1_000_000)).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut bytes = Vec::new();
        (&*client).read_to_end(&mut bytes).unwrap();
        assert!(bytes == pattern(1_000_000));
        writing.join().unwrap();
        assert_eq!(echo.join().unwrap().unwrap(), 1_000_000);
    });
}

#[test]
fn streams_move_between_workers_and_numbers_are_used_again() {
    on_workers(2, || {
        for round in 0..100u8 {
            let (client, server) = pair();
            let clone = client.try_clone().unwrap();
            let there = ringloop::spawn_on(1, move || async move {
                let here = ringloop_coro::spawn_local(move || {
                    let mut clone = clone;
                    clone.write_all(&[round]).unwrap();
                    let mut byte = [0];
                    clone.read_exact(&mut byte).unwrap();
                    byte[0]
                });
                here.await.unwrap()
            });
            let mut server = server;
            let mut byte = [0];
            server.read_exact(&mut byte).unwrap();
            server.write_all(&[byte[0] ^ 0xff]).unwrap();
            assert_eq!(ringloop_coro::block_on(there.unwrap()).unwrap(), round ^ 0xff);
            // Used by this worker too, then dropped here: both loops have to release it.
            client.set_nodelay(true).unwrap();
            server.write_all(b"x").unwrap();
            let mut client = client;
            client.read_exact(&mut byte).unwrap();
        }
    });
}

#[test]
fn two_workers_read_one_stream_and_each_byte_goes_to_one() {
    on_workers(2, || {
        let (mut client, server) = pair();
        let server = Arc::new(server);
        let read = |server: Arc<TcpStream>| {
            let mut sum = 0;
            let mut buffer = [0; 16];
            loop {
                match (&*server).read(&mut buffer).unwrap() {
                    0 => return sum,
                    count => sum += count,
                }
            }
        };
        let theirs = Arc::clone(&server);
        let there = ringloop::spawn_on(1, move || async move {
            ringloop_coro::spawn_local(move || read(theirs)).await
        });
        let here = spawn(move || read(server));
        for _ in 0..1000 {
            client.write_all(&[1; 16]).unwrap();
        }
        client.shutdown(Shutdown::Write).unwrap();
        let there = ringloop_coro::block_on(there.unwrap()).unwrap().unwrap();
        assert_eq!(there + here.join().unwrap(), 16_000);
    });
}

#[test]
fn descriptor_of_a_socket_can_be_taken_out_and_put_back() {
    on_both(|| {
        let (client, mut server) = pair();
        server.write_all(b"ab").unwrap();
        let mut byte = [0];
        (&client).read_exact(&mut byte).unwrap();
        let fd: OwnedFd = client.try_into().unwrap();
        let mut again = TcpStream::try_from(std::net::TcpStream::from(fd)).unwrap();
        again.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"b");
        drop(again);
        assert_eq!(server.read(&mut byte).unwrap(), 0);
    });
}

#[test]
fn stream_dropped_by_a_plain_thread_ends_its_peers_read() {
    on_both(|| {
        for _ in 0..3 {
            let (client, mut server) = pair();
            let reading = spawn_local(move || server.read(&mut [0; 8]));
            yield_now();
            thread::spawn(move || drop(client)).join().unwrap();
            assert_eq!(reading.join().unwrap().unwrap(), 0);
        }
    });
}

#[test]
fn parking_outside_of_a_coroutine_panics_with_remedy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap();
    let panicked = std::panic::catch_unwind(|| drop(listener.accept())).unwrap_err();
    let said = panicked.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(said.contains("ringloop_coro::start"), "{said}");
}

#[test]
fn lone_writer_that_never_waits_yields() {
    on_both(|| {
        let (mut ours, theirs) = pair();
        let end = Rc::new(Cell::new(false));
        let timer = Rc::clone(&end);
        let handle = spawn_local(move || {
            sleep(Duration::from_millis(5));
            timer.set(true);
        });
        // A thread empties the socket, so that the writer does not have to wait.
        let theirs = std::net::TcpStream::from(OwnedFd::try_from(theirs).unwrap());
        theirs.set_nonblocking(false).unwrap();
        let emptied = thread::spawn(move || io::copy(&mut &theirs, &mut io::sink()).unwrap());
        let mut sent = 0;
        while !end.get() {
            ours.write_all(&[7; 64]).unwrap();
            sent += 64;
        }
        drop(ours);
        handle.join().unwrap();
        let emptied = ringloop::spawn_blocking(move || emptied.join().unwrap());
        assert_eq!(block_on(emptied).unwrap(), sent);
    });
}

#[test]
fn small_writes_to_an_idle_peer_wait_in_order() {
    on_both(|| {
        let (mut ours, mut theirs) = pair();
        let bytes = pattern(8 << 20);
        let expected = bytes.clone();
        let (sent, is_over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (count, over) = (Rc::clone(&sent), Rc::clone(&is_over));
        let writing = spawn_local(move || {
            for piece in bytes.chunks(1000) {
                ours.write_all(piece).unwrap();
                count.set(count.get() + piece.len());
            }
            over.set(true);
        });
        // Until a millisecond passes without progress: it waits.
        let mut before = usize::MAX;
        while sent.get() == 0 || sent.get() != before {
            before = sent.get();
            sleep(Duration::from_millis(1));
        }
        assert!(!is_over.get(), "the socket took all there was");
        let mut received = vec![0; expected.len()];
        theirs.read_exact(&mut received).unwrap();
        assert!(received == expected);
        writing.join().unwrap();
    });
}

#[test]
fn thousands_of_readers_read_and_are_cancelled() {
    on_both(|| {
        let (silent, peer) = pair();
        let holders: Vec<_> = (0..1024)
            .map(|_| silent.try_clone().unwrap())
            .map(|mut stream| spawn(move || stream.read(&mut [0; 8])))
            .collect();
        let pairs = (0..128).map(|_| pair());
        let (ours, theirs): (Vec<_>, Vec<_>) = pairs.unzip();
        let readers: Vec<_> = ours
            .into_iter()
            .map(|mut stream| {
                spawn(move || {
                    let mut into = [0; 8];
                    let count = stream.read(&mut into)?;
                    io::Result::Ok(into[..count].to_vec())
                })
            })
            .collect();
        yield_now();
        for (number, (reader, mut stream)) in readers.into_iter().zip(theirs).enumerate() {
            if number % 3 == 0 {
                reader.cancel();
                assert!(reader.join().is_err());
                continue;
            }
            let sent = number.to_le_bytes();
            stream.write_all(&sent).unwrap();
            assert_eq!(reader.join().unwrap().unwrap(), sent);
        }
        drop(peer);
        for holder in holders {
            assert_eq!(holder.join().unwrap().unwrap(), 0);
        }
    });
}

#[test]
fn peers_that_answer_at_once_are_served_fairly() {
    on_both(|| {
        let is_over = Rc::new(Cell::new(false));
        let clients: Vec<_> = (0..350)
            .map(|_| {
                let (mut client, mut server) = UnixStream::pair().unwrap();
                drop(spawn_local(move || {
                    let mut word = [0; 8];
                    while server.read_exact(&mut word).is_ok() && server.write_all(&word).is_ok() {}
                }));
                let is_over = Rc::clone(&is_over);
                spawn_local(move || {
                    let (mut word, mut count) = ([0; 8], 0);
                    while !is_over.get() {
                        client.write_all(&word).unwrap();
                        client.read_exact(&mut word).unwrap();
                        count += 1;
                        if count == 40 {
                            is_over.set(true);
                        }
                    }
                    count
                })
            })
            .collect();
        let least = clients.into_iter().map(|client| client.join().unwrap());
        assert!(least.min() >= Some(20));
    });
}
