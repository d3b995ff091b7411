//! Submission polling by a kernel thread: the same results, a refusal that names the remedy,
//! nothing left behind.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::buf::SendBuf;
use ringloop::embed::Kind;
use ringloop::embed::limits;
use ringloop::embed::op::{Nop, RecvMulti, Request, Send, Timeout};
use ringloop::embed::{Engine, Link};
use ringloop::net::{TcpListener, TcpStream};
use ringloop::{Options, Runtime, spawn, time};
use ringloop_testing::drivers;
use ringloop_testing::engine::{
    Bed, Foreign, alone, open_descriptors, read_exact, recv, tcp_pair, write_all,
};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The thread sleeps soon, so that waking it is part of every test.
const IDLE: Duration = Duration::from_millis(1);

fn polled(driver: Choice) -> Options {
    let mut options = Options { driver, ..Options::default() };
    options.submission_polling = Some(IDLE);
    options
}

fn on_both(test: impl Fn(&mut Bed)) {
    let _alone = alone();
    for driver in drivers() {
        let before = open_descriptors();
        let mut bed = Bed::with(polled(driver));
        bed.engine.bind().unwrap();
        test(&mut bed);
        drop(bed);
        assert_eq!(open_descriptors(), before, "{driver:?}: descriptors");
    }
}

#[test]
fn more_operations_than_the_queue_holds_all_complete() {
    on_both(|bed| {
        let count = limits::RING_ENTRIES as usize * 3;
        for _ in 0..count {
            bed.submit(Request::Nop(Nop));
        }
        let mut done_count = 0;
        while done_count < count {
            bed.turn(Duration::from_millis(100));
            done_count += bed.take_all().len();
        }
        assert_eq!(bed.in_flight(), 0);
    });
}

#[test]
fn polling_thread_that_sleeps_is_woken_by_the_next_operation() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        for round in 0..5_u8 {
            // Longer than the thread stays awake.
            bed.turn(IDLE * 20);
            write_all(&mut peer, &[round]);
            assert_eq!(bed.recv(ours.as_raw_fd(), 8), (1, vec![round]));
        }
        bed.assert_sleeps();
        bed.release(&ours);
    });
}

#[test]
fn receive_that_was_given_up_takes_no_bytes_from_the_next_descriptor() {
    on_both(|bed| {
        for _ in 0..50 {
            let foreign = Foreign::new(64);
            let (ours, peer) = tcp_pair();
            let request =
                ringloop::embed::op::Recv { fd: ours.as_raw_fd(), buf: foreign.recv_buf() };
            let (key, _) = bed.submit(Request::Recv(request));
            bed.forget(key);
            bed.release(&ours);
            drop((ours, peer));
            let (next, mut peer) = tcp_pair();
            write_all(&mut peer, b"mine");
            assert_eq!(bed.recv(next.as_raw_fd(), 8), (4, b"mine".to_vec()));
            bed.drain();
            foreign.assert_released_untouched();
            bed.release(&next);
        }
    });
}

#[test]
fn drop_of_the_driver_with_operations_in_flight_releases_everything() {
    on_both(|bed| {
        let (ours, _peer) = tcp_pair();
        let foreign = Foreign::new(64);
        let request = ringloop::embed::op::Recv { fd: ours.as_raw_fd(), buf: foreign.recv_buf() };
        bed.submit(Request::Recv(request));
        bed.submit(Request::RecvMulti(RecvMulti::new(ours.as_raw_fd())));
        bed.submit(recv(ours.as_raw_fd(), 10));
        bed.settle();
        bed.engine = Engine::new(Options { driver: Choice::Epoll, ..Options::default() }).unwrap();
        foreign.assert_released_untouched();
    });
}

#[test]
fn runtime_echoes_with_submission_polling() {
    let _alone = alone();
    for driver in drivers() {
        let runtime = Runtime::with_options(polled(driver)).unwrap();
        runtime
            .block_on(async {
                let listener = TcpListener::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
                let address = listener.local_addr().unwrap();
                let server = spawn(async move {
                    let stream = listener.accept().await.unwrap();
                    for _ in 0..100 {
                        let (count, bytes) = stream.read(Vec::with_capacity(64)).await;
                        assert_eq!(count.unwrap(), 5);
                        stream.write_all(bytes).await.0.unwrap();
                    }
                });
                let client = TcpStream::connect(address).await.unwrap();
                for round in 0..100 {
                    client.write_all(b"hello".to_vec()).await.0.unwrap();
                    let (_, bytes) = client.read(Vec::with_capacity(64)).await;
                    assert_eq!(bytes, b"hello");
                    if round % 30 == 0 {
                        time::sleep(IDLE * 5).await;
                    }
                }
                server.await.unwrap();
            })
            .unwrap();
    }
}

#[test]
fn automatic_choice_takes_the_ring_with_polling_where_it_can() {
    let _alone = alone();
    let engine = Engine::new(polled(Choice::Auto)).unwrap();
    let plain = Engine::new(Options::default()).unwrap();
    assert_eq!(engine.kind(), plain.kind());
    assert!(
        engine.kind() == Kind::Epoll || !engine.reason().contains("refused"),
        "{}",
        engine.reason()
    );
}

/// The polling thread could take a link in two parts, unseen: it is run in sequence, with the same
/// results.
#[test]
fn links_give_the_same_results_with_submission_polling() {
    let _alone = alone();
    for driver in drivers() {
        let runtime = Runtime::with_options(polled(driver)).unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        runtime
            .block_on(async {
                let send = |bytes: &[u8]| Send {
                    fd: near.as_raw_fd(),
                    buf: SendBuf::from(bytes.to_vec()),
                };
                for _ in 0..100 {
                    let link = Link::new(send(b"one ")).then(Nop).then(send(b"two"));
                    let (((one, _), nothing), (two, _)) = link.await;
                    nothing.unwrap();
                    assert_eq!((one.unwrap(), two.unwrap()), (4, 3));
                    assert_eq!(read_exact(&mut &far, 7), b"one two");
                }
                let never = Timeout::after(Duration::from_secs(3600));
                let link = Link::new(never).timeout(Duration::from_millis(2)).then(Nop);
                let (late, behind) = link.await;
                assert_eq!(behind.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
                assert_eq!(late.unwrap_err().raw_os_error(), Some(libc::ETIMEDOUT));
            })
            .unwrap();
    }
}
