//! Misbehaving peers, driven by a fuzzer's bytes.
//!
//! Owns: two cores with a network and a clock between them ([`Net`]), and five interpretations of
//! the bytes: [`datagrams`], [`mutations`], [`frames`], [`parameters`], [`rewriting`]. Called by: `fuzz/`
//! (`make fuzz`), and the tests at the end, which replay the corpus and seeded noise on any
//! toolchain; `violations` breaks the rules one by one. Not part of release builds.
//!
//! Each asserts that nothing panics, that an endpoint with nothing left to send has no deadline in
//! the past, and that every connection ends and is released.

#[cfg(test)]
mod resets;
#[cfg(test)]
mod violations;

use crate::config::{ClientConfig, EndpointConfig, ServerConfig, Transport};
use crate::core::{Core, Datagram, Event, Handle};
use crate::proto::tamper;
use crate::tls::{Certificate, ClientTls, Secrets, ServerTls};
use crate::{Direction, StreamId};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// An endpoint that still has something to do after this many turns never becomes idle.
const TURNS_MAX: usize = 2_000;

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

fn configs() -> &'static (ServerConfig, ClientConfig) {
    static ONE: OnceLock<(ServerConfig, ClientConfig)> = OnceLock::new();
    ONE.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let server = ServerTls::new(certificate).secrets(Secrets::Kept);
        let client = ClientTls::without_verification().secrets(Secrets::Kept);
        let transport = Transport { reset_stream_at: true, ..Transport::default() };
        let server = ServerConfig::new(server.early_data(true)).unwrap();
        let client = ClientConfig::new(client).unwrap();
        (server.transport(&transport).unwrap(), client.transport(&transport).unwrap())
    })
}

/// One endpoint.
struct End {
    core: Core,
    address: SocketAddr,
    connection: Option<Handle>,
    /// The application neither accepts streams nor reads; its events are kept.
    is_passive: bool,
    events: Vec<Event>,
}

impl End {
    fn new(port: u16, server: Option<ServerConfig>) -> Self {
        let config = EndpointConfig::default().seed(Some([port as u8; 32]));
        Self {
            core: Core::new(&config, server, true),
            address: ([127, 0, 0, 1], port).into(),
            connection: None,
            is_passive: false,
            events: Vec::new(),
        }
    }

    fn receive(&mut self, now: Instant, source: SocketAddr, bytes: &[u8]) {
        let datagram = Datagram { source, local_ip: None, ecn: 0, bytes: BytesMut::from(bytes) };
        self.core.receive(now, datagram);
    }

    /// The application: takes what arrived, answers, releases closed connections.
    fn serve(&mut self, now: Instant) {
        while let Some(event) = self.core.next_event() {
            match event {
                Event::Incoming(incoming) => {
                    if let Ok(handle) = self.core.accept(now, incoming, None) {
                        self.connection = Some(handle);
                    }
                }
                Event::Drained(handle) => assert!(self.core.release(handle)),
                event if self.is_passive => self.events.push(event),
                Event::Opened(handle, direction) => self.accept(handle, direction),
                Event::Readable(handle, stream) => self.read(handle, stream),
                Event::DatagramReceived(handle) => {
                    if let Some(mut connection) = self.core.connection(handle) {
                        while connection.receive_datagram().is_some() {}
                    }
                }
                _ => {}
            }
        }
    }

    fn accept(&mut self, handle: Handle, direction: Direction) {
        while let Some(mut connection) = self.core.connection(handle)
            && let Some(stream) = connection.accept(direction)
        {
            if direction == Direction::Bi {
                drop(connection.write(stream, b"answer"));
                drop(connection.finish(stream));
            }
            self.read(handle, stream);
        }
    }

    fn read(&mut self, handle: Handle, stream: StreamId) {
        if let Some(mut connection) = self.core.connection(handle) {
            drop(connection.read(stream, usize::MAX, |_| true));
        }
    }
}

/// Two ends, the datagrams between them, and a clock.
struct Net {
    now: Instant,
    ends: [End; 2],
    buf: Vec<u8>,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Net {
    fn new() -> Self {
        Self {
            now: Instant::now(),
            ends: [End::new(1, None), End::new(2, Some(configs().0.clone()))],
            buf: Vec::new(),
        }
    }

    fn connect(&mut self) {
        let address = self.ends[SERVER].address;
        let client = &mut self.ends[CLIENT];
        let handle = client.core.connect(self.now, &configs().1, address, "localhost");
        client.connection = handle.ok();
    }

    fn connection(&mut self, end: usize) -> Option<crate::core::Connection<'_>> {
        let end = &mut self.ends[end];
        end.core.connection(end.connection?)
    }

    /// Collects what an end sends now, one datagram per entry.
    fn sent(&mut self, end: usize, into: &mut VecDeque<(usize, Vec<u8>)>) {
        let (now, buf) = (self.now, &mut self.buf);
        while let Some(transmit) = self.ends[end].core.transmit(now, 16, buf) {
            let segment_len = transmit.segment_len.unwrap_or(buf.len()).max(1);
            into.extend(buf.chunks(segment_len).map(|bytes| (1 - end, bytes.to_vec())));
        }
    }

    /// Runs both ends until they are idle; `spoil` sees every datagram, and may drop it by clearing
    /// it.
    fn run(&mut self, mut spoil: impl FnMut(&mut Vec<u8>)) {
        let mut wire = VecDeque::new();
        for _turn in 0..TURNS_MAX {
            for end in [CLIENT, SERVER] {
                self.ends[end].core.handle_timeouts(self.now);
                self.ends[end].serve(self.now);
                self.sent(end, &mut wire);
                // Sending ends connections.
                self.ends[end].serve(self.now);
            }
            let Some((to, mut bytes)) = wire.pop_front() else {
                let now = self.now;
                let is_due = |end: &mut End| end.core.next_timeout().is_some_and(|due| due <= now);
                if !self.ends.iter_mut().any(is_due) {
                    return;
                }
                continue;
            };
            spoil(&mut bytes);
            let source = self.ends[1 - to].address;
            if !bytes.is_empty() {
                self.ends[to].receive(self.now, source, &bytes);
            }
            self.now += Duration::from_micros(10);
        }
        panic!("not idle after {TURNS_MAX} turns");
    }

    /// Advances time to the next deadline; `false` if there is none.
    fn wait(&mut self) -> bool {
        let due = self.ends.iter_mut().filter_map(|end| end.core.next_timeout());
        let Some(due) = due.min() else {
            return false;
        };
        self.now = self.now.max(due);
        true
    }

    /// Closes, and checks that both ends release everything.
    fn end(mut self) {
        tamper::set_frames(None);
        for end in [CLIENT, SERVER] {
            let now = self.now;
            if let Some(mut connection) = self.connection(end) {
                connection.close(now, 7, Bytes::from_static(b"over"));
            }
        }
        for _deadline in 0..TURNS_MAX {
            self.run(|_| {});
            if !self.wait() {
                break;
            }
        }
        for end in &self.ends {
            assert_eq!(end.core.connection_count(), 0, "a connection does not end");
        }
    }
}

/// Arbitrary datagrams, sent to a server without connections and a client that waits for an answer.
pub fn datagrams(data: &[u8]) {
    let mut net = Net::new();
    let mut choices = Choices(data);
    net.connect();
    // The client's packets are dropped.
    net.run(Vec::clear);
    while !choices.is_over() {
        let choice = choices.byte();
        let len = usize::from(choices.byte()) << (choice >> 6);
        let mut bytes = choices.take(len).to_vec();
        if choice & 2 != 0 {
            // Long enough to be an Initial.
            bytes.resize(bytes.len().max(1200), 0);
        }
        let to = usize::from(choice & 1);
        let source = net.ends[1 - to].address;
        net.ends[to].receive(net.now, source, &bytes);
        net.run(Vec::clear);
    }
    net.end();
}

/// A handshake and an exchange whose datagrams are changed, cut, lost and duplicated.
pub fn mutations(data: &[u8]) {
    let mut net = Net::new();
    let mut choices = Choices(data);
    net.connect();
    for round in 0..4 {
        net.run(|bytes| match choices.byte() {
            0..0x80 => {}
            0x80..0xa0 => bytes.clear(),
            0xa0..0xc0 => {
                let keep = usize::from(choices.byte()) * bytes.len() / 256;
                bytes.truncate(keep);
            }
            0xc0..0xf0 => {
                let at = usize::from(choices.byte()) * bytes.len() / 256;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= choices.byte();
                }
            }
            _ => {
                let more = usize::from(choices.byte());
                bytes.extend_from_slice(choices.take(more));
            }
        });
        act(&mut net, round % 2, &[round as u8; 2000]);
        if choices.byte() & 1 != 0 {
            net.wait();
        }
    }
    net.end();
}

/// Performs an application's operation on a connection.
fn act(net: &mut Net, end: usize, bytes: &[u8]) {
    let Some(mut connection) = net.connection(end) else {
        return;
    };
    for direction in [Direction::Bi, Direction::Uni] {
        if let Some(stream) = connection.open(direction) {
            drop(connection.write(stream, bytes));
            drop(connection.finish(stream));
        }
    }
    drop(connection.send_datagram(Bytes::copy_from_slice(&bytes[..100]), true));
    if let Some(stream) = connection.open(Direction::Uni) {
        connection.keep_head(stream, 5);
        drop(connection.write(stream, bytes));
        drop(connection.reset(stream, 9));
    }
}

/// A peer with valid keys that sends arbitrary frames, during the handshake and after it.
pub fn frames(data: &[u8]) {
    let mut net = Net::new();
    let mut choices = Choices(data);
    let first = choices.byte();
    net.connect();
    if first & 1 != 0 {
        net.run(|_| {});
        act(&mut net, SERVER, &[1; 500]);
    }
    while !choices.is_over() {
        let choice = choices.byte();
        let attacker = usize::from(choice & 1);
        let count = usize::from(choices.byte()) * (1 + usize::from(choice >> 7) * 4);
        tamper::set_frames(Some(choices.take(count)));
        if let Some(mut connection) = net.connection(attacker) {
            connection.ping();
        }
        let mut wire = VecDeque::new();
        net.sent(attacker, &mut wire);
        tamper::set_frames(None);
        let source = net.ends[attacker].address;
        for (to, bytes) in wire {
            net.ends[to].receive(net.now, source, &bytes);
        }
        if choice & 2 != 0 {
            net.run(|_| {});
        }
        if choice & 4 != 0 {
            act(&mut net, 1 - attacker, &[2; 3000]);
        }
        if choice & 8 != 0 {
            net.wait();
        }
    }
    net.run(|_| {});
    net.end();
}

/// A peer with arbitrary transport parameters.
pub fn parameters(data: &[u8]) {
    let mut net = Net::new();
    let Some((choice, instead)) = data.split_first() else {
        return;
    };
    let is_server = choice & 1 != 0;
    if !is_server {
        tamper::set_parameters(Some(instead));
    }
    net.connect();
    if is_server {
        tamper::set_parameters(Some(instead));
    }
    net.run(|_| {});
    tamper::set_parameters(None);
    for round in 0..4 {
        act(&mut net, round % 2, &vec![3; 20_000]);
        net.run(|_| {});
        net.wait();
    }
    net.end();
}

/// A packet's payload, whose `RESET_STREAM_AT` frames are rewritten.
pub fn rewriting(data: &[u8]) {
    crate::proto::reset_at::fuzzed(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringloop_testing::corpus::replay;

    const CRATE: &str = env!("CARGO_MANIFEST_DIR");

    #[test]
    fn arbitrary_datagrams_are_harmless() {
        replay(CRATE, "datagrams", 300, datagrams);
    }

    #[test]
    fn mutated_datagrams_are_harmless() {
        replay(CRATE, "mutations", 100, mutations);
    }

    #[test]
    fn arbitrary_frames_are_harmless() {
        replay(CRATE, "frames", 200, frames);
    }

    #[test]
    fn arbitrary_transport_parameters_are_harmless() {
        replay(CRATE, "parameters", 200, parameters);
    }

    #[test]
    fn arbitrary_payloads_are_rewritten_in_place() {
        replay(CRATE, "rewriting", 2000, rewriting);
    }

    #[test]
    fn injected_frames_reach_the_peer() {
        let mut net = Net::new();
        net.connect();
        net.run(|_| {});
        // HANDSHAKE_DONE may be sent by a server only (RFC 9000 §19.20).
        tamper::set_frames(Some(&[0x1e]));
        net.connection(CLIENT).unwrap().ping();
        let mut wire = VecDeque::new();
        net.sent(CLIENT, &mut wire);
        let source = net.ends[CLIENT].address;
        for (to, bytes) in wire {
            net.ends[to].receive(net.now, source, &bytes);
        }
        let mut codes = Vec::new();
        while let Some(event) = net.ends[SERVER].core.next_event() {
            if let Event::Lost(_, crate::error::ConnectionError::Transport { code, .. }) = event {
                codes.push(code);
            }
        }
        assert_eq!(codes, [0xa], "PROTOCOL_VIOLATION");
        net.end();
    }
}
