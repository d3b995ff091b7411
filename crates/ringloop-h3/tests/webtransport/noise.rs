//! An end with sessions against a peer that does what arbitrary bytes say; a fuzz target too (`make fuzz`).

use crate::pair::Pair;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ringloop_h3::webtransport::{Config, Direction, Event, Limits};
use ringloop_h3::{Code, Role, StreamId, Transmit, capsule, varint};
use std::collections::BTreeSet;

const CAPSULES: [u64; 12] = [
    0x00,
    0x2843,
    0x78ae,
    0x190b_4d3d,
    0x190b_4d3e,
    0x190b_4d3f,
    0x190b_4d40,
    0x190b_4d41,
    0x190b_4d42,
    0x190b_4d43,
    0x190b_4d44,
    0x1234,
];

/// The fuzzer's decisions; zeros at the end of the input.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn some(&mut self) -> &'a [u8] {
        let len = self.below(64);
        self.take(len)
    }
}

struct Scene<'a> {
    choices: Choices<'a>,
    pair: Pair,
    victim: Role,
    hostile: Role,
    /// Sessions that either has named.
    sessions: BTreeSet<StreamId>,
    config: Config,
}

/// Runs what `input` says. Nothing panics, and what is kept stays within limits.
pub fn run(input: &[u8]) {
    let mut choices = Choices(input);
    let setup = choices.byte();
    let config = Config {
        sessions_max: 3,
        flow_control: (setup & 1 != 0).then_some(Limits {
            data: 200,
            bidirectional_streams: 3,
            unidirectional_streams: 3,
        }),
        has_reset_stream_at: setup & 2 != 0,
        early_streams_max: 3,
        early_datagrams_max: 3,
        early_bytes_max: 200,
    };
    let (victim, hostile) =
        if setup & 4 != 0 { (Role::Client, Role::Server) } else { (Role::Server, Role::Client) };
    let mut pair = Pair::new(u64::from(setup), &config, &config);
    if setup & 8 != 0 {
        // SETTINGS come when they like.
        pair.hold(hostile, StreamId(2 + u64::from(hostile == Role::Server)));
    }
    while pair.step() {}
    if victim == Role::Client {
        pair.connect(&["a", "b"]).ok();
        while pair.step() {}
    }
    pair.make_hostile(hostile);
    let mut scene = Scene {
        choices,
        pair,
        victim,
        hostile,
        sessions: BTreeSet::from([StreamId(0), StreamId(4)]),
        config,
    };
    while !scene.choices.0.is_empty() && scene.pair.end(victim).error.is_none() {
        scene.act();
        while scene.choices.below(2) == 0 && scene.pair.step() {}
        scene.check();
    }
    while scene.pair.step() {}
    scene.check();
}

impl Scene<'_> {
    fn session(&mut self) -> StreamId {
        let at = self.choices.below(self.sessions.len());
        self.sessions.iter().nth(at).copied().unwrap_or(StreamId(0))
    }

    fn act(&mut self) {
        match self.choices.byte() % 16 {
            0 | 1 => self.request(),
            2..=5 => self.capsule(),
            6 | 7 => self.stream(),
            8 => {
                let mut datagram = Vec::new();
                varint::write(&mut datagram, self.session().0 / 4);
                datagram.extend_from_slice(self.choices.some());
                let datagram = Transmit::Datagram(datagram.into());
                self.pair.signal(self.hostile, datagram);
            }
            9 => self.end_connect_stream(),
            10 => {
                let session = self.session();
                let (mut parts, ()) = http::Response::new(()).into_parts();
                let status = [200, 204, 103, 308, 404, 503][self.choices.below(6)];
                parts.status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
                let value = [&b"\"a\""[..], b"\"c\"", b"?"][self.choices.below(3)];
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    parts.headers.insert(HeaderName::from_static("wt-protocol"), value);
                }
                let end = self.choices.below(4) == 0;
                let hostile = self.pair.end(self.hostile);
                hostile.h3.send_response(session, &parts, end).ok();
            }
            11 => self.pair.release(),
            12 => self.pair.end(self.hostile).h3.go_away(),
            _ => self.answer(),
        }
    }

    /// The hostile client asks for a session.
    fn request(&mut self) {
        if self.hostile == Role::Server {
            return;
        }
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(self.choices.some()) {
            headers.insert(HeaderName::from_static("wt-available-protocols"), value);
        }
        let token = ["webtransport", "webtransport-h3", "websocket"][self.choices.below(3)];
        if self.pair.client.h3.request_count() < 50 {
            let session = self.pair.request_by_hand(token, headers);
            self.sessions.insert(session);
        }
    }

    fn capsule(&mut self) {
        let session = self.session();
        let kind = CAPSULES[self.choices.below(CAPSULES.len())];
        let mut body = Vec::new();
        match self.choices.below(3) {
            0 => {
                let mut value = Vec::new();
                varint::write(&mut value, u64::from(self.choices.byte()) << self.choices.below(54));
                capsule::write(&mut body, kind, &value);
            }
            1 => capsule::write(&mut body, kind, self.choices.some()),
            _ => body.extend_from_slice(self.choices.some()),
        }
        let hostile = self.pair.end(self.hostile);
        hostile.h3.send_data(session, body.into(), false).ok();
    }

    fn stream(&mut self) {
        let direction = if self.choices.below(2) == 0 {
            Direction::Bidirectional
        } else {
            Direction::Unidirectional
        };
        let signal = if direction == Direction::Bidirectional { 0x41 } else { 0x54 };
        let mut bytes = vec![0x40, signal];
        varint::write(&mut bytes, self.session().0);
        bytes.extend_from_slice(self.choices.some());
        let stream = self.pair.stream_by_hand(self.hostile, direction, &bytes);
        if self.choices.below(3) == 0 {
            let code = Code(u64::from(self.choices.byte()));
            self.pair.signal(self.hostile, Transmit::Reset { stream, code });
        }
    }

    fn end_connect_stream(&mut self) {
        let session = self.session();
        let code = [Code::H3_NO_ERROR, Code(0x170d_7b68), Code(7)][self.choices.below(3)];
        let how = self.choices.below(3);
        let hostile = self.pair.end(self.hostile);
        match how {
            0 => hostile.h3.send_data(session, Bytes::new(), true).ok(),
            1 => hostile.h3.cancel(session, code).ok(),
            _ => hostile.h3.stop(session, code).ok(),
        };
    }

    /// What the victim's application does.
    fn answer(&mut self) {
        let session = self.session();
        let action = self.choices.below(8);
        let len = self.choices.byte().into();
        let victim = self.pair.end(self.victim);
        let (h3, sessions) = (&mut victim.h3, &mut victim.sessions);
        let headers = HeaderMap::new();
        match action {
            0 | 1 => drop(sessions.accept(h3, session, headers, None)),
            2 => drop(sessions.reject(h3, session, StatusCode::FORBIDDEN, headers)),
            3 => drop(sessions.close(h3, session, 1, "reason")),
            4 => drop(sessions.drain(h3, session)),
            5 => {
                sessions.reserve(h3, session, len).ok();
                for stream in (0..40).map(StreamId) {
                    sessions.received(h3, session, stream, len);
                    sessions.read(h3, session, stream, len);
                }
            }
            6 => {
                for stream in (0..40).map(StreamId) {
                    sessions.stream_ended(h3, session, stream, Some(len));
                }
            }
            _ => drop(self.pair.open_stream(self.victim, session, Direction::Bidirectional)),
        }
    }

    fn check(&mut self) {
        let sessions_max = self.config.sessions_max;
        let victim = self.pair.end(self.victim);
        assert!(victim.sessions.count() <= sessions_max);
        for event in victim.events.drain(..) {
            if let Event::Request { session, .. } = event {
                self.sessions.insert(session);
            }
        }
    }
}
