//! Cancellation by descriptor and of everything: each operation ends once, with `ECANCELED` or its
//! own result, and unrelated operations continue; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::buf::RecvBuf;
use ringloop::embed::limits;
use ringloop::embed::op::{
    Accept, Poll, PollMulti, Read, RecvMulti, Request, Splice, Tee, Timeout,
};
use ringloop::embed::sys::fd::{AsRawFd, OwnedFd, RawFd};
use ringloop::embed::sys::file;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::libc;
use ringloop::embed::{Kind, Token};
use ringloop::embed::{Link, Local, Op};
use ringloop::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram};
use ringloop::{spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine;
use ringloop_testing::engine::{
    Bed, connect_to, in_runtimes, on_both, recv, send, tcp_pair, write_all,
};
use std::future::IntoFuture;
use std::io::Write as _;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Every operation that waits on an idle connection.
fn submit_all(bed: &mut Bed, fd: RawFd) -> Vec<Token> {
    let poll = |level| {
        let interest = Interest::READ;
        Request::Poll(Poll { fd, interest, level })
    };
    let edge = Request::PollMulti(PollMulti { fd, interest: Interest::READ });
    [
        recv(fd, 10),
        recv(fd, 10),
        poll(false),
        poll(true),
        edge,
        Request::RecvMulti(RecvMulti::new(fd)),
    ]
    .map(|request| bed.submit(request).1)
    .to_vec()
}

fn expect_cancelled(bed: &mut Bed, tokens: &[Token]) {
    for token in tokens {
        let completion = bed.expect(*token);
        assert_eq!((completion.result, completion.more), (-libc::ECANCELED, false));
    }
}

#[test]
fn everything_on_a_descriptor_ends_and_the_others_go_on() {
    on_both(|bed| {
        for settled in [false, true] {
            let (one, mut peer) = tcp_pair();
            let (other, mut other_peer) = tcp_pair();
            let tokens = submit_all(bed, one.as_raw_fd());
            let (_, kept) = bed.submit(recv(other.as_raw_fd(), 10));
            let (timer_key, timer) = bed.submit(Request::Timeout(Timeout::after(HOUR)));
            if settled {
                bed.settle();
            }
            let count = bed.engine.driver_mut().cancel_descriptor(one.as_raw_fd());
            assert_eq!(count, tokens.len(), "{settled}");
            let again = bed.engine.driver_mut().cancel_descriptor(one.as_raw_fd());
            assert_eq!(again, 0, "asked twice");
            expect_cancelled(bed, &tokens);
            write_all(&mut other_peer, b"on");
            assert_eq!(bed.expect(kept).result, 2);
            // The descriptor works as before.
            write_all(&mut peer, b"next");
            assert_eq!(bed.recv(one.as_raw_fd(), 10), (4, b"next".to_vec()));
            bed.cancel(timer_key);
            assert_eq!(bed.expect(timer).result, -libc::ECANCELED);
            assert_eq!(bed.in_flight(), 0);
            bed.release(&one);
            bed.release(&other);
        }
    });
}

#[test]
fn everything_ends_at_once_and_the_loop_goes_on() {
    on_both(|bed| {
        for settled in [false, true] {
            let (one, mut peer) = tcp_pair();
            let listener = engine::listener();
            let mut tokens = submit_all(bed, one.as_raw_fd());
            let fd = listener.as_raw_fd();
            tokens.push(bed.submit(Request::Accept(Accept { fd, multi: true })).1);
            tokens.push(bed.submit(Request::Timeout(Timeout::after(HOUR))).1);
            if settled {
                bed.settle();
            }
            assert_eq!(bed.engine.driver_mut().cancel_all(), tokens.len());
            assert_eq!(bed.engine.driver_mut().cancel_all(), 0, "asked twice");
            expect_cancelled(bed, &tokens);
            assert_eq!(bed.in_flight(), 0);
            write_all(&mut peer, b"next");
            assert_eq!(bed.recv(one.as_raw_fd(), 10), (4, b"next".to_vec()));
            // Another thread still wakes it.
            let unpark = bed.engine.unpark();
            let waker = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                unpark.notify();
            });
            bed.engine.park(Some(HOUR)).unwrap();
            waker.join().unwrap();
            bed.release(&one);
            bed.release(&listener);
        }
    });
}

/// An operation that has completed when the cancel comes keeps its result, and its bytes.
#[test]
fn completed_but_cancelled_operation_keeps_its_result() {
    on_both(|bed| {
        for _ in 0..100 {
            let (ours, mut peer) = tcp_pair();
            let fd = ours.as_raw_fd();
            let (_, token) = bed.submit(recv(fd, 10));
            bed.settle();
            write_all(&mut peer, b"x");
            bed.engine.driver_mut().cancel_descriptor(fd);
            let completion = bed.expect(token);
            let (result, bytes) = engine::recv_of(completion);
            if result == 1 {
                assert_eq!(bytes, b"x");
            } else {
                assert_eq!(result, -libc::ECANCELED);
                assert_eq!(bed.recv(fd, 10), (1, b"x".to_vec()), "lost");
            }
            bed.release(&ours);
        }
    });
}

#[test]
fn more_than_the_queue_holds_are_cancelled_together() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let count = limits::RING_ENTRIES as usize * 2 + 7;
        let tokens: Vec<_> = (0..count).map(|_| bed.submit(recv(fd, 10)).1).collect();
        assert_eq!(bed.engine.driver_mut().cancel_descriptor(fd), count);
        expect_cancelled(bed, &tokens);
        let (_, sent) = bed.submit(send(fd, b"on"));
        assert_eq!(bed.expect(sent).result, 2);
        assert_eq!(engine::read_exact(&mut peer, 2), b"on");
        bed.release(&ours);
    });
}

#[test]
fn unknown_descriptor_has_nothing_to_cancel() {
    on_both(|bed| {
        assert_eq!(bed.engine.driver_mut().cancel_descriptor(1 << 20), 0);
        assert_eq!(bed.engine.driver_mut().cancel_descriptor(-1), 0);
        assert_eq!(bed.engine.driver_mut().cancel_all(), 0);
        bed.settle();
    });
}

#[test]
fn futures_and_sequences_of_a_socket_end_and_the_socket_lives() {
    in_runtimes(|runtime| {
        let done = runtime.block_on(async {
            let (ours, mut peer) = tcp_pair();
            let stream = std::rc::Rc::new(TcpStream::from(ours));
            assert_eq!(stream.cancel(), 0, "nothing yet");
            let reading = {
                let stream = std::rc::Rc::clone(&stream);
                spawn(async move { stream.read(Vec::with_capacity(8)).await.0 })
            };
            let receiving = {
                let stream = std::rc::Rc::clone(&stream);
                spawn(async move { stream.receive().next().await.unwrap().map(|_| ()) })
            };
            time::sleep(Duration::from_millis(1)).await;
            assert_eq!(stream.cancel(), 2);
            for error in
                [reading.await.unwrap().unwrap_err(), receiving.await.unwrap().unwrap_err()]
            {
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
            }
            peer.write_all(b"on").unwrap();
            assert_eq!(stream.read(Vec::with_capacity(8)).await.1, b"on");

            let std = engine::listener();
            let listener: TcpListener = std.try_clone().unwrap().into();
            let listener = std::rc::Rc::new(listener);
            let accepting = {
                let listener = std::rc::Rc::clone(&listener);
                spawn(async move {
                    let mut incoming = listener.incoming();
                    let error = incoming.next().await.unwrap_err();
                    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                    incoming.next().await.unwrap();
                })
            };
            time::sleep(Duration::from_millis(1)).await;
            assert_eq!(listener.cancel(), 1);
            time::sleep(Duration::from_millis(1)).await;
            let _client = connect_to(&std);
            accepting.await.unwrap();
            assert_eq!(Local::current().cancel_all(), 0);
        });
        done.unwrap();
    });
}

fn read_some(fd: RawFd) -> Read {
    let buf = RecvBuf::with_capacity(8);
    Read { fd, buf, offset: None }
}

fn cancel_descriptor(fd: RawFd) -> usize {
    Local::current().engine().driver_mut().cancel_descriptor(fd)
}

#[test]
fn step_of_a_link_that_has_not_begun_ends_once_it_begins() {
    in_runtimes(|runtime| {
        // Without a ring it has not been submitted yet.
        if runtime.kind() != Kind::Uring {
            return;
        }
        let done = runtime.block_on(async {
            let (first, first_end) = file::pipe().unwrap();
            let (second, _second_end) = file::pipe().unwrap();
            let link = Link::new(read_some(first.as_raw_fd()));
            let link = link.then(read_some(second.as_raw_fd()));
            let linked = spawn(link.into_future());
            time::sleep(Duration::from_millis(2)).await;
            assert_eq!(cancel_descriptor(second.as_raw_fd()), 1);
            time::sleep(Duration::from_millis(2)).await;
            file::write(first_end.as_raw_fd(), b"go ahead", None).unwrap();
            let ((read, _), (cancelled, _)) =
                time::timeout(PATIENCE, linked).await.expect("it was not cancelled").unwrap();
            assert_eq!(read.unwrap(), 8, "all of its buffer");
            assert_eq!(cancelled.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        });
        done.unwrap();
    });
}

#[test]
fn splice_and_tee_end_by_the_end_they_wait_for() {
    in_runtimes(|runtime| {
        let done = runtime.block_on(async {
            for try_first in [false, true] {
                // All of them block: the ring waits on a kernel thread.
                let (from, _from_end) = std::io::pipe().unwrap();
                let (_to_end, to) = std::io::pipe().unwrap();
                let (from_fd, to_fd) = (from.as_raw_fd(), to.as_raw_fd());
                let splice = Splice::new((from_fd, None), (to_fd, None), 16);
                let tee = Tee::new(from_fd, to_fd, 16);
                let begin = if try_first { Op::try_first } else { Op::new };
                let splicing = spawn(begin(splice));
                let begin = if try_first { Op::try_first } else { Op::new };
                let teeing = spawn(begin(tee));
                time::sleep(Duration::from_millis(2)).await;
                assert_eq!(cancel_descriptor(from_fd), 2);
                for waits in [splicing, teeing] {
                    let ended = time::timeout(PATIENCE, waits).await;
                    let error = ended.expect("it was not cancelled").unwrap().unwrap_err();
                    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                }
                // The next round's pipes have the same numbers.
                Local::current().release(from_fd);
                Local::current().release(to_fd);
            }
        });
        done.unwrap();
    });
}

#[test]
fn datagrams_that_do_not_come_leave_the_buffer_to_its_owner() {
    in_runtimes(|runtime| {
        let done = runtime.block_on(async {
            let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let (unix, _peer) = std::os::unix::net::UnixDatagram::pair().unwrap();
            let fds = [udp.as_raw_fd(), unix.as_raw_fd()];
            let (udp, unix) =
                (UdpSocket::from(OwnedFd::from(udp)), UnixDatagram::from(OwnedFd::from(unix)));
            let receives = [
                spawn(async move {
                    let (result, buf) = udp.recv_from(Vec::with_capacity(999)).await;
                    (result.map(drop), buf)
                }),
                spawn(async move {
                    let (result, buf) = unix.recv_from(Vec::with_capacity(999)).await;
                    (result.map(drop), buf)
                }),
            ];
            time::sleep(Duration::from_millis(1)).await;
            for (fd, receive) in fds.into_iter().zip(receives) {
                assert_eq!(cancel_descriptor(fd), 1);
                let (result, buf) = receive.await.unwrap();
                assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
                assert_eq!((buf.len(), buf.capacity()), (0, 999));
            }
        });
        done.unwrap();
    });
}
