//! Receives and sends on streams, with the same results asserted on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::buf::SendBuf;
use ringloop::embed::limits;
use ringloop::embed::op::{RecvMulti, Request, Send, SendMsg};
use ringloop_testing::engine::{
    on_both, read_exact, recv, recv_of, reset, send, tcp_pair, write_all,
};
use std::net::Shutdown;
use std::os::fd::AsRawFd;

#[test]
fn recv_takes_what_is_there_and_then_the_end() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        write_all(&mut peer, b"hello");
        assert_eq!(bed.recv(fd, 3), (3, b"hel".to_vec()));
        assert_eq!(bed.recv(fd, 64), (2, b"lo".to_vec()));
        let (_, token) = bed.submit(recv(fd, 64));
        bed.expect_none(token);
        write_all(&mut peer, b"later");
        assert_eq!(recv_of(bed.expect(token)), (5, b"later".to_vec()));
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(bed.recv(fd, 64), (0, vec![]));
        assert_eq!(bed.recv(fd, 64), (0, vec![]));
    });
}

#[test]
fn recv_after_a_reset_is_econnreset() {
    on_both(|bed| {
        let (ours, peer) = tcp_pair();
        let (_, token) = bed.submit(recv(ours.as_raw_fd(), 64));
        bed.expect_none(token);
        reset(peer);
        assert_eq!(recv_of(bed.expect(token)), (-libc::ECONNRESET, vec![]));
    });
}

/// The kernel's length is 32 bits wide; a buffer may be larger.
#[test]
fn recv_into_more_than_4_gib_receives() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        write_all(&mut peer, b"hello");
        let (count, bytes) = bed.recv(ours.as_raw_fd(), 1 << 32);
        assert_eq!((count, &bytes[..]), (5, &b"hello"[..]));
    });
}

#[test]
fn recv_multi_delivers_the_stream_in_order_then_its_end() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (_, token) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let to_send = sent.clone();
        let writer = std::thread::spawn(move || {
            write_all(&mut peer, &to_send);
            peer.shutdown(Shutdown::Write).unwrap();
            peer
        });
        let mut received = Vec::new();
        loop {
            let mut completion = bed.expect(token);
            if completion.result == 0 {
                assert!(!completion.more && completion.buffer.is_none());
                assert!(matches!(completion.request, Some(Request::RecvMulti(_))));
                break;
            }
            assert!(completion.result > 0 && completion.more, "{completion:?}");
            assert!(completion.request.is_none());
            assert!(completion.result <= limits::POOL_BUFFER_BYTES as i32);
            received.extend(bed.take_bytes(&mut completion));
        }
        assert!(received == sent, "{} of {}", received.len(), sent.len());
        assert_eq!(bed.in_flight(), 0);
        drop(writer.join().unwrap());
    });
}

#[test]
fn recv_multi_ends_with_the_errno_of_a_reset() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (_, token) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
        write_all(&mut peer, b"hello");
        let mut first = bed.expect(token);
        assert_eq!(bed.take_bytes(&mut first), b"hello");
        reset(peer);
        let last = bed.expect(token);
        assert_eq!((last.result, last.more), (-libc::ECONNRESET, false));
        assert!(last.buffer.is_none());
    });
}

#[test]
fn send_counts_what_went_out_and_gives_the_buffer_back() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let completion = bed.run(send(ours.as_raw_fd(), b"hello"));
        assert_eq!(completion.result, 5);
        let Some(Request::Send(sent)) = completion.request else {
            panic!("{:?}", completion.request);
        };
        assert_eq!(sent.buf.as_slice(), b"hello");
        assert_eq!(read_exact(&mut peer, 5), b"hello");
    });
}

#[test]
fn large_sends_one_after_the_other_arrive_whole() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let data: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 253) as u8).collect();
        let count = data.len();
        let reader = std::thread::spawn(move || read_exact(&mut peer, count));
        let mut buf = SendBuf::from(data.clone());
        while !buf.is_empty() {
            let fd = ours.as_raw_fd();
            let completion = bed.run(Request::Send(Send { fd, buf }));
            assert!(completion.result > 0, "{completion:?}");
            let Some(Request::Send(sent)) = completion.request else {
                panic!("no request");
            };
            buf = sent.buf;
            buf.advance(completion.result as usize);
        }
        assert!(reader.join().unwrap() == data);
    });
}

#[test]
fn send_to_a_closed_peer_is_epipe_and_no_signal() {
    on_both(|bed| {
        let (ours, peer) = tcp_pair();
        reset(peer);
        assert_eq!(bed.recv(ours.as_raw_fd(), 1).0, -libc::ECONNRESET, "the reset has arrived");
        assert_eq!(bed.run(send(ours.as_raw_fd(), b"x")).result, -libc::EPIPE);
    });
}

#[test]
fn sendmsg_gathers_in_order_and_gives_every_buffer_back() {
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let mut second = SendBuf::from(b"__two ".to_vec());
        second.advance(2);
        let bufs = vec![b"one ".to_vec().into(), second, b"three".to_vec().into()];
        let completion = bed.run(Request::SendMsg(SendMsg::new(ours.as_raw_fd(), bufs)));
        assert_eq!(completion.result, 13);
        assert_eq!(read_exact(&mut peer, 13), b"one two three");
        let Some(Request::SendMsg(sent)) = completion.request else {
            panic!("no request");
        };
        let bufs: Vec<_> = sent.into_bufs();
        assert_eq!(bufs.len(), 3);
        assert_eq!(bufs[1].as_slice(), b"two ");
        // More buffers than one call takes: the rest stays unsent.
        let many = (0..limits::SEND_VECTOR_MAX + 10).map(|n| vec![n as u8].into()).collect();
        let completion = bed.run(Request::SendMsg(SendMsg::new(ours.as_raw_fd(), many)));
        assert_eq!(completion.result, limits::SEND_VECTOR_MAX as i32);
    });
}
