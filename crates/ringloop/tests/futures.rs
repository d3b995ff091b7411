//! Operations as futures: dropped, forgotten and aborted at every state, and sockets that outlive the
//! call that made them; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::op::{Accept, Kind, Nop, Open, Outcome, Poll, Read, Recv, Request, Send};
use ringloop::embed::sys::fd::{AsRawFd, IntoRawFd, OwnedFd};
use ringloop::embed::sys::{file, interest::Interest};
use ringloop::embed::{Local, Op};
use ringloop::net::{TcpListener, TcpStream};
use ringloop::time;
use ringloop::{Options, Runtime, spawn};
use ringloop_testing::drivers;
use ringloop_testing::engine;
use ringloop_testing::engine::{Foreign, alone, connect_to, is_closed, open_descriptors, tcp_pair};
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::Poll as Turn;
use std::time::Duration;

/// Runs a test on every driver, alone, in its own runtime.
fn on_both(test: impl Fn(&Runtime)) {
    let _alone = alone();
    for driver in drivers() {
        let before = open_descriptors();
        let runtime = Runtime::with_options(Options { driver, ..Options::default() }).unwrap();
        test(&runtime);
        drop(runtime);
        assert_eq!(open_descriptors(), before, "{driver:?}: descriptors");
    }
}

/// Poll a future once; it has to be pending.
async fn poll_once<F: Future + Unpin>(future: &mut F) {
    let pending = poll_fn(|cx| Turn::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await;
    assert!(pending);
}

async fn some_turns() {
    for _ in 0..5 {
        time::yield_now().await;
    }
    time::sleep(Duration::from_millis(1)).await;
}

/// A send that passes its count off as an output of `K`.
struct Disguised<K>(Send, PhantomData<fn() -> K>);

impl<K: Kind> Kind for Disguised<K> {
    type Output = K::Output;

    fn into_request(self) -> Request {
        self.0.into_request()
    }

    fn output(outcome: Outcome) -> K::Output {
        K::output(outcome)
    }
}

#[test]
fn count_of_another_operation_becomes_no_descriptor() {
    async fn disguised<K: Kind<Output = io::Result<OwnedFd>>>(fd: i32) -> io::Result<OwnedFd> {
        let buf = vec![0; 9000].into();
        let disguised = Disguised::<K>(Send { fd, buf }, PhantomData);
        Op::new(disguised).await
    }
    on_both(|runtime| {
        let (ours, _peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let outputs = runtime
            .block_on(async { [disguised::<Accept>(fd).await, disguised::<Open>(fd).await] });
        for output in outputs.unwrap() {
            // No descriptor of that number is open, so closing it would fail as well.
            let error = output.map(OwnedFd::into_raw_fd).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    });
}

#[test]
fn receive_dropped_at_any_state_releases_its_buffer_once() {
    on_both(|runtime| {
        for state in 0..5 {
            let foreign = Foreign::new(64);
            let (ours, mut peer) = tcp_pair();
            let received = runtime.block_on(async {
                let recv = Recv { fd: ours.as_raw_fd(), buf: foreign.recv_buf() };
                let mut op = Op::new(recv);
                // 0: never polled.
                if state >= 1 {
                    poll_once(&mut op).await;
                }
                if state >= 2 {
                    some_turns().await;
                }
                if state >= 3 {
                    peer.write_all(b"x").unwrap();
                    some_turns().await;
                }
                if state >= 4 {
                    let (count, buf) = (&mut op).await;
                    assert_eq!((count.unwrap(), buf.filled()), (1, &b"x"[..]));
                }
                drop(op);
                // Bytes that arrive before the kernel has seen the cancel may go to the dropped
                // receive.
                some_turns().await;
                peer.write_all(b"yz").unwrap();
                let recv = Recv { fd: ours.as_raw_fd(), buf: Vec::with_capacity(8).into() };
                let (count, buf) = Op::new(recv).await;
                count.unwrap();
                // A descriptor that is closed without the runtime's knowledge.
                let local = Local::current();
                local.engine().driver_mut().release(ours.as_raw_fd());
                buf.into_vec()
            });
            foreign.assert_released_untouched();
            assert_eq!(received.unwrap(), b"yz", "{:?}: state {state}", runtime.kind());
            runtime.block_on(async {}).unwrap();
        }
    });
}

#[test]
fn connection_accepted_for_a_dropped_future_is_closed() {
    on_both(|runtime| {
        let listener = engine::listener();
        let accept = || Accept { fd: listener.as_raw_fd(), multi: false };
        let mut client = None;
        runtime
            .block_on(async {
                let mut op = Op::new(accept());
                poll_once(&mut op).await;
                client = Some(connect_to(&listener));
                some_turns().await;
                drop(op);
            })
            .unwrap();
        assert!(is_closed(client.as_mut().unwrap()));
    });
}

#[test]
fn future_of_a_multishot_operation_takes_one_completion_and_loses_none() {
    on_both(|runtime| {
        let listener = engine::listener();
        let clients: Vec<_> = (0..3).map(|_| connect_to(&listener)).collect();
        runtime
            .block_on(async {
                for client in &clients {
                    let accept = Accept { fd: listener.as_raw_fd(), multi: true };
                    let server = std::net::TcpStream::from(Op::new(accept).await.unwrap());
                    assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
                    some_turns().await;
                }
                let poll =
                    Poll { fd: clients[0].as_raw_fd(), interest: Interest::WRITE, level: true };
                assert_eq!(Op::new(poll).await.unwrap(), Interest::WRITE);
            })
            .unwrap();
    });
}

#[test]
fn operations_that_were_leaked_keep_their_buffers() {
    let _alone = alone();
    for driver in drivers() {
        let runtime = Runtime::with_options(Options { driver, ..Options::default() }).unwrap();
        let foreign = Foreign::new(64);
        let (ours, mut peer) = tcp_pair();
        runtime
            .block_on(async {
                for polled in [false, true] {
                    let recv = Recv { fd: ours.as_raw_fd(), buf: foreign.recv_buf() };
                    let mut op = Op::new(recv);
                    if polled {
                        poll_once(&mut op).await;
                    }
                    engine::leak(op);
                }
                some_turns().await;
            })
            .unwrap();
        drop(runtime);
        peer.write_all(b"late").unwrap();
        assert_eq!(foreign.releases(), 0, "{driver:?}: leaked, and not freed");
    }
}

#[test]
fn dropped_runtime_gives_back_what_its_tasks_had_in_flight() {
    on_both(|runtime| {
        let (ours, mut peer) = tcp_pair();
        let (reader, mut writer) = {
            let (reader, writer) = file::pipe().unwrap();
            (reader, std::fs::File::from(writer))
        };
        let (for_recv, for_read) = (Foreign::new(64), Foreign::new(64));
        let nested =
            Runtime::with_options(Options { driver: drivers()[0], ..Options::default() }).unwrap();
        let recv = Recv { fd: ours.as_raw_fd(), buf: for_recv.recv_buf() };
        let read = Read { fd: reader.as_raw_fd(), buf: for_read.recv_buf(), offset: None };
        nested.spawn(async move { Op::new(recv).await.0 });
        nested.spawn(async move { Op::new(read).await.0 });
        nested.spawn(time::sleep(Duration::from_secs(3600)));
        nested.block_on(some_turns()).unwrap();
        drop(nested);
        peer.write_all(b"late").unwrap();
        writer.write_all(b"late").unwrap();
        for_recv.assert_released_untouched();
        for_read.assert_released_untouched();
        runtime.block_on(async {}).unwrap();
    });
}

#[test]
fn aborted_task_gives_back_what_it_had_in_flight() {
    on_both(|runtime| {
        let foreign = Foreign::new(64);
        let (ours, mut peer) = tcp_pair();
        let recv = Recv { fd: ours.as_raw_fd(), buf: foreign.recv_buf() };
        runtime
            .block_on(async {
                let task = spawn(async move { Op::new(recv).await.0.is_ok() });
                some_turns().await;
                task.abort();
                assert!(task.await.is_err());
                some_turns().await;
            })
            .unwrap();
        peer.write_all(b"late").unwrap();
        foreign.assert_released_untouched();
    });
}

/// The driver releases a socket's number wherever the socket is dropped: the next one reuses the
/// number.
#[test]
fn socket_dropped_outside_of_the_runtime_leaves_its_number_usable() {
    on_both(|runtime| {
        for round in 0..3_u8 {
            let (ours, mut peer) = tcp_pair();
            let stream = TcpStream::from(ours);
            let received = runtime.block_on(async {
                let write_later = spawn(async move {
                    time::sleep(Duration::from_millis(2)).await;
                    peer.write_all(&[round]).unwrap();
                    peer
                });
                let read = stream.read(Vec::with_capacity(8));
                let (count, bytes) = time::timeout(ringloop_testing::PATIENCE, read).await.unwrap();
                count.unwrap();
                drop(write_later.await.unwrap());
                bytes
            });
            assert_eq!(received.unwrap(), [round]);
            drop(stream);
        }
    });
}

#[test]
fn stream_moves_from_one_runtime_to_another() {
    on_both(|runtime| {
        let (ours, mut peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        peer.write_all(b"1").unwrap();
        let read = || stream.read(Vec::with_capacity(8));
        let (_, first) = runtime.block_on(read()).unwrap();
        let other = Runtime::with_options(Options {
            driver: *drivers().last().unwrap(),
            ..Options::default()
        })
        .unwrap();
        peer.write_all(b"2").unwrap();
        let (_, second) = other.block_on(read()).unwrap();
        assert_eq!((first, second), (b"1".to_vec(), b"2".to_vec()));
        let fd = OwnedFd::from(stream);
        peer.write_all(b"3").unwrap();
        let stream = TcpStream::from(std::net::TcpStream::from(fd));
        let (_, third) = runtime.block_on(stream.read(Vec::with_capacity(8))).unwrap();
        assert_eq!(third, b"3");
    });
}

/// The peer sees the end at once, though a cancelled read still held the socket when it was
/// dropped.
#[test]
fn last_act_of_block_on_reaches_the_kernel() {
    on_both(|runtime| {
        let (ours, mut peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        runtime
            .block_on(async move {
                let read = stream.read(Vec::with_capacity(8));
                assert!(time::timeout(Duration::from_millis(1), read).await.is_err());
                drop(stream);
            })
            .unwrap();
        assert!(is_closed(&mut peer));
    });
}

#[test]
#[should_panic(expected = "an operation was polled after it was over")]
fn polling_an_operation_after_its_end_panics() {
    let _alone = alone();
    let runtime = Runtime::new().unwrap();
    let outcome = runtime.block_on(async {
        let mut op = Op::new(Nop);
        (&mut op).await.unwrap();
        (&mut op).await
    });
    unreachable!("{outcome:?}");
}

#[test]
#[should_panic(expected = "no ringloop runtime on this thread")]
fn operation_polled_outside_of_a_runtime_panics_with_a_remedy() {
    // A panic that prints its backtrace opens files.
    let _alone = alone();
    let mut op = Op::new(Nop);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = Pin::new(&mut op).poll(&mut cx);
}

#[test]
fn listener_dropped_while_its_accept_is_in_flight_refuses_the_next() {
    on_both(|runtime| {
        let addr = runtime
            .block_on(async {
                let listener = TcpListener::bind_addr("127.0.0.1:0".parse().unwrap()).unwrap();
                let addr = listener.local_addr().unwrap();
                let accept = listener.accept();
                assert!(time::timeout(Duration::from_millis(1), accept).await.is_err());
                addr
            })
            .unwrap();
        let error = std::net::TcpStream::connect(addr).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}
