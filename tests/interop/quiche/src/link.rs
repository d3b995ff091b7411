//! A QUIC connection with HTTP/3 on it, and what is still to be sent.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::time::Duration;

use quiche::h3::{self, Header};

use crate::Error;

const DATAGRAM_BYTES_MAX: usize = 1350;
const WINDOW: u64 = 4 << 20;
const STREAMS: u64 = 200;
const IDLE_MILLIS: u64 = 30_000;
const REQUEST_CANCELLED: u64 = 0x10c;
const PIECE: [u8; 16 << 10] = [0; 16 << 10];
pub const ID_LEN: usize = 16;
/// The longest wait for a datagram.
const WAIT_MAX: Duration = Duration::from_millis(50);

pub fn config() -> Result<quiche::Config, Error> {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(h3::APPLICATION_PROTOCOL)?;
    config.set_max_idle_timeout(IDLE_MILLIS);
    config.set_max_recv_udp_payload_size(DATAGRAM_BYTES_MAX);
    config.set_max_send_udp_payload_size(DATAGRAM_BYTES_MAX);
    config.set_initial_max_data(4 * WINDOW);
    config.set_initial_max_stream_data_bidi_local(WINDOW);
    config.set_initial_max_stream_data_bidi_remote(WINDOW);
    config.set_initial_max_stream_data_uni(WINDOW);
    config.set_initial_max_streams_bidi(STREAMS);
    config.set_initial_max_streams_uni(STREAMS);
    config.enable_pacing(false);
    Ok(config)
}

/// The rest of a message.
#[derive(Default)]
pub struct Outgoing {
    /// Of a server: interim responses and the final one.
    pub heads: Vec<Vec<Header>>,
    pub has_begun: bool,
    pub data: Vec<u8>,
    pub is_last: bool,
    pub trailers: Vec<Header>,
    /// It never ends.
    pub is_endless: bool,
}

pub struct Link {
    pub quic: quiche::Connection,
    pub http: Option<h3::Connection>,
    pub outgoing: HashMap<u64, Outgoing>,
    /// Streams that the peer has stopped.
    pub cancelled: u64,
}

impl Link {
    pub fn new(quic: quiche::Connection) -> Self {
        Self { quic, http: None, outgoing: HashMap::new(), cancelled: 0 }
    }

    /// The next event of HTTP/3.
    pub fn poll(&mut self) -> Result<Option<(u64, h3::Event)>, Error> {
        if self.http.is_none() && self.quic.is_established() {
            let config = h3::Config::new()?;
            self.http = Some(h3::Connection::with_transport(&mut self.quic, &config)?);
        }
        let Some(http) = &mut self.http else { return Ok(None) };
        match http.poll(&mut self.quic) {
            Ok(event) => Ok(Some(event)),
            Err(h3::Error::Done) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What is there of a body.
    pub fn read(&mut self, stream: u64) -> Vec<u8> {
        let (mut data, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        let Some(http) = &mut self.http else { return data };
        while let Ok(count) = http.recv_body(&mut self.quic, stream, &mut piece) {
            data.extend_from_slice(&piece[..count]);
        }
        data
    }

    /// Sends what the peer takes of all messages, then the datagrams.
    pub fn flush(&mut self, socket: &UdpSocket) -> Result<(), Error> {
        let streams: Vec<u64> = self.outgoing.keys().copied().collect();
        for stream in streams {
            if self.flush_stream(stream)? {
                self.outgoing.remove(&stream);
            }
        }
        let mut datagram = [0; DATAGRAM_BYTES_MAX];
        loop {
            match self.quic.send(&mut datagram) {
                Ok((count, info)) => match socket.send_to(&datagram[..count], info.to) {
                    Ok(_) => {}
                    // As if it was lost on the way.
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error.into()),
                },
                Err(quiche::Error::Done) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends what the peer takes of a message; whether it is over.
    fn flush_stream(&mut self, stream: u64) -> Result<bool, Error> {
        let (Some(http), Some(rest)) = (&mut self.http, self.outgoing.get_mut(&stream)) else {
            return Ok(true);
        };
        while let Some(head) = rest.heads.first() {
            let sent = if rest.has_begun {
                http.send_additional_headers(&mut self.quic, stream, head, false, false)
            } else {
                http.send_response(&mut self.quic, stream, head, false)
            };
            match sent {
                Ok(()) => drop(rest.heads.remove(0)),
                Err(h3::Error::StreamBlocked) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            rest.has_begun = true;
        }
        loop {
            if rest.is_endless && rest.data.is_empty() {
                rest.data.extend_from_slice(&PIECE);
            }
            let ends = rest.is_last && rest.trailers.is_empty();
            if rest.data.is_empty() && !ends {
                break;
            }
            match http.send_body(&mut self.quic, stream, &rest.data, ends) {
                Ok(count) => drop(rest.data.drain(..count)),
                Err(h3::Error::Done | h3::Error::StreamBlocked) => return Ok(false),
                Err(h3::Error::TransportError(quiche::Error::StreamStopped(_))) => {
                    self.cancelled += 1;
                    let way = quiche::Shutdown::Write;
                    self.quic.stream_shutdown(stream, way, REQUEST_CANCELLED).ok();
                    return Ok(true);
                }
                Err(error) => return Err(error.into()),
            }
            if rest.data.is_empty() && ends {
                return Ok(true);
            }
        }
        if !rest.is_last {
            return Ok(false);
        }
        match http.send_additional_headers(&mut self.quic, stream, &rest.trailers, true, true) {
            Ok(()) => Ok(true),
            Err(h3::Error::StreamBlocked) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// How long to wait for a datagram.
    pub fn wait(&self) -> Duration {
        let due = self.quic.timeout().unwrap_or(WAIT_MAX);
        due.clamp(Duration::from_millis(1), WAIT_MAX)
    }
}

/// A connection ID that cannot be guessed.
pub fn random_id() -> [u8; ID_LEN] {
    use std::hash::{BuildHasher, RandomState};
    let half = || u128::from(RandomState::new().hash_one(0));
    (half() << 64 | half()).to_be_bytes()
}
