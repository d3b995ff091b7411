//! Zero-copy sends: every byte once and in order, buffers back when the network is done and never
//! before, dropped and forgotten at every state; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::embed::Kind;
use ringloop::embed::Local;
use ringloop::embed::op::{Request, Send, SendMsg, SendMsgZc, SendZc};
use ringloop::net::{TcpListener, TcpStream, Transfer};
use ringloop::{Runtime, spawn, time};
use ringloop_testing::engine;
use ringloop_testing::engine::{Bed, Foreign, in_runtimes, on_both, tcp_pair};
use std::future::poll_fn;
use std::io::Read as _;
use std::os::fd::AsRawFd;
use std::task::Poll;
use std::time::Duration;

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (ours, listener.accept().await.unwrap())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

async fn read_exactly(stream: &TcpStream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let (count, bytes) = stream.read(Vec::with_capacity(1 << 16)).await;
        assert!(count.unwrap() > 0, "the end after {} of {len}", all.len());
        all.extend(bytes);
    }
    all
}

#[test]
fn every_size_arrives_whole_and_the_buffer_comes_back() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            for len in [1, 100, 4096, 65_537, 5_000_000] {
                let bytes = pattern(len);
                let expected = bytes.clone();
                let (sent, received) =
                    both(ours.write_all_zero_copy(bytes), read_exactly(&peer, len)).await;
                sent.0.unwrap();
                assert!(sent.1 == expected, "{len}");
                assert!(received == expected, "{len}");
            }
            ours.write_all_zero_copy(Vec::new()).await.0.unwrap();
        });
    });
}

/// Reads until the end; returns the number of bytes.
async fn read_to_end(stream: TcpStream) -> usize {
    let mut total = 0;
    loop {
        let (count, _) = stream.read(Vec::with_capacity(1 << 16)).await;
        match count.unwrap() {
            0 => return total,
            count => total += count,
        }
    }
}

async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    let (mut a, mut b) = (None, None);
    poll_fn(|cx| {
        if a.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(cx)
        {
            a = Some(value);
        }
        if b.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(cx)
        {
            b = Some(value);
        }
        if a.is_some() && b.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (a.unwrap(), b.unwrap())
}

#[test]
fn count_comes_first_and_the_buffers_later() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            let (count, bufs_back) = ours.write_zero_copy(b"first".to_vec()).await;
            assert_eq!(count.unwrap(), 5);
            // The next one is sent before the first has come back.
            let bufs = vec![b" sec".to_vec(), Vec::new(), b"ond".to_vec()];
            let (count, second) = ours.write_vectored_zero_copy(bufs.clone()).await;
            assert_eq!(count.unwrap(), 7);
            assert_eq!(read_exactly(&peer, 12).await, b"first second");
            let back = bufs_back.await;
            // Loopback copies, and reports it.
            assert_eq!(back.transfer, Transfer::Copied);
            assert_eq!(back.into_vec(), b"first");
            let back = second.await;
            assert_eq!(back.bufs.len(), 3);
            assert_eq!(back.bufs[2].as_slice(), b"ond");
        });
    });
}

#[test]
fn closed_peer_is_an_error_and_the_buffer_comes_back() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, peer) = pair().await;
            peer.set_linger(Some(Duration::ZERO)).unwrap();
            drop(peer);
            loop {
                let (result, bufs_back) = ours.write_zero_copy(vec![b'x'; 100]).await;
                assert_eq!(bufs_back.await.into_vec(), vec![b'x'; 100]);
                if result.is_err() {
                    break;
                }
            }
            let (result, bytes) = ours.write_all_zero_copy(vec![b'y'; 10]).await;
            assert!(result.is_err());
            assert_eq!(bytes, vec![b'y'; 10]);
        });
    });
}

/// A Unix socket takes no zero-copy sends; after the kernel's refusal a plain send is used.
#[test]
fn socket_that_refuses_is_sent_to_plainly() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
            one.set_nonblocking(true).unwrap();
            let one = TcpStream::from(std::os::fd::OwnedFd::from(one));
            let (count, bufs_back) = one.write_zero_copy(b"plain".to_vec()).await;
            assert_eq!(count.unwrap(), 5);
            let back = bufs_back.await;
            assert_eq!((back.transfer, back.into_vec()), (Transfer::Copied, b"plain".to_vec()));
            let mut bytes = [0; 5];
            other.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"plain");
        });
    });
}

#[test]
fn futures_dropped_at_any_state_leave_the_stream_usable() {
    in_runtimes(|runtime| {
        for state in 0..4 {
            run(runtime, async {
                let (ours, peer) = pair().await;
                let reader = spawn(read_to_end(peer));
                let mut write = Box::pin(ours.write_zero_copy(pattern(1 << 20)));
                let mut first = Poll::Pending;
                if state >= 1 {
                    first = poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await;
                    // Without a ring there is nothing to wait for.
                    assert!(first.is_pending() || runtime.kind() == Kind::Epoll);
                }
                if state >= 2 {
                    let (count, bufs_back) = match first {
                        Poll::Ready(sent) => {
                            drop(write);
                            sent
                        }
                        Poll::Pending => write.await,
                    };
                    count.unwrap();
                    if state >= 3 {
                        bufs_back.await;
                    }
                } else {
                    drop(write);
                }
                time::sleep(Duration::from_millis(1)).await;
                ours.write_all(b"end".to_vec()).await.0.unwrap();
                drop(ours);
                assert!(reader.await.unwrap() >= 3, "{state}");
            });
        }
    });
}

fn send_zc(fd: i32, foreign: &Foreign) -> Request {
    let buf = foreign.send_buf();
    Request::SendZc(SendZc::new(Send { fd, buf }))
}

fn send_msg_zc(fd: i32, foreign: &Foreign) -> Request {
    let bufs = vec![vec![b'.'; 10].into(), foreign.send_buf()];
    Request::SendMsgZc(SendMsgZc::new(SendMsg::new(fd, bufs)))
}

/// Fills our side of a connection until a send would block.
fn fill(fd: i32) {
    let block = [b'f'; 8192];
    while ringloop::embed::sys::socket::send(fd, &block, 0).is_ok() {}
}

/// Queued, in flight, and with its count taken but not its notification; each cancelled, forgotten,
/// or dropped with its driver.
#[test]
fn sent_memory_is_released_once_and_never_read_after() {
    for end in 0..3 {
        for state in 0..3 {
            for request in [send_zc, send_msg_zc] {
                on_both(|bed| give_up(bed, end, state, request));
            }
        }
    }
}

fn give_up(bed: &mut Bed, end: u32, state: u32, request: fn(i32, &Foreign) -> Request) {
    let foreign = Foreign::holding(&vec![b'.'; 20_000]);
    let (ours, mut peer) = tcp_pair();
    let fd = ours.as_raw_fd();
    if state < 2 {
        fill(fd);
    }
    let (key, token) = bed.submit(request(fd, &foreign));
    if state >= 1 {
        bed.settle();
    }
    if state == 2 {
        let completion = bed.expect(token);
        assert!(completion.result > 0);
        // The peer has not read a byte: only loopback's copy releases the memory this early.
        assert_eq!(foreign.releases(), 0);
    }
    let reading = move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = peer.read(&mut bytes) {
            let fine = bytes[..count].iter().all(|byte| b"f.".contains(byte));
            assert!(fine, "released memory was sent");
        }
    };
    let reading = match end {
        0 => {
            bed.cancel(key);
            std::thread::spawn(reading)
        }
        1 => {
            bed.forget(key);
            std::thread::spawn(reading)
        }
        _ => {
            // Memory of bytes in the socket is released once the peer has them, which a driver
            // awaits only for a limited time.
            let reading = std::thread::spawn(reading);
            bed.engine = Bed::new(Choice::Epoll).engine;
            reading
        }
    };
    if end < 2 {
        bed.drain();
    }
    for event in bed.take_all() {
        drop(event);
    }
    bed.release(&ours);
    drop(ours);
    reading.join().unwrap();
    foreign.assert_released_untouched();
}

/// As a handler sees it: the count, then the end; on epoll both in one.
#[test]
fn completions_are_the_count_and_then_the_notification() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let foreign = Foreign::holding(b"hello");
        let (_, token) = bed.submit(send_zc(ours.as_raw_fd(), &foreign));
        let first = bed.expect(token);
        assert_eq!(first.result, 5);
        assert_eq!(first.more, bed.kind() == Kind::Uring);
        let last = if first.more {
            let last = bed.expect(token);
            assert_eq!((last.result, last.more), (0, false));
            last
        } else {
            first
        };
        assert!(matches!(last.request, Some(Request::SendZc(_))));
        drop(last);
        foreign.assert_released_untouched();
        assert_eq!(engine::read_exact(&mut peer, 5), b"hello");
        bed.release(&ours);
    });
}

#[test]
fn loop_without_zero_copy_reports_a_copy() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let possible = Local::current().engine().sends_zero_copy();
            assert_eq!(possible, runtime.kind() == Kind::Uring);
        });
    });
}
