//! Misbehaving peers, driven by a fuzzer's bytes.
//!
//! Owns: two interpretations of the bytes, [`connection`] and [`qpack`]. Called by: `fuzz/` (`make fuzz`), and the tests at
//! the end, which replay the corpus and seeded noise on any toolchain. Not part of release builds.
//!
//! Each asserts that nothing panics; [`connection`] also that its outcome does not depend on where the bytes are cut.

use crate::qpack::{Decoded, Decoder, Encoder, Field};
use crate::{
    Code, Config, Connection, ConnectionError, Event, LocalStreams, Protocol, Role, Settings,
    StreamId, Transmit,
};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The fuzzer's decisions; zeros at the end of the input.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// Arbitrary bytes on any stream, resets, stops and datagrams, and an application that answers.
///
/// The first byte chooses role and configuration; then follow operations, a byte each: what it is in the low three bits,
/// on which stream in the others. Bytes of a stream follow behind their count.
pub fn connection(data: &[u8]) {
    let whole = Run::new(data, usize::MAX).outcome();
    for len in [1, 3] {
        let cut = Run::new(data, len).outcome();
        // A peer that evicts what it refers to, for example, is found out earlier or later.
        if !cut.is_of_qpack() && !whole.is_of_qpack() {
            assert_eq!(cut, whole, "cut into {len} bytes");
        }
    }
}

/// What a connection has made of its input, by stream; bytes of a body, and output, in one piece.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    error: Option<ConnectionError>,
    events: BTreeMap<StreamId, String>,
    transmits: BTreeMap<StreamId, String>,
}

impl Outcome {
    fn is_of_qpack(&self) -> bool {
        self.error.is_some_and(|error| error.code.0 & 0xf00 == 0x200)
    }
}

struct Run<'a> {
    choices: Choices<'a>,
    connection: Connection,
    local: LocalStreams,
    /// Bytes of one call.
    len: usize,
    /// Streams that the connection does not read, or has passed to its caller.
    discarded: BTreeSet<StreamId>,
    outcome: Outcome,
}

/// Where connections as a whole are logged.
const ALL: StreamId = StreamId(u64::MAX);

impl<'a> Run<'a> {
    fn new(data: &'a [u8], len: usize) -> Self {
        let mut choices = Choices(data);
        let first = choices.byte();
        let role = if first & 1 == 0 { Role::Server } else { Role::Client };
        let local = match role {
            Role::Client => [2, 6, 10],
            Role::Server => [3, 7, 11],
        };
        let local = LocalStreams {
            control: StreamId(local[0]),
            encoder: StreamId(local[1]),
            decoder: StreamId(local[2]),
        };
        let config = Config {
            settings: Settings {
                field_section_bytes_max: Some(300),
                qpack_table_bytes_max: 200,
                qpack_blocked_streams_max: 2,
                extended_connect: first & 2 != 0,
                datagrams: first & 4 != 0,
                others: Vec::new(),
            },
            fields_max: 6,
            raw_fields: first & 16 != 0,
            blocked_bytes_max: crate::limits::BLOCKED_BYTES_MAX,
            raw_streams: first & 8 != 0,
            resets_max: 5,
            idle_frames_max: 20,
            remembered: None,
        };
        Self {
            choices,
            connection: Connection::new(role, config, local),
            local,
            len,
            discarded: BTreeSet::new(),
            outcome: Outcome { error: None, events: BTreeMap::new(), transmits: BTreeMap::new() },
        }
    }

    fn outcome(mut self) -> Outcome {
        while !self.choices.is_over() {
            let choice = self.choices.byte();
            let result = self.operation(choice & 7, u64::from(choice >> 3));
            self.drain();
            if let Err(error) = result {
                let again = self.connection.receive(StreamId(0), Bytes::new(), false);
                assert_eq!(again, Err(error));
                self.outcome.error = Some(error);
                break;
            }
        }
        self.outcome
    }

    fn operation(&mut self, kind: u8, number: u64) -> Result<(), ConnectionError> {
        // Ids of the peer's streams, and of requests.
        let is_request = number & 1 == 0;
        let peer = 1 - self.local.control.0 % 2;
        let id = number / 2 * 4 + if is_request { 0 } else { 2 + peer };
        let mut stream = StreamId(id);
        if kind == 1 {
            // A bidirectional stream of a server.
            stream.0 |= 1;
        }
        match kind {
            0..=3 => self.send(stream, kind == 3),
            4 if !self.discarded.contains(&stream) => {
                self.connection.receive_reset(stream, Code(9))
            }
            5 => self.connection.receive_stop(stream, Code(9)),
            6 => {
                let count = self.choices.byte();
                let datagram = self.choices.take(usize::from(count));
                self.connection.receive_datagram(Bytes::copy_from_slice(datagram))
            }
            _ => {
                self.act(StreamId(number / 2 * 4));
                Ok(())
            }
        }
    }

    fn send(&mut self, stream: StreamId, fin: bool) -> Result<(), ConnectionError> {
        let count = self.choices.byte();
        let mut data = Bytes::copy_from_slice(self.choices.take(usize::from(count)));
        // A peer cannot send on our unidirectional streams.
        if !stream.is_bidirectional() && stream.initiator() == self.connection.role() {
            return Ok(());
        }
        loop {
            if self.discarded.contains(&stream) {
                return Ok(());
            }
            let piece = data.split_to(self.len.min(data.len()));
            let is_last = data.is_empty();
            self.connection.receive(stream, piece, fin && is_last)?;
            self.drain();
            if is_last {
                if fin {
                    self.discarded.insert(stream);
                }
                return Ok(());
            }
        }
    }

    /// The application: misuse is refused, and must not harm.
    fn act(&mut self, stream: StreamId) {
        let choice = self.choices.byte();
        let connection = &mut self.connection;
        let end = choice & 0x80 != 0;
        match choice & 7 {
            0 => {
                let (mut parts, ()) = Request::new(()).into_parts();
                parts.uri = "https://a/".parse().unwrap_or_default();
                parts.method = match choice >> 4 & 3 {
                    0 => Method::GET,
                    1 => Method::HEAD,
                    _ => Method::CONNECT,
                };
                if parts.method == Method::CONNECT {
                    parts.extensions.insert(Protocol::new("p"));
                }
                let _ = connection.send_request(stream, &parts, end);
            }
            1 => {
                let (mut parts, ()) = Response::new(()).into_parts();
                parts.status =
                    if choice & 0x10 == 0 { StatusCode::OK } else { StatusCode::EARLY_HINTS };
                let _ = connection.send_response(stream, &parts, end);
            }
            2 => {
                let _ = connection.send_data(stream, Bytes::from_static(&[7; 600]), end);
            }
            3 => {
                let _ = connection.send_trailers(stream, &http::HeaderMap::new());
            }
            4 => {
                if connection.cancel(stream, Code::H3_REQUEST_CANCELLED).is_ok() {
                    self.discarded.insert(stream);
                }
            }
            5 => {
                let _ = connection.stop(stream, Code::H3_NO_ERROR);
            }
            6 => connection.announce_go_away(),
            _ => connection.go_away(),
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.log(event);
        }
        while let Some(transmit) = self.connection.poll_transmit() {
            let (stream, text) = match transmit {
                // One insertion count for many insertions, if they come together.
                Transmit::Stream { stream, .. } if stream == self.local.decoder => continue,
                Transmit::Stream { stream, data, fin } => {
                    let end = if fin { " fin" } else { "" };
                    let text = hex(&data);
                    (stream, text + end)
                }
                Transmit::Reset { stream, code } => (stream, format!(" reset {code}")),
                Transmit::Stop { stream, code } => {
                    self.discarded.insert(stream);
                    (stream, format!(" stop {code}"))
                }
                Transmit::Datagram(data) => (ALL, hex(&data)),
            };
            self.outcome.transmits.entry(stream).or_default().push_str(&text);
        }
    }

    fn log(&mut self, event: Event) {
        let (stream, text) = match event {
            Event::Unblocked { .. } => return,
            Event::Settings(settings) => (ALL, format!("{settings:?}; ")),
            Event::GoAway { id } => (ALL, format!("goaway {id}; ")),
            Event::Data { stream, data } => (stream, hex(&data)),
            Event::Request { stream, parts } => (stream, format!("{parts:?}; ")),
            Event::Informational { stream, parts } | Event::Response { stream, parts } => {
                (stream, format!("{parts:?}; "))
            }
            Event::Trailers { stream, trailers } => (stream, format!("; {trailers:?}; ")),
            Event::Fields { stream, fields } => (stream, format!("; {fields:?}; ")),
            Event::End { stream } => (stream, "; end".to_owned()),
            Event::Reset { stream, code } => (stream, format!("; reset {code}")),
            Event::Stopped { stream, code } => (stream, format!("; stopped {code}")),
            Event::Failed { stream, code, reason } => (stream, format!("; failed {code} {reason}")),
            Event::Datagram { stream, data } => (stream, format!("datagram {data:?}; ")),
            Event::PriorityUpdate { stream, priority } => {
                (stream, format!("priority {priority}; "))
            }
            Event::Raw { stream, session, .. } => {
                self.discarded.insert(stream);
                (stream, format!("raw {session}; "))
            }
        };
        self.outcome.events.entry(stream).or_default().push_str(&text);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Arbitrary instructions, sections and acknowledgements.
pub fn qpack(data: &[u8]) {
    let mut choices = Choices(data);
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(u64::from(choices.byte()), 2);
    let mut decoder = Decoder::new(200, 2, 400);
    while !choices.is_over() {
        let choice = choices.byte();
        let stream = u64::from(choice >> 3);
        let count = choices.byte();
        let bytes = choices.take(usize::from(count));
        let result = match choice & 7 {
            0 | 1 => decoder.receive(bytes),
            2 | 3 => match decoder.decode(stream, Bytes::copy_from_slice(bytes)) {
                Ok(Decoded::Fields(fields)) => {
                    let size: u64 = fields.iter().map(Field::size).sum();
                    assert!(size <= 400);
                    Ok(())
                }
                Ok(Decoded::Blocked) => Ok(()),
                Err(error) => Err(error),
            },
            4 => {
                decoder.cancel(stream);
                Ok(())
            }
            5 | 6 => encoder.receive(bytes),
            _ => {
                let (name, value) = bytes.split_at(bytes.len() / 2);
                let field = Field::new(name.to_vec(), value.to_vec());
                encoder.encode(stream, &[field.clone(), field], &mut Vec::new());
                Ok(())
            }
        };
        while decoder.next_unblocked().is_some() {}
        let _ = (decoder.take_instructions(), encoder.take_instructions());
        if result.is_err_and(|error| error.code().is_some()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringloop_testing::corpus::replay;

    const CRATE: &str = env!("CARGO_MANIFEST_DIR");

    #[test]
    fn arbitrary_streams_are_harmless_wherever_they_are_cut() {
        replay(CRATE, "connection", 10_000, connection);
    }

    #[test]
    fn arbitrary_header_compression_is_harmless() {
        replay(CRATE, "qpack", 10_000, qpack);
    }
}
