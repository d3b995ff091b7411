//! Random sequences of an embedder's calls, against a small model, on both drivers.
//!
//! A few connections; on each at most one receive (multishot or single) and one send at a time. The
//! model knows which bytes each peer has sent and read: a stream must arrive whole, once and in order,
//! however its receives are cancelled, starved, forgotten or re-armed. A failure prints the shortest
//! sequence that shows it; `PROPTEST_CASES` sets how many are tried.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringloop::buf::RecvBuf;
use ringloop::embed::limits;
use ringloop::embed::op::{Poll, Recv, RecvMulti, Request, Send, Timeout};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::{Event, Key, PoolBuffer, Token};
use ringloop_testing::engine::{Bed, Foreign, alone, open_descriptors, tcp_pair};
use ringloop_testing::{PATIENCE, drivers};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 3;

/// A step of a sequence.
#[derive(Debug, Clone)]
enum Step {
    /// Start a multishot receive, if none runs.
    RecvMulti(usize),
    /// Start a receive into a buffer of this size, if none runs.
    Recv(usize, usize),
    /// Cancel the receive.
    CancelRecv(usize),
    /// The peer sends this many bytes.
    Feed(usize, usize),
    /// The peer will send no more.
    End(usize),
    /// Send this many bytes, if no send runs.
    Send(usize, usize),
    /// Cancel the send.
    CancelSend(usize),
    /// The peer reads at most this many bytes.
    PeerReads(usize, usize),
    /// Start a level poll and forget it after some turns, or before any.
    PollAndForget(usize, u8),
    /// Forget what runs on a connection, close it, and reuse its number for another.
    Replace(usize),
    /// This many one-byte messages, whose buffers are held.
    Exhaust(usize, usize),
    /// Time-outs that are forgotten.
    Timeouts(u8),
    /// Keep received buffers from now on, or return them.
    Hold(bool),
    /// A turn that takes at most this many events.
    Turn(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..CONNECTIONS;
    let size = prop_oneof![1..100_usize, 1..100_000_usize];
    prop_oneof![
        4 => at.clone().prop_map(Step::RecvMulti),
        3 => (at.clone(), size.clone()).prop_map(|(at, size)| Step::Recv(at, size)),
        3 => at.clone().prop_map(Step::CancelRecv),
        6 => (at.clone(), size.clone()).prop_map(|(at, size)| Step::Feed(at, size)),
        1 => at.clone().prop_map(Step::End),
        4 => (at.clone(), size.clone()).prop_map(|(at, size)| Step::Send(at, size)),
        2 => at.clone().prop_map(Step::CancelSend),
        3 => (at.clone(), size).prop_map(|(at, size)| Step::PeerReads(at, size)),
        1 => (at.clone(), 0..3_u8).prop_map(|(at, turns)| Step::PollAndForget(at, turns)),
        2 => at.clone().prop_map(Step::Replace),
        1 => (at.clone(), 1..100_usize).prop_map(|(at, count)| Step::Exhaust(at, count)),
        1 => (1..50_u8).prop_map(Step::Timeouts),
        1 => any::<bool>().prop_map(Step::Hold),
        6 => (0..20_usize).prop_map(Step::Turn),
    ]
}

/// The byte at an offset of a stream; neighbours differ, and so do offsets a buffer apart.
fn byte_at(place: usize) -> u8 {
    (place % 251) as u8 ^ (place / 251) as u8
}

fn bytes(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(byte_at).collect()
}

fn assert_stream(from: usize, received: &[u8]) {
    let wrong = received.iter().enumerate().find(|(offset, byte)| **byte != byte_at(from + offset));
    assert!(wrong.is_none(), "wrong byte at {from} + {wrong:?}");
}

/// One connection, and its state in the model.
struct Connection {
    ours: TcpStream,
    peer: TcpStream,
    /// Bytes the peer has sent, and bytes that have arrived.
    fed_count: usize,
    arrived_count: usize,
    fed_end: bool,
    seen_end: bool,
    receive: Option<(Key, Token)>,
    /// Bytes that sends have reported as sent, and bytes the peer has read.
    sent_count: usize,
    read_count: usize,
    send: Option<(Key, Token, usize, Foreign)>,
}

impl Connection {
    fn new() -> Self {
        let (ours, peer) = tcp_pair();
        peer.set_nonblocking(true).unwrap();
        Self {
            ours,
            peer,
            fed_count: 0,
            arrived_count: 0,
            fed_end: false,
            seen_end: false,
            receive: None,
            sent_count: 0,
            read_count: 0,
            send: None,
        }
    }
}

struct Model<'a> {
    bed: &'a mut Bed,
    connections: Vec<Connection>,
    hold: bool,
    held: Vec<PoolBuffer>,
    /// Tokens that were forgotten: no completion may come for them.
    forgotten: Vec<Token>,
    /// The buffers of forgotten sends.
    given_up: Vec<Foreign>,
}

impl<'a> Model<'a> {
    fn new(bed: &'a mut Bed) -> Self {
        Self {
            bed,
            connections: (0..CONNECTIONS).map(|_| Connection::new()).collect(),
            hold: false,
            held: Vec::new(),
            forgotten: Vec::new(),
            given_up: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::RecvMulti(at) => {
                let fd = self.connections[at].ours.as_raw_fd();
                self.receive(at, Request::RecvMulti(RecvMulti::new(fd)));
            }
            Step::Recv(at, size) => {
                let fd = self.connections[at].ours.as_raw_fd();
                let buf = RecvBuf::with_capacity(size);
                self.receive(at, Request::Recv(Recv { fd, buf }));
            }
            Step::CancelRecv(at) => {
                if let Some((key, _)) = self.connections[at].receive {
                    self.bed.cancel(key);
                }
            }
            Step::Feed(at, size) => self.feed(at, size),
            Step::End(at) => {
                let connection = &mut self.connections[at];
                connection.fed_end = true;
                connection.peer.shutdown(Shutdown::Write).unwrap();
            }
            Step::Send(at, size) => self.send(at, size),
            Step::CancelSend(at) => {
                if let Some((key, ..)) = self.connections[at].send {
                    self.bed.cancel(key);
                }
            }
            Step::PeerReads(at, size) => self.peer_reads(at, size),
            Step::PollAndForget(at, turns) => self.poll_and_forget(at, turns),
            Step::Replace(at) => self.replace(at),
            Step::Exhaust(at, count) => self.exhaust(at, count),
            Step::Timeouts(count) => {
                for ms in 0..count {
                    let after = Duration::from_millis(u64::from(ms % 3) * 1000);
                    let (key, token) = self.bed.submit(Request::Timeout(Timeout::after(after)));
                    self.bed.forget(key);
                    self.forgotten.push(token);
                }
            }
            Step::Hold(hold) => {
                self.hold = hold;
                if !hold {
                    self.give_back();
                }
            }
            Step::Turn(events) => self.turn(Duration::ZERO, events),
        }
    }

    fn receive(&mut self, at: usize, request: Request) {
        let connection = &mut self.connections[at];
        if connection.receive.is_none() && !connection.seen_end {
            connection.receive = Some(self.bed.submit(request));
        }
    }

    fn feed(&mut self, at: usize, size: usize) {
        let connection = &mut self.connections[at];
        if connection.fed_end {
            return;
        }
        match connection.peer.write(&bytes(connection.fed_count, size)) {
            Ok(count) => connection.fed_count += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    fn send(&mut self, at: usize, size: usize) {
        let connection = &mut self.connections[at];
        if connection.send.is_some() {
            return;
        }
        let foreign = Foreign::holding(&bytes(connection.sent_count, size));
        let buf = foreign.send_buf();
        let fd = connection.ours.as_raw_fd();
        let (key, token) = self.bed.submit(Request::Send(Send { fd, buf }));
        connection.send = Some((key, token, size, foreign));
    }

    fn peer_reads(&mut self, at: usize, size: usize) {
        let connection = &mut self.connections[at];
        let mut read = vec![0; size];
        match connection.peer.read(&mut read) {
            Ok(count) => {
                assert_stream(connection.read_count, &read[..count]);
                connection.read_count += count;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    fn poll_and_forget(&mut self, at: usize, turns: u8) {
        let fd = self.connections[at].ours.as_raw_fd();
        let (key, token) =
            self.bed.submit(Request::Poll(Poll { fd, interest: Interest::BOTH, level: true }));
        for _ in 0..turns {
            self.turn(Duration::ZERO, 3);
        }
        self.bed.forget(key);
        self.forgotten.push(token);
    }

    /// Cancels everything on a connection, closes it, and replaces it with a new one, which the
    /// kernel gives the same number.
    fn replace(&mut self, at: usize) {
        let new = Connection::new();
        let old = std::mem::replace(&mut self.connections[at], new);
        if let Some((key, token)) = old.receive {
            self.bed.forget(key);
            self.forgotten.push(token);
        }
        if let Some((key, token, _, foreign)) = old.send {
            self.bed.forget(key);
            self.forgotten.push(token);
            self.given_up.push(foreign);
        }
        self.bed.release(&old.ours);
        // The numbers of the old one for the new one.
        let new = &mut self.connections[at];
        for (from, to) in [(&new.ours, &old.ours), (&new.peer, &old.peer)] {
            // SAFETY: no pointer is passed; both are open, and `to` is closed by this.
            let moved = unsafe { libc::dup3(from.as_raw_fd(), to.as_raw_fd(), libc::O_CLOEXEC) };
            assert_eq!(moved, to.as_raw_fd());
        }
        new.ours = old.ours;
        new.peer = old.peer;
    }

    /// Takes the pool, or much of it: many small messages whose buffers are held.
    fn exhaust(&mut self, at: usize, count: usize) {
        self.hold = true;
        self.step(&Step::RecvMulti(at));
        for _ in 0..count {
            self.feed(at, 1);
            self.turn(Duration::ZERO, 4);
        }
    }

    fn turn(&mut self, timeout: Duration, events: usize) {
        self.bed.engine.park(Some(timeout)).unwrap();
        for _ in 0..events {
            let Some(event) = self.bed.engine.next_event() else {
                break;
            };
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        let receives = |c: &Connection| c.receive.is_some_and(|(_, token)| token == event.token);
        if let Some(at) = self.connections.iter().position(receives) {
            return self.received(at, event);
        }
        let sends =
            |c: &Connection| matches!(&c.send, Some((_, token, ..)) if *token == event.token);
        if let Some(at) = self.connections.iter().position(sends) {
            return self.sent(at, event);
        }
        let forgotten = self.forgotten.contains(&event.token);
        // Only a level poll has events before it is forgotten.
        let poll = event.completion.more && event.completion.result > 0;
        assert!(poll && !forgotten, "for nobody: {event:?}");
    }

    fn received(&mut self, at: usize, event: Event) {
        let connection = &mut self.connections[at];
        let mut completion = event.completion;
        let result = completion.result;
        assert!(result >= 0 || result == -libc::ECANCELED, "{completion:?}");
        let count = usize::try_from(result).unwrap_or(0);
        match (completion.buffer.take(), &completion.request) {
            (Some(received), _) => {
                assert_eq!(received.len(), count);
                assert_stream(connection.arrived_count, &received);
                self.held.push(received);
            }
            (None, Some(Request::Recv(recv))) => {
                assert_eq!(recv.buf.filled().len(), count);
                assert_stream(connection.arrived_count, recv.buf.filled());
            }
            (None, _) => assert!(count == 0),
        }
        connection.arrived_count += count;
        assert!(connection.arrived_count <= connection.fed_count);
        if result == 0 {
            assert!(connection.fed_end, "an end that was not sent");
            assert_eq!(connection.arrived_count, connection.fed_count);
            connection.seen_end = true;
        }
        assert_eq!(completion.more, completion.request.is_none());
        if !completion.more {
            connection.receive = None;
        }
        if !self.hold {
            self.give_back();
        }
    }

    fn sent(&mut self, at: usize, event: Event) {
        let connection = &mut self.connections[at];
        let Some((_, _, size, foreign)) = connection.send.take() else {
            return;
        };
        let completion = event.completion;
        assert!(!completion.more);
        assert_eq!(foreign.releases(), 0, "released while it was in flight");
        drop(completion.request);
        foreign.assert_released_untouched();
        match completion.result {
            count @ 0.. => {
                assert!(count as usize <= size);
                connection.sent_count += count as usize;
            }
            error => assert_eq!(error, -libc::ECANCELED),
        }
    }

    fn give_back(&mut self) {
        assert!(self.held.len() <= usize::from(limits::POOL_BUFFERS));
        self.held.clear();
    }

    /// Runs everything to its end: every byte arrives, every operation completes.
    fn finish(mut self) {
        self.hold = false;
        self.give_back();
        let started = Instant::now();
        loop {
            for at in 0..CONNECTIONS {
                if !self.connections[at].fed_end {
                    self.step(&Step::End(at));
                }
                self.step(&Step::RecvMulti(at));
                self.step(&Step::PeerReads(at, 1 << 20));
            }
            let done = |c: &Connection| {
                let sent = c.send.is_none() && c.read_count == c.sent_count;
                c.seen_end && c.receive.is_none() && sent
            };
            if self.connections.iter().all(done) && self.bed.in_flight() == 0 {
                break;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "{} in flight; arrived of fed: {:?}",
                self.bed.in_flight(),
                self.connections
                    .iter()
                    .map(|c| (c.arrived_count, c.fed_count, c.seen_end))
                    .collect::<Vec<_>>()
            );
            self.turn(Duration::from_millis(1), usize::MAX);
        }
        for foreign in &self.given_up {
            foreign.assert_released_untouched();
        }
        for connection in &self.connections {
            assert_eq!(connection.arrived_count, connection.fed_count);
            self.bed.release(&connection.ours);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        // The seeds of failures are printed; a regression gets a test of its own.
        failure_persistence: None,
        max_shrink_iters: 2_000,
        max_shrink_time: 120_000,
        ..ProptestConfig::with_cases(
            std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(64)
        )
    })]

    #[test]
    fn streams_arrive_once_and_in_order_whatever_happens(
        steps in prop::collection::vec(step(), 1..120),
        drop_early in any::<bool>(),
    ) {
        let _alone = alone();
        for choice in drivers() {
            let before = open_descriptors();
            let mut bed = Bed::new(choice);
            let mut model = Model::new(&mut bed);
            for step in &steps {
                model.step(step);
            }
            if drop_early {
                let sends = model.connections.into_iter().filter_map(|mut c| c.send.take());
                let mut given_up: Vec<_> = sends.map(|(_, _, _, foreign)| foreign).collect();
                given_up.append(&mut model.given_up);
                drop(bed);
                for foreign in given_up {
                    foreign.assert_released_untouched();
                }
            } else {
                model.finish();
                drop(bed);
            }
            assert_eq!(open_descriptors(), before, "descriptors, {choice:?}");
        }
    }
}
