//! A client and a server with a network between them that cuts and reorders streams.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri};
use ringloop_h3::webtransport::{Config, Direction, Error, Event, Sessions};
use ringloop_h3::{
    Code, Connection, ConnectionError, Event as H3Event, LocalStreams, Protocol, Role, StreamId,
    Transmit,
};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Marsaglia's xorshift: the same numbers everywhere.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed * 2 + 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    pub fn bytes(&mut self, len_max: u64) -> Bytes {
        (0..self.below(len_max)).map(|_| self.below(256) as u8).collect()
    }
}

/// What has arrived on a stream of the application.
#[derive(Debug, Default)]
pub struct Received {
    pub bytes: Vec<u8>,
    pub fin: bool,
    pub reset: Option<Code>,
    pub stop: Option<Code>,
}

pub struct End {
    pub role: Role,
    pub h3: Connection,
    pub sessions: Sessions,
    pub events: VecDeque<Event>,
    /// Events of the connection that are not of WebTransport.
    pub others: Vec<H3Event>,
    pub streams: HashMap<StreamId, Received>,
    pub error: Option<ConnectionError>,
    /// Streams that belong to the application.
    raw: HashSet<StreamId>,
    /// Streams of which nothing is passed to the connection any more.
    stopped: HashSet<StreamId>,
    next_bidirectional: u64,
    next_unidirectional: u64,
    /// False if no sessions are looked after: a peer that does what it likes.
    has_sessions: bool,
}

#[derive(Debug)]
enum Piece {
    Data(Bytes, bool),
    Reset(Code),
    Stop(Code),
}

/// One direction of the network.
#[derive(Default)]
struct Way {
    streams: BTreeMap<StreamId, VecDeque<Piece>>,
    datagrams: VecDeque<Bytes>,
    /// Streams that are not delivered.
    held: HashSet<StreamId>,
}

pub struct Pair {
    pub client: End,
    pub server: End,
    pub numbers: Numbers,
    to_server: Way,
    to_client: Way,
}

impl End {
    fn new(role: Role, wanted: &Config, only: Option<&[u64]>) -> Self {
        let mut config = ringloop_h3::Config::default();
        wanted.enable(role, &mut config);
        if let Some(only) = only {
            config.settings.others.retain(|(id, _)| only.contains(id));
        }
        let own = u64::from(role == Role::Server);
        let local = LocalStreams {
            control: StreamId(2 + own),
            encoder: StreamId(6 + own),
            decoder: StreamId(10 + own),
        };
        Self {
            role,
            h3: Connection::new(role, config, local),
            sessions: Sessions::new(role, wanted.clone()),
            events: VecDeque::new(),
            others: Vec::new(),
            streams: HashMap::new(),
            error: None,
            raw: HashSet::new(),
            stopped: HashSet::new(),
            next_bidirectional: own,
            next_unidirectional: 14 + own,
            has_sessions: true,
        }
    }

    /// A stream of QUIC.
    pub fn quic_stream(&mut self, direction: Direction) -> StreamId {
        let next = match direction {
            Direction::Bidirectional => &mut self.next_bidirectional,
            Direction::Unidirectional => &mut self.next_unidirectional,
        };
        *next += 4;
        StreamId(*next - 4)
    }

    fn fail(&mut self, result: Result<(), ConnectionError>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    fn drain(&mut self, way: &mut Way) {
        while let Some(event) = self.h3.poll_event() {
            if let H3Event::Raw { stream, .. } = event {
                self.raw.insert(stream);
            }
            if !self.has_sessions {
                self.others.push(event);
                continue;
            }
            match self.sessions.handle(&mut self.h3, event) {
                Ok(other) => self.others.extend(other),
                Err(error) => self.fail(Err(error)),
            }
        }
        while let Some(event) = self.sessions.poll_event() {
            if let Event::Stream { stream, data, fin, .. } = &event {
                let received = self.streams.entry(*stream).or_default();
                received.bytes.extend_from_slice(data);
                received.fin |= fin;
            }
            self.events.push_back(event);
        }
        while let Some(transmit) = self.h3.poll_transmit() {
            if let Transmit::Stop { stream, .. } = transmit {
                self.stopped.insert(stream);
            }
            way.send(transmit);
        }
        while let Some(transmit) = self.sessions.poll_transmit() {
            assert!(matches!(
                transmit,
                Transmit::Reset { stream, .. } | Transmit::Stop { stream, .. } if self.raw.contains(&stream)
            ));
            way.send(transmit);
        }
    }

    fn receive(&mut self, stream: StreamId, piece: Piece) {
        if self.error.is_some() {
            return;
        }
        if self.raw.contains(&stream) {
            // What follows the first bytes of a stream that the application may not have been given yet.
            let received = self.streams.entry(stream).or_default();
            match piece {
                Piece::Data(data, fin) => {
                    received.bytes.extend_from_slice(&data);
                    received.fin |= fin;
                }
                Piece::Reset(code) => received.reset = Some(code),
                Piece::Stop(code) => received.stop = Some(code),
            }
            return;
        }
        let result = match piece {
            Piece::Stop(code) => self.h3.receive_stop(stream, code),
            _ if self.stopped.contains(&stream) => Ok(()),
            Piece::Data(data, fin) => self.h3.receive(stream, data, fin),
            Piece::Reset(code) => self.h3.receive_reset(stream, code),
        };
        self.fail(result);
    }

    /// The next event that `pick` takes; those before it are dropped.
    pub fn find<T>(&mut self, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
        while let Some(event) = self.events.pop_front() {
            if let Some(found) = pick(&event) {
                return found;
            }
        }
        panic!("{:?}: no such event", self.role)
    }

    pub fn request(&mut self) -> StreamId {
        self.find(|event| match event {
            Event::Request { session, .. } => Some(*session),
            _ => None,
        })
    }
}

impl Way {
    fn send(&mut self, transmit: Transmit) {
        let (stream, piece) = match transmit {
            Transmit::Stream { stream, data, fin } => (stream, Piece::Data(data, fin)),
            Transmit::Reset { stream, code } => {
                // What has not arrived is lost.
                let pieces = self.streams.entry(stream).or_default();
                pieces.retain(|piece| matches!(piece, Piece::Stop(_)));
                (stream, Piece::Reset(code))
            }
            Transmit::Stop { stream, code } => (stream, Piece::Stop(code)),
            Transmit::Datagram(datagram) => return self.datagrams.push_back(datagram),
        };
        self.streams.entry(stream).or_default().push_back(piece);
    }

    /// Takes a piece of any stream, or a datagram.
    fn take(&mut self, numbers: &mut Numbers) -> Option<Result<(StreamId, Piece), Bytes>> {
        let held = &self.held;
        let ready: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(stream, pieces)| !pieces.is_empty() && !held.contains(stream))
            .map(|(stream, _)| *stream)
            .collect();
        let at = numbers.below((ready.len() + self.datagrams.len()).max(1) as u64) as usize;
        let Some(stream) = ready.get(at) else {
            return self.datagrams.pop_front().map(Err);
        };
        let pieces = self.streams.get_mut(stream)?;
        let piece = match pieces.pop_front()? {
            Piece::Data(mut data, fin) if data.len() > 1 && numbers.below(2) == 0 => {
                let rest = data.split_off(numbers.below(data.len() as u64) as usize);
                pieces.push_front(Piece::Data(rest, fin));
                Piece::Data(data, false)
            }
            piece => piece,
        };
        Some(Ok((*stream, piece)))
    }
}

impl Pair {
    pub fn new(seed: u64, client: &Config, server: &Config) -> Self {
        Self::with_settings(seed, client, server, None)
    }

    /// A pair whose client announces `only` these settings of WebTransport.
    pub fn with_settings(
        seed: u64,
        client: &Config,
        server: &Config,
        only: Option<&[u64]>,
    ) -> Self {
        Self {
            client: End::new(Role::Client, client, only),
            server: End::new(Role::Server, server, None),
            numbers: Numbers::new(seed),
            to_server: Way::default(),
            to_client: Way::default(),
        }
    }

    /// A pair whose SETTINGS have been exchanged.
    pub fn connected(seed: u64, config: &Config) -> Self {
        let mut pair = Self::new(seed, config, config);
        pair.settle();
        pair
    }

    /// A pair with one open session.
    pub fn open(seed: u64, config: &Config) -> (Self, StreamId) {
        let mut pair = Self::connected(seed, config);
        let session = pair.open_session();
        (pair, session)
    }

    /// A pair whose server announces `only` these settings of WebTransport.
    pub fn with_server_settings(seed: u64, config: &Config, only: &[u64]) -> Self {
        let mut pair = Self::new(seed, config, config);
        pair.server = End::new(Role::Server, config, Some(only));
        pair
    }

    pub fn end(&mut self, role: Role) -> &mut End {
        match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        }
    }

    fn way(&mut self, from: Role) -> &mut Way {
        match from {
            Role::Client => &mut self.to_server,
            Role::Server => &mut self.to_client,
        }
    }

    /// From now on `role` breaks the protocol as it likes: its own sessions are gone.
    pub fn make_hostile(&mut self, role: Role) {
        self.end(role).has_sessions = false;
    }

    pub fn hold(&mut self, from: Role, stream: StreamId) {
        self.way(from).held.insert(stream);
    }

    /// Delivers what was held, in time.
    pub fn release(&mut self) {
        self.to_server.held.clear();
        self.to_client.held.clear();
    }

    pub fn deliver_all(&mut self) {
        self.release();
        self.settle();
    }

    /// Sends what the ends have to send.
    pub fn flush(&mut self) {
        self.client.drain(&mut self.to_server);
        self.server.drain(&mut self.to_client);
    }

    /// Delivers one thing; false if there is nothing.
    pub fn step(&mut self) -> bool {
        self.flush();
        let client_first = self.numbers.below(2) == 0;
        for to_client in [client_first, !client_first] {
            let (way, end) = if to_client {
                (&mut self.to_client, &mut self.client)
            } else {
                (&mut self.to_server, &mut self.server)
            };
            match way.take(&mut self.numbers) {
                Some(Ok((stream, piece))) => end.receive(stream, piece),
                Some(Err(datagram)) => {
                    let result = end.h3.receive_datagram(datagram);
                    end.fail(result);
                }
                None => continue,
            }
            self.flush();
            return true;
        }
        false
    }

    pub fn settle(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 1_000_000, "comes to no rest");
        }
        assert_eq!((self.client.error, self.server.error), (None, None));
    }

    /// Delivers everything, to a connection that ends by it.
    pub fn settle_with_error(&mut self, role: Role) -> Code {
        while self.step() {}
        self.end(role).error.expect("the connection goes on").code
    }

    /// A client's request for a session; not delivered yet.
    pub fn connect(&mut self, protocols: &[&str]) -> Result<StreamId, Error> {
        let client = &mut self.client;
        let stream = client.quic_stream(Direction::Bidirectional);
        let uri = Uri::from_static("https://example.org/echo");
        client.sessions.connect(&mut client.h3, stream, &uri, HeaderMap::new(), protocols)?;
        Ok(stream)
    }

    pub fn open_session(&mut self) -> StreamId {
        let session = self.connect(&[]).unwrap();
        self.settle();
        assert_eq!(self.server.request(), session);
        let server = &mut self.server;
        server.sessions.accept(&mut server.h3, session, HeaderMap::new(), None).unwrap();
        self.settle();
        self.client.find(|event| match event {
            Event::Accepted { session: id, .. } => (*id == session).then_some(()),
            _ => None,
        });
        session
    }

    /// A request for a session by a client that has none.
    pub fn request_by_hand(&mut self, protocol: &str, headers: HeaderMap) -> StreamId {
        let client = &mut self.client;
        let stream = client.quic_stream(Direction::Bidirectional);
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::CONNECT;
        parts.uri = Uri::from_static("https://example.org/echo");
        parts.headers = headers;
        parts.extensions.insert(Protocol::new(protocol));
        client.h3.send_request(stream, &parts, false).unwrap();
        stream
    }

    /// Opens a stream of a session, and sends its header.
    pub fn open_stream(
        &mut self,
        from: Role,
        session: StreamId,
        direction: Direction,
    ) -> Result<StreamId, Error> {
        let end = self.end(from);
        end.sessions.can_open(&mut end.h3, session, direction)?;
        let stream = end.quic_stream(direction);
        let header = end.sessions.open(&mut end.h3, session, stream)?;
        end.raw.insert(stream);
        self.write(from, stream, header, false);
        Ok(stream)
    }

    /// A stream with a header of the sender's own making.
    pub fn stream_by_hand(&mut self, from: Role, direction: Direction, bytes: &[u8]) -> StreamId {
        let end = self.end(from);
        let stream = end.quic_stream(direction);
        end.raw.insert(stream);
        self.write(from, stream, Bytes::copy_from_slice(bytes), false);
        stream
    }

    /// What the application writes on one of its streams.
    pub fn write(&mut self, from: Role, stream: StreamId, data: Bytes, fin: bool) {
        self.way(from).send(Transmit::Stream { stream, data, fin });
    }

    /// What the application does with one of its streams.
    pub fn signal(&mut self, from: Role, transmit: Transmit) {
        self.way(from).send(transmit);
    }
}
