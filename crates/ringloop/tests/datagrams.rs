//! The multishot receive of messages, with the same results on both drivers: order, sources, GSO
//! batches, errors, an exhausted pool, and random sequences.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringloop::buf::RecvBuf;
use ringloop::embed::limits;
use ringloop::embed::op::{RecvMsg, RecvMsgMulti, RecvMulti, Request};
use ringloop::embed::sys::address::SockAddr;
use ringloop::embed::sys::datagram::{Control, HEAD_LEN, Message, Outgoing, set_gro};
use ringloop::embed::sys::fd::AsRawFd;
use ringloop::embed::sys::libc;
use ringloop::embed::{Completion, Key, Token};
use ringloop_testing::engine::{Bed, on_both, tcp_pair, write_all};
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

const POOL: usize = limits::DATAGRAM_POOL_BUFFERS as usize;

/// One message: its datagrams, its source's port, whether it was truncated.
type Seen = (Vec<Vec<u8>>, Option<u16>, bool);

fn udp() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn receive(fd: &impl AsRawFd) -> Request {
    Request::RecvMsgMulti(RecvMsgMulti::new(fd.as_raw_fd(), Control::Wanted))
}

/// Parses a completion's message and recycles its buffer.
fn message_of(bed: &mut Bed, mut completion: Completion) -> Seen {
    assert!(completion.more, "{completion:?}");
    assert!(completion.result >= HEAD_LEN as i32, "{completion:?}");
    let bytes = bed.take_bytes(&mut completion);
    let message = Message::parse(&bytes).unwrap();
    let datagrams = message.datagrams().map(<[u8]>::to_vec).collect();
    let port = message.source.to_std().map(|address| address.port());
    (datagrams, port, message.is_cut())
}

fn next(bed: &mut Bed, token: Token) -> Seen {
    let completion = bed.expect(token);
    message_of(bed, completion)
}

fn end(bed: &mut Bed, key: Key, token: Token) {
    bed.cancel(key);
    let last = bed.expect(token);
    assert_eq!((last.result, last.more), (-libc::ECANCELED, false));
    assert!(matches!(last.request, Some(Request::RecvMsgMulti(_))));
    assert_eq!(bed.in_flight(), 0);
}

#[test]
fn each_datagram_comes_in_order_with_its_source_until_it_is_cancelled() {
    on_both(|bed| {
        let ours = udp();
        let peers = [udp(), udp()];
        let (key, token) = bed.submit(receive(&ours));
        bed.expect_none(token);
        // Empty ones are datagrams too, also several in a row, which end a receive on the ring.
        let lens = [5, 0, 0, 1000, 0, 1, 60_000, 0];
        for round in 0..40_u8 {
            for (number, len) in lens.into_iter().enumerate() {
                let peer = &peers[number % 2];
                let bytes = vec![round; len];
                peer.send_to(&bytes, ours.local_addr().unwrap()).unwrap();
                let port = Some(peer.local_addr().unwrap().port());
                if round % 2 == 0 {
                    assert_eq!(next(bed, token), (vec![bytes], port, false));
                }
            }
            if round % 2 == 1 {
                for (number, len) in lens.into_iter().enumerate() {
                    let port = Some(peers[number % 2].local_addr().unwrap().port());
                    assert_eq!(next(bed, token), (vec![vec![round; len]], port, false));
                }
            }
        }
        end(bed, key, token);
        peers[0].send_to(b"late", ours.local_addr().unwrap()).unwrap();
        bed.expect_none(token);
        bed.release(&ours);
    });
}

#[test]
fn an_error_that_waited_at_the_socket_ends_it_and_it_goes_on_when_submitted_again() {
    on_both(|bed| {
        let (ours, peer) = (udp(), udp());
        ours.connect(peer.local_addr().unwrap()).unwrap();
        peer.connect(ours.local_addr().unwrap()).unwrap();
        let nobody = peer.local_addr().unwrap();
        drop(peer);
        ours.send(b"to nobody").unwrap();
        let (_, token) = bed.submit(receive(&ours));
        let refused = bed.expect(token);
        assert_eq!((refused.result, refused.more), (-libc::ECONNREFUSED, false));
        assert_eq!(bed.in_flight(), 0);
        let (key, token) = bed.submit(refused.request.unwrap());
        let peer = UdpSocket::bind(nobody).unwrap();
        peer.send_to(b"here again", ours.local_addr().unwrap()).unwrap();
        assert_eq!(next(bed, token).0, [b"here again"]);
        end(bed, key, token);
        bed.release(&ours);
    });
}

#[test]
fn a_gso_batch_comes_as_one_message() {
    on_both(|bed| {
        let (ours, peer) = (udp(), udp());
        set_gro(ours.as_raw_fd(), true).unwrap();
        let (key, token) = bed.submit(receive(&ours));
        let to = SockAddr::from(ours.local_addr().unwrap());
        let mut train: Vec<Vec<u8>> = (0..40).map(|n| vec![n; 1400]).collect();
        train.push(vec![99; 3]);
        let batch = train.iter().map(|bytes| (&**bytes, Some(&to)));
        let sent = Outgoing::default().send(peer.as_raw_fd(), batch, true);
        assert_eq!(sent.unwrap(), train.len());
        let port = Some(peer.local_addr().unwrap().port());
        assert_eq!(next(bed, token), (train, port, false));
        end(bed, key, token);
        bed.release(&ours);
    });
}

#[test]
fn a_datagram_longer_than_a_buffer_is_reported_as_truncated() {
    on_both(|bed| {
        let (ours, peer) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (key, token) = bed.submit(receive(&ours));
        peer.send(&vec![7; 70_000]).unwrap();
        peer.send(b"whole").unwrap();
        let (datagrams, source, is_cut) = next(bed, token);
        assert_eq!((datagrams[0].len(), source, is_cut), (65_536, None, true));
        assert_eq!(next(bed, token), (vec![b"whole".to_vec()], None, false));
        end(bed, key, token);
        bed.release(&ours);
    });
}

#[test]
fn recvmsg_tells_where_a_datagram_came_from_and_cuts_a_long_one() {
    on_both(|bed| {
        let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
        ours.set_nonblocking(true).unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let receive = || {
            let buf = RecvBuf::with_capacity(4);
            Request::RecvMsg(RecvMsg::new(ours.as_raw_fd(), buf))
        };
        let (_, token) = bed.submit(receive());
        bed.expect_none(token);
        for bytes in [&b"abc"[..], b"abcdef"] {
            peer.send_to(bytes, ours.local_addr().unwrap()).unwrap();
        }
        let first = bed.expect(token);
        let second = bed.run(receive());
        for (completion, bytes) in [(first, b"abc".to_vec()), (second, b"abcd".to_vec())] {
            assert_eq!(completion.result, bytes.len() as i32);
            let Some(Request::RecvMsg(received)) = completion.request else {
                panic!("no request");
            };
            let (buf, source) = received.into_parts();
            assert_eq!(buf.into_vec(), bytes);
            assert_eq!(source.to_std(), Some(peer.local_addr().unwrap()));
        }
    });
}

/// Completions of `token` until every buffer of the pool is taken.
fn exhaust(bed: &mut Bed, token: Token, ours: &UdpSocket, peer: &UdpSocket) -> Vec<Completion> {
    for number in 0..POOL as u8 + 10 {
        peer.send_to(&[number], ours.local_addr().unwrap()).unwrap();
    }
    let held: Vec<_> = (0..POOL).map(|_| bed.expect(token)).collect();
    bed.expect_none(token);
    held
}

#[test]
fn without_a_free_buffer_datagrams_wait_and_come_in_order_when_there_is_one() {
    on_both(|bed| {
        let (ours, peer) = (udp(), udp());
        let (key, token) = bed.submit(receive(&ours));
        let held = exhaust(bed, token, &ours, &peer);
        // A loop that waits for buffers sleeps.
        bed.assert_sleeps();
        // Streams have a pool of their own.
        let (stream, mut stream_peer) = tcp_pair();
        let fd = stream.as_raw_fd();
        let (stream_key, stream_token) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
        write_all(&mut stream_peer, b"stream");
        let mut completion = bed.expect(stream_token);
        assert_eq!(bed.take_bytes(&mut completion), b"stream");
        bed.forget(stream_key);
        for (number, completion) in held.into_iter().enumerate() {
            assert_eq!(message_of(bed, completion).0, [[number as u8]]);
        }
        for number in POOL as u8..POOL as u8 + 10 {
            assert_eq!(next(bed, token).0, [[number]]);
        }
        bed.forget(key);
        bed.drain();
        bed.release(&ours);
        bed.release(&stream);
    });
}

#[test]
fn a_starved_receive_can_be_given_up_and_another_goes_on() {
    on_both(|bed| {
        let (ours, peer, other) = (udp(), udp(), udp());
        let (key, token) = bed.submit(receive(&ours));
        let held = exhaust(bed, token, &ours, &peer);
        let (other_key, other_token) = bed.submit(receive(&other));
        peer.send_to(b"other", other.local_addr().unwrap()).unwrap();
        bed.expect_none(other_token);
        bed.forget(key);
        for mut completion in held {
            bed.take_bytes(&mut completion);
        }
        assert_eq!(next(bed, other_token).0, [b"other"]);
        bed.expect_none(token);
        end(bed, other_key, other_token);
        bed.release(&ours);
        bed.release(&other);
    });
}

#[test]
fn what_arrived_and_was_not_taken_is_given_back_when_it_is_forgotten() {
    on_both(|bed| {
        let (ours, peer) = (udp(), udp());
        for _ in 0..20 {
            let (key, token) = bed.submit(receive(&ours));
            for _ in 0..POOL {
                peer.send_to(b"x", ours.local_addr().unwrap()).unwrap();
            }
            // Some were received by now, and one of them is taken.
            bed.engine.park(Some(Duration::ZERO)).unwrap();
            bed.engine.park(Some(Duration::ZERO)).unwrap();
            if let Some(event) = bed.engine.next_event() {
                assert_eq!(event.token, token);
                message_of(bed, event.completion);
            }
            bed.forget(key);
            bed.drain();
            assert!(bed.take_all().is_empty());
            // The rest is still in the socket.
            let (key, token) = bed.submit(receive(&ours));
            bed.settle();
            while let Some(completion) = bed.take(token) {
                message_of(bed, completion);
                bed.settle();
            }
            end(bed, key, token);
        }
        bed.release(&ours);
    });
}

/// A step of a random sequence; the first number picks an endpoint.
#[derive(Debug, Clone)]
enum Step {
    Send(usize, usize),
    Turn,
    GiveBack(usize),
    Restart(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, 1..12_usize).prop_map(|(at, count)| Step::Send(at, count)),
        4 => Just(Step::Turn),
        2 => (0..40_usize).prop_map(Step::GiveBack),
        1 => (0..3_usize).prop_map(Step::Restart),
    ]
}

/// An endpoint that is sent numbers and must receive each once, in order.
struct Endpoint {
    socket: UdpSocket,
    armed: (Key, Token),
    sent: u32,
    seen: u32,
}

struct World<'a> {
    bed: &'a mut Bed,
    peer: UdpSocket,
    endpoints: Vec<Endpoint>,
    /// Completions whose buffers are still held.
    held: VecDeque<Completion>,
}

impl<'a> World<'a> {
    fn new(bed: &'a mut Bed) -> Self {
        let endpoints = (0..3)
            .map(|_| {
                let socket = udp();
                let armed = bed.submit(receive(&socket));
                Endpoint { socket, armed, sent: 0, seen: 0 }
            })
            .collect();
        Self { bed, peer: udp(), endpoints, held: VecDeque::new() }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Send(at, count) => {
                let endpoint = &mut self.endpoints[at];
                let to = endpoint.socket.local_addr().unwrap();
                // No more than a receive buffer holds.
                for _ in 0..count.min(100 - (endpoint.sent - endpoint.seen) as usize) {
                    self.peer.send_to(&endpoint.sent.to_ne_bytes(), to).unwrap();
                    endpoint.sent += 1;
                }
            }
            Step::Turn => self.turn(),
            Step::GiveBack(count) => {
                for mut completion in self.held.drain(..count.min(self.held.len())) {
                    self.bed.take_bytes(&mut completion);
                }
            }
            Step::Restart(at) => {
                // Datagrams it has received are not lost: they come before the end.
                self.bed.cancel(self.endpoints[at].armed.0);
                while self.endpoints[at].armed.1 != Token(u64::MAX) {
                    self.turn();
                }
                let endpoint = &mut self.endpoints[at];
                endpoint.armed = self.bed.submit(receive(&endpoint.socket));
            }
        }
    }

    fn turn(&mut self) {
        self.bed.turn(Duration::from_millis(1));
        for event in self.bed.take_all() {
            let known = |endpoint: &&mut Endpoint| endpoint.armed.1 == event.token;
            let endpoint = self.endpoints.iter_mut().find(known).unwrap();
            let completion = event.completion;
            if !completion.more {
                assert_eq!(completion.result, -libc::ECANCELED);
                endpoint.armed.1 = Token(u64::MAX);
                continue;
            }
            let message = Message::parse(completion.buffer.as_ref().unwrap()).unwrap();
            let number = u32::from_ne_bytes(message.payload.try_into().unwrap());
            assert_eq!(number, endpoint.seen);
            endpoint.seen += 1;
            self.held.push_back(completion);
            assert!(self.held.len() <= POOL);
        }
    }

    fn finish(mut self) {
        for _ in 0..200 {
            if self.endpoints.iter().all(|one| one.seen == one.sent) {
                break;
            }
            self.run(&Step::GiveBack(POOL));
            self.turn();
        }
        self.run(&Step::GiveBack(POOL));
        for endpoint in &self.endpoints {
            assert_eq!(endpoint.seen, endpoint.sent);
            self.bed.forget(endpoint.armed.0);
        }
        self.bed.drain();
        for endpoint in &self.endpoints {
            self.bed.release(&endpoint.socket);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn datagrams_arrive_once_and_in_order_whatever_happens(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        on_both(|bed| {
            let mut world = World::new(bed);
            for step in &steps {
                world.run(step);
            }
            world.finish();
        });
    }
}
