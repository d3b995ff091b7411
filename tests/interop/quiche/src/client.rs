//! The client.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quiche::h3::{self, Event, Header};

use crate::link::{Link, Outgoing, config, random_id};
use crate::{Error, SMALL, field, header, pattern};

const PATIENCE: Duration = Duration::from_secs(20);
const PARALLEL: usize = 100;
const LARGE: usize = 12_000;
const REQUEST_CANCELLED: u64 = 0x10c;
const NO_ERROR: u64 = 0x100;

#[derive(Default)]
struct Response {
    heads: Vec<Vec<Header>>,
    body: Vec<u8>,
    has_ended: bool,
    reset: Option<u64>,
}

impl Response {
    /// A field of the final response, or of the trailers behind it.
    fn field(&self, name: &str) -> String {
        let last = self.heads.iter().rev().find_map(|head| field(head, name));
        last.unwrap_or_default()
    }

    fn statuses(&self) -> Vec<String> {
        self.heads.iter().filter_map(|head| field(head, ":status")).collect()
    }
}

struct Client {
    link: Link,
    socket: UdpSocket,
    local: SocketAddr,
    authority: String,
    deadline: Instant,
    responses: HashMap<u64, Response>,
    is_going_away: bool,
}

pub fn run(authority: &str, port: u16, case: &str) -> Result<(), Error> {
    let mut config = config()?;
    config.load_verify_locations_from_file(authority)?;
    config.verify_peer(true);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (local, peer) = (socket.local_addr()?, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let id = random_id();
    let ours = quiche::ConnectionId::from_ref(&id);
    let quic = quiche::connect(Some("localhost"), &ours, local, peer, &mut config)?;
    let mut client = Client {
        link: Link::new(quic),
        socket,
        local,
        authority: format!("localhost:{port}"),
        deadline: Instant::now() + PATIENCE,
        responses: HashMap::new(),
        is_going_away: false,
    };
    client.until(|client| client.link.http.is_some())?;
    client.play(case)?;
    client.link.quic.close(true, NO_ERROR, b"").ok();
    client.link.flush(&client.socket)
}

impl Client {
    /// Receives and sends until something is so.
    fn until(&mut self, is_so: impl Fn(&Self) -> bool) -> Result<(), Error> {
        let mut datagram = vec![0; 65535];
        loop {
            while let Some((stream, event)) = self.link.poll()? {
                self.take(stream, event);
            }
            self.link.flush(&self.socket)?;
            if is_so(self) {
                return Ok(());
            }
            if self.link.quic.is_closed() {
                return Err(format!("closed: {:?}", self.link.quic.peer_error()).into());
            }
            if Instant::now() > self.deadline {
                return Err("timeout".into());
            }
            self.socket.set_read_timeout(Some(self.link.wait()))?;
            match self.socket.recv_from(&mut datagram) {
                Ok((count, from)) => {
                    let info = quiche::RecvInfo { from, to: self.local };
                    self.link.quic.recv(&mut datagram[..count], info)?;
                }
                Err(_) if self.link.quic.timeout().is_some_and(|due| due.is_zero()) => {
                    self.link.quic.on_timeout();
                }
                Err(_) => {}
            }
        }
    }

    fn take(&mut self, stream: u64, event: Event) {
        let response = self.responses.entry(stream).or_default();
        match event {
            Event::Headers { list, .. } => response.heads.push(list),
            Event::Data => response.body.extend(self.link.read(stream)),
            Event::Finished => response.has_ended = true,
            Event::Reset(code) => response.reset = Some(code),
            Event::GoAway => self.is_going_away = true,
            Event::PriorityUpdate => {}
        }
    }

    fn begin(
        &mut self,
        method: &str,
        path: &str,
        more: &[Header],
        body: Option<Outgoing>,
    ) -> Result<u64, Error> {
        let mut list = vec![
            header(":method", method),
            header(":scheme", "https"),
            header(":authority", &self.authority),
            header(":path", path),
        ];
        list.extend_from_slice(more);
        loop {
            let http = self.link.http.as_mut().ok_or("no HTTP/3")?;
            match http.send_request(&mut self.link.quic, &list, body.is_none()) {
                Ok(stream) => {
                    self.responses.insert(stream, Response::default());
                    if let Some(body) = body {
                        self.link.outgoing.insert(stream, body);
                    }
                    return Ok(stream);
                }
                Err(
                    h3::Error::StreamBlocked
                    | h3::Error::TransportError(quiche::Error::StreamLimit),
                ) => {
                    let ended = self.ended();
                    self.until(|client| client.ended() > ended)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn ended(&self) -> usize {
        self.responses.values().filter(|response| response.has_ended).count()
    }

    fn finish(&mut self, stream: u64) -> Result<Response, Error> {
        self.until(|client| {
            let response = &client.responses[&stream];
            response.has_ended || response.reset.is_some()
        })?;
        self.responses.remove(&stream).ok_or_else(|| "no response".into())
    }

    fn fetch(&mut self, path: &str, more: &[Header]) -> Result<Response, Error> {
        let stream = self.begin("GET", path, more, None)?;
        self.finish(stream)
    }

    fn get(&mut self, path: &str, wanted: &[u8]) -> Result<Response, Error> {
        let response = self.fetch(path, &[])?;
        same(&response.body, wanted)?;
        Ok(response)
    }

    fn echo(&mut self, data: &[u8], trailers: Vec<Header>) -> Result<Response, Error> {
        let body = Outgoing { data: data.to_vec(), is_last: true, trailers, ..Outgoing::default() };
        let stream = self.begin("POST", "/echo", &[], Some(body))?;
        let response = self.finish(stream)?;
        same(&response.body, data)?;
        Ok(response)
    }

    fn play(&mut self, case: &str) -> Result<(), Error> {
        match case {
            "get" => self.get("/small", SMALL).map(drop),
            "head" => {
                let stream = self.begin("HEAD", "/small", &[], None)?;
                let response = self.finish(stream)?;
                same(response.field("content-length").as_bytes(), b"6")?;
                same(&response.body, b"")
            }
            "post" => self.echo(&pattern(), Vec::new()).map(drop),
            "parallel" => {
                let mut streams = Vec::new();
                for at in 0..PARALLEL {
                    streams.push(self.begin("GET", &format!("/number/{at}"), &[], None)?);
                }
                for (at, stream) in streams.into_iter().enumerate() {
                    same(&self.finish(stream)?.body, at.to_string().as_bytes())?;
                }
                Ok(())
            }
            "headers" => {
                let large = "x".repeat(LARGE);
                let response = self.fetch("/headers", &[header("x-large", &large)])?;
                same(response.field("x-large").as_bytes(), large.as_bytes())
            }
            "trailers" => {
                let response = self.get("/trailers", SMALL)?;
                same(response.field("x-checksum").as_bytes(), b"42")
            }
            "request-trailers" => {
                let response = self.echo(SMALL, vec![header("x-checksum", "7")])?;
                same(response.field("x-checksum").as_bytes(), b"7")
            }
            "interim" => {
                let statuses = self.get("/interim", SMALL)?.statuses();
                same(statuses.join(" ").as_bytes(), b"103 200")
            }
            "priority" => {
                let response = self.fetch("/priority", &[header("priority", "u=1, i")])?;
                same(&response.body, b"u=1, i")
            }
            "client-reset" => {
                let stream = self.begin("GET", "/endless", &[], None)?;
                self.until(|client| !client.responses[&stream].body.is_empty())?;
                let way = quiche::Shutdown::Read;
                self.link.quic.stream_shutdown(stream, way, REQUEST_CANCELLED)?;
                while self.fetch("/cancelled", &[])?.body != b"1" {}
                Ok(())
            }
            "server-reset" => {
                if self.fetch("/reset", &[])?.reset.is_none() {
                    return Err("the response was complete".into());
                }
                self.get("/small", SMALL).map(drop)
            }
            "goaway" => {
                self.get("/goaway", &pattern())?;
                self.until(|client| client.is_going_away)
            }
            _ => Err("no such case".into()),
        }
    }
}

fn same(got: &[u8], wanted: &[u8]) -> Result<(), Error> {
    if got == wanted {
        return Ok(());
    }
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    Err(format!("{:?} came instead of {:?}", shown(got), shown(wanted)).into())
}
