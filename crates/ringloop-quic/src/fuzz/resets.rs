//! Two ends that both take `RESET_STREAM_AT`, on paths that lose, repeat and reorder packets, and
//! peers that break its rules.

use super::violations::{FINAL_SIZE, FLOW_CONTROL, FRAME_ENCODING, STREAM_LIMIT, STREAM_STATE};
use super::violations::{STREAM_WINDOW, STREAMS, frame, judged, send, stream, verdict};
use super::*;
use crate::core::{Read, Written};
use crate::error::{ConnectionError, StreamError};

/// The first bytes of each stream.
const HEAD: &[u8] = b"\x40\x54\x00";
const TRANSPORT_PARAMETER: u64 = 0x8;
const CODE: u64 = 0x52e4_a40f_a8db;

/// Faults, in per cent of the datagrams.
#[derive(Clone, Copy, Default)]
struct Faults {
    lost: usize,
    doubled: usize,
    reordered: usize,
}

struct Path {
    net: Net,
    faults: Faults,
    seed: u64,
}

impl Path {
    /// Two connected ends that do only what a test requests.
    fn new(faults: Faults, seed: u64) -> Self {
        let mut net = Net::new();
        net.connect();
        net.run(|_| {});
        for end in [CLIENT, SERVER] {
            net.ends[end].is_passive = true;
            let mut connection = net.connection(end).unwrap();
            connection.set_streams_max(Direction::Bi, 100);
            connection.set_streams_max(Direction::Uni, 100);
        }
        net.run(|_| {});
        assert!(net.connection(CLIENT).unwrap().takes_reset_stream_at());
        Self { net, faults, seed: seed * 2 + 1 }
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 20) as usize % below.max(1)
    }

    /// Delivers packets until the condition `what` holds.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Net) -> bool) {
        let mut wire = VecDeque::new();
        for _turn in 0..TURNS_MAX * 10 {
            for end in [CLIENT, SERVER] {
                self.net.ends[end].core.handle_timeouts(self.net.now);
                self.net.ends[end].serve(self.net.now);
                self.net.sent(end, &mut wire);
            }
            if is_so(&mut self.net) {
                return;
            }
            if wire.is_empty() {
                assert!(self.net.wait(), "{what}: nothing more to deliver");
                continue;
            }
            let is_late = self.random(100) < self.faults.reordered;
            let at = if is_late { self.random(wire.len()) } else { 0 };
            if self.random(100) < self.faults.doubled {
                wire.push_back(wire[at].clone());
            }
            let Some((to, bytes)) = wire.remove(at) else {
                continue;
            };
            if self.random(100) >= self.faults.lost {
                let source = self.net.ends[1 - to].address;
                self.net.ends[to].receive(self.net.now, source, &bytes);
            }
            self.net.now += Duration::from_micros(100);
        }
        panic!("{what}: not after many turns");
    }

    fn settled(&mut self) {
        self.until("acknowledged", |net| {
            [CLIENT, SERVER].into_iter().all(|end| {
                net.connection(end).unwrap().unacknowledged_streams() == 0
                    && net.ends[end].core.next_timeout() > Some(net.now + Duration::from_secs(4))
            })
        });
    }

    fn counts(&mut self, end: usize) -> [usize; 8] {
        self.net.connection(end).unwrap().reset_counts()
    }
}

/// Opens a stream with its head.
fn open(net: &mut Net, end: usize, direction: Direction) -> StreamId {
    let mut connection = net.connection(end).unwrap();
    let stream = connection.open(direction).unwrap();
    assert!(connection.keep_head(stream, HEAD.len()));
    assert_eq!(connection.write(stream, HEAD), Ok(Written::Some(HEAD.len())));
    stream
}

/// Reads what there is, and how it ended if it did.
fn read(net: &mut Net, end: usize, stream: StreamId) -> (Vec<u8>, Option<Result<(), StreamError>>) {
    let mut bytes = Vec::new();
    let mut connection = net.connection(end).unwrap();
    let end = loop {
        let read = connection.read(stream, usize::MAX, |piece| {
            bytes.extend_from_slice(&piece);
            true
        });
        match read {
            Ok(Read::Some(_)) => {}
            Ok(Read::Blocked) => break None,
            Ok(Read::End(_)) => break Some(Ok(())),
            Err(error) => break Some(Err(error)),
        }
    };
    (bytes, end)
}

#[test]
fn head_arrives_before_the_reset_whatever_the_path_does() {
    for seed in 0..60 {
        let faults = Faults { lost: 25, doubled: 10, reordered: 30 };
        let mut path = Path::new(faults, seed);
        let directions = [Direction::Bi, Direction::Uni];
        let (from, direction) = (seed as usize % 2, directions[seed as usize / 2 % 2]);
        // More than 32, so that some wait for others.
        let streams: Vec<_> = (0..50)
            .map(|index| {
                let stream = open(&mut path.net, from, direction);
                let mut connection = path.net.connection(from).unwrap();
                if index % 3 == 0 {
                    connection.write(stream, &[7; 3000]).unwrap();
                }
                assert_eq!(connection.reset(stream, CODE + index), Ok(()));
                assert_eq!(connection.reset(stream, 0), Err(StreamError::Closed));
                assert_eq!(connection.write(stream, b"x"), Err(StreamError::Closed));
                assert_eq!(connection.finish(stream), Err(StreamError::Closed));
                stream
            })
            .collect();
        let mut got: Vec<_> = streams.iter().map(|_| (Vec::new(), None)).collect();
        let mut accepted = 0;
        path.until("all are reset", |net| {
            let mut connection = net.connection(1 - from).unwrap();
            while connection.accept(direction).is_some() {
                accepted += 1;
            }
            for (&stream, (bytes, end)) in streams.iter().zip(&mut got).take(accepted) {
                if end.is_none() {
                    let (more, over) = read(net, 1 - from, stream);
                    bytes.extend(more);
                    *end = over;
                }
            }
            got.iter().all(|(_, end)| end.is_some())
        });
        for (index, (bytes, end)) in got.iter().enumerate() {
            assert_eq!(*end, Some(Err(StreamError::Reset(CODE + index as u64))), "seed {seed}");
            assert!(bytes.starts_with(HEAD), "seed {seed}, stream {index}: {bytes:?}");
            assert!(bytes[HEAD.len()..].iter().all(|&byte| byte == 7));
        }
        if direction == Direction::Uni {
            path.settled();
        }
        assert_eq!(path.counts(1 - from), [0; 8], "seed {seed}");
        path.until("the sender forgets them", |net| {
            net.connection(from).unwrap().reset_counts() == [0; 8]
        });
        path.net.end();
    }
}

#[test]
fn reset_of_a_stream_that_is_read_late_keeps_its_head() {
    let mut path = Path::new(Faults::default(), 1);
    let stream = open(&mut path.net, CLIENT, Direction::Uni);
    path.net.connection(CLIENT).unwrap().reset(stream, CODE).unwrap();
    // The reset is acknowledged before anything is read: a plain one would have dropped the head.
    path.settled();
    assert_eq!(path.counts(CLIENT), [0; 8]);
    assert_eq!(path.net.connection(SERVER).unwrap().accept(Direction::Uni), Some(stream));
    assert_eq!(path.counts(SERVER)[0], 1);
    let got = read(&mut path.net, SERVER, stream);
    assert_eq!(got, (HEAD.to_vec(), Some(Err(StreamError::Reset(CODE)))));
    assert_eq!(read(&mut path.net, SERVER, stream).1, Some(Err(StreamError::Closed)));
    assert_eq!(path.counts(SERVER), [0; 8]);
    path.net.end();
}

#[test]
fn stop_of_a_reset_stream_forgets_it() {
    let mut path = Path::new(Faults::default(), 1);
    let stream = open(&mut path.net, CLIENT, Direction::Uni);
    path.net.connection(CLIENT).unwrap().reset(stream, CODE).unwrap();
    path.settled();
    let mut connection = path.net.connection(SERVER).unwrap();
    connection.accept(Direction::Uni).unwrap();
    assert_eq!(connection.stop(stream, 3), Ok(()));
    assert_eq!(path.counts(SERVER), [0; 8]);
    path.net.end();
}

#[test]
fn stop_by_the_peer_ends_the_wait_with_a_plain_reset() {
    let mut path = Path::new(Faults { lost: 100, ..Faults::default() }, 1);
    let stream = open(&mut path.net, CLIENT, Direction::Uni);
    path.net.connection(CLIENT).unwrap().reset(stream, CODE).unwrap();
    assert_eq!(path.counts(CLIENT)[7], 1);
    // The head is lost, and the peer stops the stream, which it knows otherwise.
    let mut lost = VecDeque::new();
    path.net.sent(CLIENT, &mut lost);
    send(&mut path.net, SERVER, &frame(0x05, &[stream.0, 9]));
    assert_eq!(path.counts(CLIENT), [0; 8]);
    path.faults = Faults::default();
    path.settled();
    let mut connection = path.net.connection(SERVER).unwrap();
    assert_eq!(connection.stats().stream_frames_received, 0);
    connection.accept(Direction::Uni).unwrap();
    assert_eq!(read(&mut path.net, SERVER, stream).1, Some(Err(StreamError::Reset(CODE))));
    path.net.end();
}

#[test]
fn finished_and_plainly_reset_streams_leave_no_entries() {
    let mut path = Path::new(Faults { lost: 10, ..Faults::default() }, 3);
    for round in 0..300u64 {
        let stream = open(&mut path.net, CLIENT, Direction::Bi);
        let mut connection = path.net.connection(CLIENT).unwrap();
        match round % 3 {
            0 => connection.finish(stream).unwrap(),
            1 => connection.reset(stream, round).unwrap(),
            _ => {
                connection.finish(stream).unwrap();
                connection.reset(stream, round).unwrap();
            }
        }
        let mut is_over = false;
        path.until("the stream ends", |net| {
            let mut connection = net.connection(SERVER).unwrap();
            if connection.accept(Direction::Bi).is_some() {
                connection.reset(stream, 1).unwrap();
            }
            is_over |=
                read(net, SERVER, stream).1.is_some_and(|end| end != Err(StreamError::Closed));
            is_over && read(net, CLIENT, stream).1.is_some()
        });
    }
    path.settled();
    assert_eq!(path.counts(CLIENT), [0; 8]);
    assert_eq!(path.counts(SERVER), [0; 8]);
    path.net.end();
}

#[test]
fn datagrams_fit_beside_the_most_resets() {
    let mut path = Path::new(Faults::default(), 1);
    let len = path.net.connection(CLIENT).unwrap().max_datagram_len().unwrap();
    for _ in 0..40 {
        let stream = open(&mut path.net, CLIENT, Direction::Uni);
        path.net.connection(CLIENT).unwrap().reset(stream, CODE).unwrap();
    }
    path.until("32 resets are in flight", |net| {
        net.connection(CLIENT).unwrap().reset_counts()[3] == 32
    });
    let mut connection = path.net.connection(CLIENT).unwrap();
    connection.send_datagram(Bytes::from(vec![5; len]), false).unwrap();
    let longer = connection.send_datagram(Bytes::from(vec![5; len + 1]), false);
    assert!(longer.is_err());
    path.until("the datagram arrives", |net| {
        let datagram = net.connection(SERVER).unwrap().receive_datagram();
        datagram.is_some_and(|datagram| datagram.len() == len)
    });
    assert_eq!(path.net.connection(CLIENT).unwrap().max_datagram_len(), Some(len));
    path.net.end();
}

#[test]
fn head_that_was_not_written_is_not_waited_for() {
    let mut path = Path::new(Faults::default(), 1);
    let mut connection = path.net.connection(CLIENT).unwrap();
    let stream = connection.open(Direction::Uni).unwrap();
    assert!(connection.keep_head(stream, 3));
    assert!(!connection.keep_head(stream, 0) && !connection.keep_head(stream, 64));
    connection.write(stream, b"ab").unwrap();
    connection.reset(stream, CODE).unwrap();
    assert_eq!(path.counts(CLIENT), [0; 8]);
    path.settled();
    path.net.connection(SERVER).unwrap().accept(Direction::Uni).unwrap();
    assert_eq!(read(&mut path.net, SERVER, stream).1, Some(Err(StreamError::Reset(CODE))));
    path.net.end();
}

/// A frame of the extension.
fn reset_at(stream: u64, code: u64, final_size: u64, reliable_size: u64) -> Vec<u8> {
    frame(0x24, &[stream, code, final_size, reliable_size])
}

#[test]
fn violations_close_with_the_code_of_the_draft() {
    let window = STREAM_WINDOW;
    let ended = stream(0, 0, b"ab", true);
    let cases: [(&str, &[&[u8]], u64); 9] = [
        ("a stream past the limit", &[&reset_at(STREAMS * 4, 1, 0, 0)], STREAM_LIMIT),
        ("one of the server's own", &[&reset_at(3, 1, 0, 0)], STREAM_STATE),
        ("one that is not open", &[&reset_at(1, 1, 0, 0)], STREAM_STATE),
        ("an end past the window", &[&reset_at(0, 1, window + 1, 0)], FLOW_CONTROL),
        ("another end", &[&ended, &reset_at(0, 1, 3, 0)], FINAL_SIZE),
        ("another end later", &[&reset_at(0, 1, 3, 0), &reset_at(0, 1, 4, 0)], FINAL_SIZE),
        ("bytes past the end", &[&reset_at(0, 1, 3, 0), &stream(0, 3, b"x", false)], FINAL_SIZE),
        ("more reliable than there is", &[&reset_at(0, 1, 3, 4)], FRAME_ENCODING),
        ("another code", &[&reset_at(0, 1, 3, 3), &reset_at(0, 2, 3, 3)], STREAM_STATE),
    ];
    for (name, frames, code) in cases {
        assert_eq!(judged(frames), Some(code), "{name}");
    }
}

#[test]
fn reset_waits_for_its_reliable_bytes_and_returns_all_credit() {
    let mut path = Path::new(Faults::default(), 1);
    let part = STREAM_WINDOW / 2;
    // Five half windows of a stream each: more than the connection's window.
    for index in 0..5 {
        let id = index * 4;
        // The server's own frames for the stream are then no error.
        let opened = path.net.connection(CLIENT).unwrap().open(Direction::Bi);
        assert_eq!(opened, Some(StreamId(id)));
        send(&mut path.net, CLIENT, &reset_at(id, CODE, part, 5));
        let mut connection = path.net.connection(SERVER).unwrap();
        assert_eq!(connection.accept(Direction::Bi), Some(StreamId(id)));
        assert_eq!(read(&mut path.net, SERVER, StreamId(id)), (vec![], None));
        send(&mut path.net, CLIENT, &stream(id, 2, b"cdefg", false));
        assert_eq!(read(&mut path.net, SERVER, StreamId(id)), (vec![], None));
        send(&mut path.net, CLIENT, &stream(id, 0, b"abc", false));
        let got = read(&mut path.net, SERVER, StreamId(id));
        assert_eq!(got, (b"abcdefg".to_vec(), Some(Err(StreamError::Reset(CODE)))));
        assert_eq!(path.counts(SERVER), [0; 8]);
        // Repeated for a stream that is closed.
        send(&mut path.net, CLIENT, &reset_at(id, CODE, part, 5));
        assert_eq!(path.counts(SERVER), [0; 8]);
        assert_eq!(verdict(&mut path.net, SERVER), None);
        path.net.run(|_| {});
    }
    path.net.end();
}

#[test]
fn reset_that_comes_with_all_its_bytes_is_reported_behind_them() {
    let mut path = Path::new(Faults::default(), 1);
    let all = [stream(0, 0, b"abc", false), reset_at(0, CODE, 3, 3)].concat();
    send(&mut path.net, CLIENT, &all);
    let mut connection = path.net.connection(SERVER).unwrap();
    connection.accept(Direction::Bi).unwrap();
    let mut bytes = Vec::new();
    let first = connection.read(StreamId(0), 9, |piece| {
        bytes.extend_from_slice(&piece);
        true
    });
    assert_eq!((first, &bytes[..]), (Ok(Read::Some(3)), &b"abc"[..]));
    assert_eq!(read(&mut path.net, SERVER, StreamId(0)).1, Some(Err(StreamError::Reset(CODE))));
    assert_eq!(path.counts(SERVER), [0; 8]);
    // A stream that was read before its reset arrives.
    send(&mut path.net, CLIENT, &stream(4, 0, b"abc", false));
    path.net.connection(SERVER).unwrap().accept(Direction::Bi).unwrap();
    assert_eq!(read(&mut path.net, SERVER, StreamId(4)), (b"abc".to_vec(), None));
    send(&mut path.net, CLIENT, &reset_at(4, CODE, 100, 3));
    let got = read(&mut path.net, SERVER, StreamId(4));
    assert_eq!(got, (vec![], Some(Err(StreamError::Reset(CODE)))));
    // A smaller reliable size, and a plain reset, need less.
    send(&mut path.net, CLIENT, &[reset_at(8, 1, 9, 9), reset_at(8, 1, 9, 0)].concat());
    path.net.connection(SERVER).unwrap().accept(Direction::Bi).unwrap();
    assert_eq!(read(&mut path.net, SERVER, StreamId(8)).1, Some(Err(StreamError::Reset(1))));
    send(&mut path.net, CLIENT, &[reset_at(12, 1, 9, 9), frame(0x04, &[12, 1, 9])].concat());
    path.net.connection(SERVER).unwrap().accept(Direction::Bi).unwrap();
    assert_eq!(read(&mut path.net, SERVER, StreamId(12)).1, Some(Err(StreamError::Reset(1))));
    assert_eq!(path.counts(SERVER), [0; 8]);
    path.net.end();
}

#[test]
fn parameter_with_a_value_is_refused() {
    let mut net = Net::new();
    tamper::set_parameters(Some(&[0x1d, 0x01, 0x00]));
    net.ends[SERVER].is_passive = true;
    net.connect();
    net.run(|_| {});
    tamper::set_parameters(None);
    let is_refusal = |event: &Event| match event {
        Event::Lost(_, ConnectionError::Transport { code, .. }) => *code == TRANSPORT_PARAMETER,
        _ => false,
    };
    assert!(net.ends[SERVER].events.iter().any(is_refusal), "{:?}", net.ends[SERVER].events);
    net.end();
}
