//! A client and a server over a network that cuts, delays and reorders between streams: what is received is what was sent,
//! whatever the network does.
#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::*;
use http::{HeaderMap, HeaderName, HeaderValue};
use ringloop_h3::{Code, Config, Connection, Event, Role, Settings, StreamId, Transmit};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// What a message consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Message {
    head: String,
    headers: Vec<(String, String)>,
    interim: Vec<u16>,
    body: Vec<u8>,
    trailers: Option<Vec<(String, String)>>,
    is_complete: bool,
}

enum Piece {
    Bytes(Bytes),
    Fin,
    Reset(Code),
}

/// One end, and what is on its way to it.
struct End {
    connection: Connection,
    inbox: BTreeMap<StreamId, VecDeque<Piece>>,
    stops: VecDeque<(StreamId, Code)>,
    received: BTreeMap<StreamId, Message>,
    unwanted: BTreeSet<StreamId>,
    /// Streams of which something has arrived.
    opened: BTreeSet<StreamId>,
    blocked_count: usize,
}

struct Net {
    /// Decides what is sent.
    script: Numbers,
    /// Decides when it arrives, and in which pieces.
    network: Numbers,
    ends: [End; 2],
    sent: [BTreeMap<StreamId, Message>; 2],
    cancelled: BTreeSet<StreamId>,
    next_stream: u64,
}

fn list(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.to_string(), value.to_str().unwrap().to_owned())
    };
    headers.iter().map(text).collect()
}

impl Net {
    fn new(script: u64, network: u64) -> Self {
        let mut script = Numbers(script * 2 + 1);
        let mut end = |role| {
            let config = Config {
                settings: Settings {
                    qpack_table_bytes_max: [0, 300, 4096][script.below(3) as usize],
                    qpack_blocked_streams_max: script.below(8),
                    ..Config::default().settings
                },
                ..Config::default()
            };
            End {
                connection: connection(role, config),
                inbox: BTreeMap::new(),
                stops: VecDeque::new(),
                received: BTreeMap::new(),
                unwanted: BTreeSet::new(),
                opened: BTreeSet::new(),
                blocked_count: 0,
            }
        };
        let ends = [end(Role::Client), end(Role::Server)];
        Self {
            script,
            network: Numbers(network * 2 + 1),
            ends,
            sent: [BTreeMap::new(), BTreeMap::new()],
            cancelled: BTreeSet::new(),
            next_stream: 0,
        }
    }

    fn headers(&mut self, bytes_max: u64) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for _ in 0..self.script.below(6) {
            let name = format!("x-{}", self.script.below(4));
            let name = HeaderName::try_from(name).unwrap();
            let value = match self.script.below(3) {
                0 => "v".repeat(self.script.below(bytes_max) as usize),
                _ => format!("value {}", self.script.below(10)),
            };
            headers.append(name, HeaderValue::try_from(value).unwrap());
        }
        headers
    }

    /// Sends a body and perhaps trailers, and ends the message.
    fn send_rest(&mut self, end: usize, stream: StreamId) {
        let mut message = self.sent[end].remove(&stream).unwrap();
        for _ in 0..self.script.below(4) {
            let len = [1, 100, 3000, 70_000][self.script.below(4) as usize];
            let data =
                Bytes::from(vec![self.script.below(256) as u8; self.script.below(len) as usize]);
            message.body.extend_from_slice(&data);
            let connection = &mut self.ends[end].connection;
            connection.send_data(stream, data, false).unwrap();
        }
        let connection = &mut self.ends[end].connection;
        if self.script.below(3) == 0 {
            let mut trailers = HeaderMap::new();
            trailers.insert("digest", HeaderValue::from_static("a trailer"));
            message.trailers = Some(list(&trailers));
            connection.send_trailers(stream, &trailers).unwrap();
        } else {
            connection.send_data(stream, Bytes::new(), true).unwrap();
        }
        message.is_complete = true;
        self.sent[end].insert(stream, message);
    }

    fn request(&mut self) {
        let stream = StreamId(self.next_stream);
        self.next_stream += 4;
        let path = format!("https://example.org/{}", self.script.below(5));
        let mut parts = request_parts("POST", &path);
        parts.headers = self.headers(500);
        let message = Message { head: path, headers: list(&parts.headers), ..Message::default() };
        self.sent[CLIENT].insert(stream, message);
        let connection = &mut self.ends[CLIENT].connection;
        connection.send_request(stream, &parts, false).unwrap();
        self.send_rest(CLIENT, stream);
        self.flush(CLIENT);
    }

    /// The server answers by the stream alone, so that the network has no influence.
    fn respond(&mut self, stream: StreamId) {
        let script = std::mem::replace(&mut self.script, Numbers(stream.0 * 77 + 1));
        let mut message = Message::default();
        for status in [100, 103] {
            if self.script.below(3) == 0 {
                let parts = response_parts(status);
                let connection = &mut self.ends[SERVER].connection;
                connection.send_response(stream, &parts, false).unwrap();
                message.interim.push(status);
            }
        }
        let mut parts = response_parts(200 + self.script.below(3) as u16);
        parts.headers = self.headers(500);
        message.head = parts.status.to_string();
        message.headers = list(&parts.headers);
        self.sent[SERVER].insert(stream, message);
        let connection = &mut self.ends[SERVER].connection;
        connection.send_response(stream, &parts, false).unwrap();
        self.send_rest(SERVER, stream);
        self.script = script;
    }

    fn cancel(&mut self) {
        let stream = StreamId(self.network.below(self.next_stream / 4 + 1) * 4);
        let end = self.network.below(2) as usize;
        let connection = &mut self.ends[end].connection;
        if connection.cancel(stream, Code::H3_REQUEST_CANCELLED).is_ok() {
            self.cancelled.insert(stream);
            self.ends[end].unwanted.insert(stream);
            self.flush(end);
        }
    }

    /// Puts what an end sends on its way.
    fn flush(&mut self, from: usize) {
        while let Some(transmit) = self.ends[from].connection.poll_transmit() {
            let to = &mut self.ends[1 - from];
            match transmit {
                Transmit::Stream { stream, data, fin } => {
                    let inbox = to.inbox.entry(stream).or_default();
                    inbox.push_back(Piece::Bytes(data));
                    inbox.extend(fin.then_some(Piece::Fin));
                }
                Transmit::Reset { stream, code } => {
                    to.inbox.insert(stream, [Piece::Reset(code)].into());
                }
                Transmit::Stop { stream, code } => {
                    to.stops.push_back((stream, code));
                    self.ends[from].unwanted.insert(stream);
                }
                Transmit::Datagram(_) => panic!("no datagram was sent"),
            }
        }
    }

    /// Delivers something to an end; `false` if nothing is on its way.
    fn deliver(&mut self, to: usize) -> bool {
        let end = &mut self.ends[to];
        // Of a stream that has not arrived, QUIC would report it to the first write.
        let stop = end.stops.front().copied();
        let stop = stop.filter(|(stream, _)| to == CLIENT || end.opened.contains(stream));
        if let Some((stream, code)) = stop {
            end.stops.pop_front();
            end.connection.receive_stop(stream, code).unwrap();
            self.serve(to);
            return true;
        }
        end.inbox.retain(|stream, pieces| !pieces.is_empty() && !end.unwanted.contains(stream));
        let connection = &end.connection;
        let ready = end.inbox.iter_mut().filter(|(stream, _)| !connection.is_blocked(**stream));
        let mut ready: Vec<_> = ready.collect();
        end.blocked_count += usize::from(ready.is_empty());
        if ready.is_empty() {
            return false;
        }
        let index = self.network.below(ready.len() as u64) as usize;
        let (stream, pieces) = &mut ready[index];
        let stream = **stream;
        end.opened.insert(stream);
        match pieces.pop_front().unwrap() {
            Piece::Bytes(mut data) => {
                let len = match self.network.below(3) {
                    0 => self.network.below(4),
                    _ => self.network.below(data.len() as u64 + 1),
                };
                let piece = data.split_to((len as usize).min(data.len()));
                if !data.is_empty() {
                    pieces.push_front(Piece::Bytes(data));
                }
                let fin = pieces.len() == 1
                    && matches!(pieces[0], Piece::Fin)
                    && self.network.below(2) == 0;
                if fin {
                    pieces.clear();
                }
                end.connection.receive(stream, piece, fin).unwrap();
            }
            Piece::Fin => end.connection.receive(stream, Bytes::new(), true).unwrap(),
            Piece::Reset(code) => end.connection.receive_reset(stream, code).unwrap(),
        }
        self.serve(to);
        true
    }

    /// The application.
    fn serve(&mut self, end: usize) {
        self.flush(end);
        while let Some(event) = self.ends[end].connection.poll_event() {
            let received = &mut self.ends[end].received;
            match event {
                Event::Request { stream, parts } => {
                    let message = Message {
                        head: parts.uri.to_string(),
                        headers: list(&parts.headers),
                        ..Message::default()
                    };
                    assert_eq!(received.insert(stream, message), None);
                    if stream.0 % 3 == 0 && !self.cancelled.contains(&stream) {
                        self.respond(stream);
                    }
                }
                Event::Informational { stream, parts } => {
                    let interim = &mut received.entry(stream).or_default().interim;
                    interim.push(parts.status.as_u16());
                }
                Event::Response { stream, parts } => {
                    let message = received.entry(stream).or_default();
                    message.head = parts.status.to_string();
                    message.headers = list(&parts.headers);
                }
                Event::Data { stream, data } => {
                    assert!(!data.is_empty());
                    received.get_mut(&stream).unwrap().body.extend_from_slice(&data);
                }
                Event::Trailers { stream, trailers } => {
                    received.get_mut(&stream).unwrap().trailers = Some(list(&trailers));
                }
                Event::End { stream } => {
                    received.get_mut(&stream).unwrap().is_complete = true;
                    if end == SERVER && stream.0 % 3 != 0 && !self.cancelled.contains(&stream) {
                        self.respond(stream);
                    }
                }
                Event::Reset { stream, .. } | Event::Stopped { stream, .. } => {
                    assert!(self.cancelled.contains(&stream));
                    // The usual reaction; its other half may be over.
                    let connection = &mut self.ends[end].connection;
                    let _ = connection.cancel(stream, Code::H3_REQUEST_CANCELLED);
                    self.ends[end].unwanted.insert(stream);
                }
                Event::Unblocked { .. } => self.ends[end].blocked_count += 1,
                Event::Settings(_) => {}
                other => panic!("{other:?}"),
            }
            self.flush(end);
        }
    }

    fn finish(&mut self) {
        loop {
            let delivered = [CLIENT, SERVER].map(|end| self.deliver(end));
            if delivered == [false, false] {
                break;
            }
        }
        for end in [CLIENT, SERVER] {
            assert_eq!(self.ends[end].connection.request_count(), 0);
            for (stream, sent) in &self.sent[1 - end] {
                if !self.cancelled.contains(stream) {
                    assert_eq!(&self.ends[end].received[stream], sent);
                }
            }
        }
    }
}

#[test]
fn what_is_received_is_what_was_sent() {
    let mut blocked_count = 0;
    for script in 0..20 {
        for network in 0..3 {
            let mut net = Net::new(script, network);
            for end in [CLIENT, SERVER] {
                net.flush(end);
            }
            for _ in 0..20 {
                net.request();
                for _ in 0..net.network.below(40) {
                    let end = net.network.below(2) as usize;
                    net.deliver(end);
                }
            }
            net.finish();
            let counts = net.ends.iter().map(|end| end.blocked_count);
            blocked_count += counts.sum::<usize>();
        }
    }
    assert!(blocked_count > 200, "{blocked_count}");
}

#[test]
fn cancelled_requests_disturb_no_others() {
    let mut cancelled_count = 0;
    for seed in 0..40 {
        let mut net = Net::new(seed, seed);
        for end in [CLIENT, SERVER] {
            net.flush(end);
        }
        for _ in 0..20 {
            net.request();
            for _ in 0..net.network.below(40) {
                let end = net.network.below(2) as usize;
                net.deliver(end);
                if net.network.below(20) == 0 {
                    net.cancel();
                }
            }
        }
        net.finish();
        cancelled_count += net.cancelled.len();
    }
    assert!(cancelled_count > 200, "{cancelled_count}");
}
