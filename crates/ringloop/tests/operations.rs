//! Every operation as an embedder uses it, with the same results asserted on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::op::{
    Accept, Cancel, Close, Connect, Nop, Poll, PollBorrowed, PollMode, RecvMsg, RecvMulti, Request,
    SendDatagram, SendMsg, Timeout, Write,
};
use ringloop::embed::sys::address::SockAddr;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::{clock, file, socket};
use ringloop::embed::{Completion, Event};
use ringloop_testing::engine;
use ringloop_testing::engine::{
    Bed, connect_to, listener, on_both, read, read_exact, recv, recv_of, reset, send, tcp_pair,
    write_all,
};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

const IN: i32 = libc::POLLIN as i32;
const OUT: i32 = libc::POLLOUT as i32;

fn poll(fd: RawFd, interest: Interest, level: bool) -> Request {
    Request::Poll(Poll { fd, interest, level })
}

/// Takes ownership of an accepted descriptor.
fn owned(completion: &Completion) -> TcpStream {
    assert!(completion.result >= 0, "{completion:?}");
    // SAFETY: the completion of an accept is the only holder of its descriptor.
    unsafe { TcpStream::from_raw_fd(completion.result) }
}

fn flags(fd: RawFd) -> (bool, bool) {
    // SAFETY: no pointer is passed.
    let status = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: no pointer is passed.
    let descriptor = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    (status & libc::O_NONBLOCK != 0, descriptor & libc::FD_CLOEXEC != 0)
}

#[test]
fn nop_completes_with_0_and_gives_the_request_back() {
    on_both(|bed| {
        let completion = bed.run(Request::Nop(Nop));
        assert_eq!(completion.result, 0);
        assert!(matches!(completion.request, Some(Request::Nop(Nop))));
        assert_eq!(bed.in_flight(), 0);
    });
}

#[test]
fn key_and_token_of_an_event_are_those_of_its_submission() {
    on_both(|bed| {
        let submitted: Vec<_> = (0..5).map(|_| bed.submit(Request::Nop(Nop))).collect();
        bed.drain();
        let events: Vec<_> =
            bed.take_all().iter().map(|Event { key, token, .. }| (*key, *token)).collect();
        assert_eq!(events, submitted);
    });
}

#[test]
fn poll_once_completes_once_when_the_descriptor_is_ready() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let (_, token) = bed.submit(poll(ours.as_raw_fd(), Interest::READ, false));
        bed.expect_none(token);
        write_all(&mut peer, b"x");
        let completion = bed.expect(token);
        assert_eq!((completion.result, completion.more), (IN, false));
        bed.expect_none(token);
        assert_eq!(bed.in_flight(), 0);
        // Ready before it was submitted, and in the other direction.
        let both = bed.run(poll(ours.as_raw_fd(), Interest::BOTH, false));
        assert_eq!(both.result, IN | OUT);
        let write = bed.run(poll(ours.as_raw_fd(), Interest::WRITE, false));
        assert_eq!(write.result, OUT);
    });
}

#[test]
fn poll_reports_only_the_requested_directions() {
    on_both(|bed| {
        let (ours, peer) = tcp_pair();
        reset(peer);
        // A reset is an error and a hang-up to the kernel; a reader sees "readable".
        let read = bed.run(poll(ours.as_raw_fd(), Interest::READ, false));
        assert_eq!(read.result, IN);
        let (_, token) = bed.submit(poll(ours.as_raw_fd(), Interest::WRITE, true));
        assert_eq!(bed.expect(token).result, OUT);
    });
}

#[test]
fn level_poll_completes_for_as_long_as_the_descriptor_is_ready() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let (key, token) = bed.submit(poll(ours.as_raw_fd(), Interest::READ, true));
        bed.expect_none(token);
        write_all(&mut peer, b"x");
        for _ in 0..5 {
            let completion = bed.expect(token);
            assert_eq!((completion.result, completion.more), (IN, true));
            assert!(completion.request.is_none());
        }
        assert_eq!(bed.recv(ours.as_raw_fd(), 8), (1, b"x".to_vec()));
        // At most one completion was in flight.
        bed.settle();
        bed.take_all();
        bed.expect_none(token);
        write_all(&mut peer, b"y");
        assert_eq!(bed.expect(token).result, IN);
        bed.cancel(key);
        let last = loop {
            let completion = bed.expect(token);
            if !completion.more {
                break completion;
            }
        };
        assert!(matches!(last.request, Some(Request::Poll(_))));
        assert_eq!(bed.in_flight(), 0);
        bed.expect_none(token);
    });
}

#[test]
fn level_polls_of_both_directions_do_not_disturb_each_other() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (read_key, read) = bed.submit(poll(fd, Interest::READ, true));
        let (write_key, write) = bed.submit(poll(fd, Interest::WRITE, true));
        assert_eq!(bed.expect(write).result, OUT);
        bed.cancel(write_key);
        while bed.expect(write).more {}
        bed.expect_none(write);
        bed.expect_none(read);
        write_all(&mut peer, b"x");
        assert_eq!(bed.expect(read).result, IN);
        bed.cancel(read_key);
        while bed.expect(read).more {}
        assert_eq!(bed.in_flight(), 0);
    });
}

#[test]
fn accept_yields_a_nonblocking_descriptor_that_exec_closes() {
    on_both(|bed| {
        let listener = listener();
        let accept = |multi| Request::Accept(Accept { fd: listener.as_raw_fd(), multi });
        let (_, token) = bed.submit(accept(false));
        bed.expect_none(token);
        let client = connect_to(&listener);
        let completion = bed.expect(token);
        assert!(!completion.more);
        assert!(matches!(completion.request, Some(Request::Accept(_))));
        let server = owned(&completion);
        assert_eq!(flags(server.as_raw_fd()), (true, true));
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        assert_eq!(bed.in_flight(), 0);
    });
}

#[test]
fn multi_accept_yields_every_connection_until_it_is_cancelled() {
    on_both(|bed| {
        let listener = listener();
        let (key, token) =
            bed.submit(Request::Accept(Accept { fd: listener.as_raw_fd(), multi: true }));
        let clients: Vec<_> = (0..100).map(|_| connect_to(&listener)).collect();
        let mut ports = Vec::new();
        for _ in &clients {
            let completion = bed.expect(token);
            assert!(completion.more && completion.request.is_none());
            let server = owned(&completion);
            assert_eq!(flags(server.as_raw_fd()), (true, true));
            ports.push(server.peer_addr().unwrap());
        }
        let connected: Vec<_> = clients.iter().map(|c| c.local_addr().unwrap()).collect();
        assert_eq!(ports, connected);
        bed.expect_none(token);
        bed.cancel(key);
        let last = bed.expect(token);
        assert_eq!((last.result, last.more), (-libc::ECANCELED, false));
        assert!(matches!(last.request, Some(Request::Accept(_))));
        assert_eq!(bed.in_flight(), 0);
    });
}

fn borrowed(listener: &TcpListener, mode: PollMode) -> PollBorrowed {
    PollBorrowed { fd: listener.as_raw_fd(), interest: Interest::READ, mode }
}

#[test]
fn listener_poll_takes_no_connection_and_keeps_no_listener() {
    on_both(|bed| {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let mut other = Bed::new(bed.kind().to_string().parse().unwrap());
        let watch = |bed: &mut Bed| {
            let poll = borrowed(&listener, PollMode::Level);
            bed.submit(Request::PollBorrowed(poll)).1
        };
        let tokens = [watch(bed), watch(&mut other)];
        bed.expect_none(tokens[0]);
        let client = connect_to(&listener);
        // Both report it while it is queued.
        for _ in 0..3 {
            for (bed, token) in [&mut *bed, &mut other].into_iter().zip(tokens) {
                let completion = bed.expect(token);
                assert_eq!((completion.result, completion.more), (IN, true));
            }
        }
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        drop((server, client));
        for bed in [&mut *bed, &mut other] {
            // At most one completion was in flight.
            bed.settle();
            bed.take_all();
        }
        other.expect_none(tokens[1]);
        // Still polled, and the port is free all the same.
        drop(listener);
        let again = TcpListener::bind(address).unwrap();
        drop((again, other));
    });
}

#[test]
fn listener_poll_reports_each_connection_that_comes_to_an_empty_backlog() {
    on_both(|bed| {
        let listener = listener();
        listener.set_nonblocking(true).unwrap();
        let poll = borrowed(&listener, PollMode::Edge);
        let (_, token) = bed.submit(Request::PollBorrowed(poll));
        for _ in 0..3 {
            let clients = [connect_to(&listener), connect_to(&listener)];
            let completion = bed.expect(token);
            assert_eq!((completion.result, completion.more), (IN, true));
            for client in &clients {
                let (_, peer) = listener.accept().unwrap();
                assert_eq!(peer, client.local_addr().unwrap());
            }
            // One more completion may be in flight.
            bed.settle();
            bed.take_all();
            bed.expect_none(token);
        }
        let _waiting = connect_to(&listener);
        bed.expect(token);
        // Another poll reports the rest.
        let poll = borrowed(&listener, PollMode::Edge);
        let (_, again) = bed.submit(Request::PollBorrowed(poll));
        assert_eq!(bed.expect(again).result, IN);
    });
}

#[test]
fn accept_on_a_blocking_connection_does_not_wait_for_its_bytes() {
    on_both(|bed| {
        let (blocking, _peer) = tcp_pair();
        file::set_nonblocking(blocking.as_raw_fd(), false).unwrap();
        for multi in [false, true] {
            let fd = blocking.as_raw_fd();
            let completion = bed.run(Request::Accept(Accept { fd, multi }));
            assert_eq!(completion.result, -libc::EINVAL, "multi: {multi}");
        }
    });
}

#[test]
fn accept_on_what_does_not_listen_keeps_its_errno() {
    on_both(|bed| {
        let (ours, _peer) = tcp_pair();
        for multi in [false, true] {
            let fd = ours.as_raw_fd();
            let completion = bed.run(Request::Accept(Accept { fd, multi }));
            assert_eq!(completion.result, -libc::EINVAL);
        }
    });
}

#[test]
fn connect_completes_with_0_or_the_errno() {
    on_both(|bed| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let new = || socket::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        let first = new();
        let request = Request::Connect(Connect::new(first.as_raw_fd(), SockAddr::from(addr)));
        let completion = bed.run(request);
        assert_eq!(completion.result, 0);
        assert!(matches!(completion.request, Some(Request::Connect(_))));
        let (server, _) = listener.accept().unwrap();
        let first = TcpStream::from(first);
        assert_eq!(
            server.peer_addr().unwrap(),
            first.local_addr().unwrap(),
            "connected to the listener"
        );
        drop(listener);
        let second = new();
        let refused = Request::Connect(Connect::new(second.as_raw_fd(), SockAddr::from(addr)));
        assert_eq!(bed.run(refused).result, -libc::ECONNREFUSED);
    });
}

#[test]
fn closed_descriptor_is_ebadf_at_a_second_close() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.into_raw_fd();
        let completion = bed.run(Request::Close(Close { fd }));
        assert_eq!(completion.result, 0);
        assert!(engine::is_closed(&mut peer));
        assert_eq!(bed.run(Request::Close(Close { fd })).result, -libc::EBADF);
    });
}

/// The number is reused at once; the driver must not apply its state of the old descriptor.
#[test]
fn descriptor_number_used_again_after_a_close_operation_works() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.into_raw_fd();
        let (_, token) = bed.submit(recv(fd, 8));
        bed.expect_none(token);
        write_all(&mut peer, b"old");
        assert_eq!(recv_of(bed.expect(token)), (3, b"old".to_vec()));
        assert_eq!(bed.run(Request::Close(Close { fd })).result, 0);
        let (next, mut next_peer) = tcp_pair();
        // Move the new socket to the old number.
        // SAFETY: no pointer is passed; `fd` is free, or is `next` itself.
        let moved = unsafe { libc::dup2(next.as_raw_fd(), fd) };
        assert_eq!(moved, fd);
        if next.as_raw_fd() == fd {
            std::mem::forget(next);
        } else {
            drop(next);
        }
        let (_, token) = bed.submit(recv(fd, 8));
        bed.expect_none(token);
        write_all(&mut next_peer, b"new");
        assert_eq!(recv_of(bed.expect(token)), (3, b"new".to_vec()));
        assert_eq!(bed.run(Request::Close(Close { fd })).result, 0);
    });
}

#[test]
fn timeout_completes_with_0_in_order_and_never_early() {
    on_both(|bed| {
        let started = Instant::now();
        let tokens: Vec<_> = [20_u64, 5, 10]
            .into_iter()
            .map(|ms| {
                let timeout = Timeout::after(Duration::from_millis(ms));
                (ms, bed.submit(Request::Timeout(timeout)).1)
            })
            .collect();
        let mut order = Vec::new();
        while order.len() < tokens.len() {
            bed.turn(Duration::from_secs(10));
            for event in bed.take_all() {
                assert_eq!((event.completion.result, event.completion.more), (0, false));
                let (ms, _) = tokens.iter().find(|(_, t)| *t == event.token).unwrap();
                assert!(started.elapsed() >= Duration::from_millis(*ms));
                order.push(*ms);
            }
        }
        assert_eq!(order, [5, 10, 20]);
        let past = Timeout::at(clock::monotonic_ns().saturating_sub(1));
        assert_eq!(bed.run(Request::Timeout(past)).result, 0);
    });
}

#[test]
fn timeout_at_the_end_of_time_waits_and_can_be_cancelled() {
    on_both(|bed| {
        for deadline_ns in [u64::MAX, i64::MAX as u64, i64::MAX as u64 + 1] {
            let (key, token) = bed.submit(Request::Timeout(Timeout::at(deadline_ns)));
            bed.expect_none(token);
            bed.cancel(key);
            let last = bed.expect(token);
            assert_eq!((last.result, last.more), (-libc::ECANCELED, false));
        }
        let (key, token) = bed.submit(Request::Timeout(Timeout::after(Duration::MAX)));
        bed.expect_none(token);
        bed.forget(key);
        bed.drain();
    });
}

#[test]
fn wait_longer_than_any_clock_ends_with_the_completion() {
    on_both(|bed| {
        let timeout = Timeout::after(Duration::from_millis(5));
        let (_, token) = bed.submit(Request::Timeout(timeout));
        while bed.take(token).is_none() {
            bed.turn(Duration::MAX);
        }
    });
}

#[test]
fn cancel_ends_every_waiting_operation_with_ecanceled_and_its_request() {
    on_both(|bed| {
        let (ours, _peer) = tcp_pair();
        let (reader, _writer) = file::pipe().unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let listener = listener();
        let fd = ours.as_raw_fd();
        let accept = |multi| {
            let fd = listener.as_raw_fd();
            Request::Accept(Accept { fd, multi })
        };
        let requests = vec![
            poll(fd, Interest::READ, false),
            poll(fd, Interest::READ, true),
            accept(false),
            accept(true),
            recv(fd, 16),
            Request::RecvMulti(RecvMulti::new(fd)),
            Request::RecvMsg(RecvMsg::new(udp.as_raw_fd(), RecvBuf::with_capacity(16))),
            read(reader.as_raw_fd(), None),
            Request::Timeout(Timeout::after(Duration::from_secs(3600))),
        ];
        for request in requests {
            let name = format!("{request:?}");
            let kind = std::mem::discriminant(&request);
            let (key, token) = bed.submit(request);
            bed.expect_none(token);
            bed.cancel(key);
            bed.cancel(key);
            let last = bed.expect(token);
            assert_eq!((last.result, last.more), (-libc::ECANCELED, false), "{name}");
            let back = last.request.unwrap();
            assert_eq!(std::mem::discriminant(&back), kind, "{name}");
            bed.expect_none(token);
            bed.cancel(key);
            assert_eq!(bed.in_flight(), 0, "{name}");
        }
    });
}

fn cancel(target: ringloop::embed::Key) -> Request {
    Request::Cancel(Cancel { target })
}

#[test]
fn cancel_operation_reports_if_it_found_its_target() {
    on_both(|bed| {
        let (ours, _peer) = tcp_pair();
        let (key, token) = bed.submit(recv(ours.as_raw_fd(), 16));
        bed.expect_none(token);
        assert_eq!(bed.run(cancel(key)).result, 0);
        assert_eq!(bed.expect(token).result, -libc::ECANCELED);
        assert_eq!(bed.run(cancel(key)).result, -libc::ENOENT);
        // Submitted in one turn with its target.
        let (key, token) = bed.submit(recv(ours.as_raw_fd(), 16));
        let (_, cancelled) = bed.submit(cancel(key));
        assert_eq!(bed.expect(cancelled).result, 0);
        assert_eq!(bed.expect(token).result, -libc::ECANCELED);
        assert_eq!(bed.in_flight(), 0);
    });
}

#[test]
fn cancel_operation_reaches_a_level_poll_between_two_completions() {
    on_both(|bed| {
        let (ours, _peer) = tcp_pair();
        let (key, token) = bed.submit(poll(ours.as_raw_fd(), Interest::WRITE, true));
        assert!(bed.expect(token).more);
        let answer = bed.run(cancel(key));
        assert_eq!(answer.result, 0);
        while bed.expect(token).more {}
        assert_eq!(bed.in_flight(), 0);
        bed.expect_none(token);
    });
}

#[test]
fn cancel_operation_of_what_is_complete_finds_nothing() {
    on_both(|bed| {
        let (key, token) = bed.submit(Request::Nop(Nop));
        let (_, cancelled) = bed.submit(cancel(key));
        assert_eq!(bed.expect(token).result, 0);
        assert_eq!(bed.expect(cancelled).result, -libc::ENOENT);
        assert_eq!(bed.in_flight(), 0);
    });
}

#[test]
fn operations_on_a_descriptor_that_is_not_open_are_ebadf() {
    on_both(|bed| {
        for fd in [-1, i32::MAX] {
            let addr = SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
            let one = || vec![SendBuf::from(b"x".to_vec())];
            let requests = vec![
                poll(fd, Interest::READ, false),
                poll(fd, Interest::READ, true),
                Request::Accept(Accept { fd, multi: false }),
                Request::Accept(Accept { fd, multi: true }),
                Request::Connect(Connect::new(fd, addr.clone())),
                recv(fd, 16),
                Request::RecvMulti(RecvMulti::new(fd)),
                Request::RecvMsg(RecvMsg::new(fd, RecvBuf::with_capacity(16))),
                send(fd, b"x"),
                Request::SendMsg(SendMsg::new(fd, one())),
                Request::SendDatagram(SendDatagram::new(fd, b"x".to_vec().into())),
                Request::SendDatagram(SendDatagram::to(fd, b"x".to_vec().into(), addr.clone())),
                read(fd, None),
                Request::Write(Write { fd, buf: SendBuf::from(b"x".to_vec()), offset: None }),
                Request::Close(Close { fd }),
            ];
            for request in requests {
                let name = format!("{request:?}");
                let completion = bed.run(request);
                assert_eq!(completion.result, -libc::EBADF, "{name}");
                assert!(completion.request.is_some(), "{name}");
            }
        }
    });
}

#[test]
fn two_operations_on_one_descriptor_complete_apart() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (_, receive) = bed.submit(recv(fd, 16));
        bed.expect_none(receive);
        assert_eq!(bed.run(send(fd, b"ping")).result, 4);
        assert_eq!(read_exact(&mut peer, 4), b"ping");
        bed.expect_none(receive);
        write_all(&mut peer, b"pong");
        assert_eq!(recv_of(bed.expect(receive)), (4, b"pong".to_vec()));
    });
}

/// A descriptor that never becomes ready must not keep the loop spinning.
#[test]
fn idle_registered_descriptor_lets_the_wait_last() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        write_all(&mut peer, b"one");
        let (_, token) = bed.submit(recv(ours.as_raw_fd(), 16));
        bed.expect(token);
        // Readable again, without a waiting operation.
        write_all(&mut peer, b"two");
        bed.assert_sleeps();
        assert_eq!(bed.recv(ours.as_raw_fd(), 16), (3, b"two".to_vec()));
    });
}

#[test]
fn owned_descriptor_may_be_closed_by_its_owner_after_a_release() {
    on_both(|bed| {
        for round in 0..20_u8 {
            let (ours, mut peer) = tcp_pair();
            let fd = OwnedFd::from(ours);
            let (_, token) = bed.submit(recv(fd.as_raw_fd(), 8));
            bed.expect_none(token);
            write_all(&mut peer, &[round]);
            assert_eq!(recv_of(bed.expect(token)), (1, vec![round]));
            bed.release(&fd);
        }
    });
}

/// Events of one wait may be taken a few at a time, with waits in between.
#[test]
fn events_taken_one_a_wait_reach_every_descriptor() {
    on_both(|bed: &mut Bed| {
        let pairs: Vec<_> = (0..50).map(|_| tcp_pair()).collect();
        let tokens: Vec<_> = pairs
            .iter()
            .map(|(ours, _)| bed.submit(poll(ours.as_raw_fd(), Interest::WRITE, true)))
            .collect();
        let mut seen = vec![0_u32; tokens.len()];
        for _ in 0..tokens.len() * 10 {
            bed.engine.park(Some(Duration::ZERO)).unwrap();
            if let Some(event) = bed.engine.next_event() {
                let at = tokens.iter().position(|(_, t)| *t == event.token).unwrap();
                seen[at] += 1;
            }
        }
        let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
        assert!(*least >= 8, "unfair: {least}..{most}");
        for (key, _) in &tokens {
            bed.cancel(*key);
        }
        // Events queued before their last completion are not delivered after it.
        bed.drain();
        bed.take_all();
        bed.settle();
        assert!(bed.take_all().is_empty());
    });
}
