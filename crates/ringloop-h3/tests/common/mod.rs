//! Bytes as a peer sends them, and what a connection makes of them.
#![allow(dead_code, reason = "each test takes what it needs")]

use bytes::Bytes;
use ringloop_h3::qpack::{Encoder, Field};
use ringloop_h3::{
    Code, Config, Connection, ConnectionError, Event, LocalStreams, Role, Settings, StreamId,
    Transmit, varint,
};

/// The stream of the first request.
pub const STREAM: StreamId = StreamId(0);

pub const DATA: u64 = 0x0;
pub const HEADERS: u64 = 0x1;
pub const CANCEL_PUSH: u64 = 0x3;
pub const SETTINGS: u64 = 0x4;
pub const PUSH_PROMISE: u64 = 0x5;
pub const GOAWAY: u64 = 0x7;
pub const MAX_PUSH_ID: u64 = 0xd;
pub const PRIORITY_UPDATE: u64 = 0xf0700;

/// Marsaglia's xorshift: the same numbers everywhere.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

pub fn local_streams(role: Role) -> LocalStreams {
    let first = if role == Role::Client { 2 } else { 3 };
    LocalStreams {
        control: StreamId(first),
        encoder: StreamId(first + 4),
        decoder: StreamId(first + 8),
    }
}

pub fn connection(role: Role, config: Config) -> Connection {
    Connection::new(role, config, local_streams(role))
}

/// Settings with every extension.
pub fn full_config() -> Config {
    let config = Config::default();
    Config {
        settings: Settings { extended_connect: true, datagrams: true, ..config.settings },
        ..config
    }
}

pub fn integers(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        varint::write(&mut out, *value);
    }
    out
}

pub fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = integers(&[kind, payload.len() as u64]);
    out.extend_from_slice(payload);
    out
}

/// A HEADERS frame without the dynamic table.
pub fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let fields: Vec<Field> = fields
        .iter()
        .map(|(name, value)| Field::new(name.to_string(), value.to_string()))
        .collect();
    let mut section = Vec::new();
    Encoder::new().encode(0, &fields, &mut section);
    frame(HEADERS, &section)
}

/// The beginning of a control stream.
pub fn control(settings: &[u64]) -> Vec<u8> {
    let mut out = integers(&[0]);
    out.extend(frame(SETTINGS, &integers(settings)));
    out
}

pub const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":authority", "example.org"), (":path", "/")];

pub fn get() -> Vec<u8> {
    headers(GET)
}

pub fn get_with(more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[GET, more].concat())
}

pub fn request_parts(method: &str, uri: &str) -> http::request::Parts {
    let request = http::Request::builder().method(method).uri(uri);
    request.body(()).unwrap().into_parts().0
}

pub fn response_parts(status: u16) -> http::response::Parts {
    let response = http::Response::builder().status(status);
    response.body(()).unwrap().into_parts().0
}

/// What a peer does.
#[derive(Debug, Clone)]
pub enum Act {
    Send(u64, Vec<u8>),
    End(u64, Vec<u8>),
    Reset(u64),
    Stop(u64),
    Datagram(Vec<u8>),
}

/// Has a peer do it, `len` bytes at a time.
pub fn perform(connection: &mut Connection, act: &Act, len: usize) -> Result<(), ConnectionError> {
    match act {
        Act::Reset(stream) => connection.receive_reset(StreamId(*stream), Code(7)),
        Act::Stop(stream) => connection.receive_stop(StreamId(*stream), Code(7)),
        Act::Datagram(bytes) => connection.receive_datagram(bytes.clone().into()),
        Act::Send(stream, bytes) | Act::End(stream, bytes) => {
            let is_end = matches!(act, Act::End(..));
            let stream = StreamId(*stream);
            let mut left = Bytes::from(bytes.clone());
            while left.len() > len {
                connection.receive(stream, left.split_to(len), false)?;
                if transmits_stop(connection, stream) {
                    return Ok(());
                }
            }
            connection.receive(stream, left, is_end)
        }
    }
}

/// Drains the output into `Connection::poll_event`'s side: true if a stream is to be stopped.
fn transmits_stop(connection: &mut Connection, stream: StreamId) -> bool {
    let mut is_stopped = false;
    while let Some(transmit) = connection.poll_transmit() {
        is_stopped |= matches!(transmit, Transmit::Stop { stream: of, .. } if of == stream);
    }
    is_stopped
}

pub fn events(connection: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| connection.poll_event()).collect()
}

pub fn transmits(connection: &mut Connection) -> Vec<Transmit> {
    std::iter::from_fn(|| connection.poll_transmit()).collect()
}

/// A client and a server between which everything arrives.
pub struct Pair {
    pub client: Connection,
    pub server: Connection,
}

impl Pair {
    pub fn new(client: Config, server: Config) -> Self {
        let mut pair = Self {
            client: connection(Role::Client, client),
            server: connection(Role::Server, server),
        };
        let events = pair.exchange();
        assert!(matches!(events.0[..], [Event::Settings(_)]));
        assert!(matches!(events.1[..], [Event::Settings(_)]));
        pair
    }

    pub fn full() -> Self {
        Self::new(full_config(), full_config())
    }

    /// Delivers until nothing more is sent; the client's events, and the server's.
    pub fn exchange(&mut self) -> (Vec<Event>, Vec<Event>) {
        loop {
            let from_client = transmits(&mut self.client);
            let from_server = transmits(&mut self.server);
            if from_client.is_empty() && from_server.is_empty() {
                return (events(&mut self.client), events(&mut self.server));
            }
            deliver(&mut self.server, from_client);
            deliver(&mut self.client, from_server);
        }
    }

    pub fn request(&mut self, parts: &http::request::Parts, end: bool) -> http::request::Parts {
        self.client.send_request(STREAM, parts, end).unwrap();
        let (_, mut events) = self.exchange();
        let Event::Request { parts, .. } = events.remove(0) else {
            panic!("{events:?}");
        };
        parts
    }
}

pub fn deliver(to: &mut Connection, transmits: Vec<Transmit>) {
    for transmit in transmits {
        match transmit {
            Transmit::Stream { stream, data, fin } => to.receive(stream, data, fin).unwrap(),
            Transmit::Reset { stream, code } => to.receive_reset(stream, code).unwrap(),
            Transmit::Stop { stream, code } => to.receive_stop(stream, code).unwrap(),
            Transmit::Datagram(data) => to.receive_datagram(data).unwrap(),
        }
    }
}
