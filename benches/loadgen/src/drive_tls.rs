//! The echo load through TLS, and handshakes: a connection, one byte echoed, the next connection.
//!
//! Owns: the TLS of the connections. Called by: `main`.
//!
//! Uses rustls, so that the client shares no code with what it measures, and only epoll: the cost
//! of a record is far above what a ring would save.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::exchange::{Exchange, Script};
use crate::options::{Mode, Options};
use crate::sys::Epoll;
use crate::tally::Tally;

/// Receive size; rustls's default of 4 KiB would make the client the slower side.
const BUFFER_LEN: usize = 256 * 1024;
/// The name in the server's certificate.
const SERVER_NAME: &str = "localhost";

/// Load the server until the time of the tally is over.
pub fn run(options: &Options) -> io::Result<String> {
    let load = Load {
        addr: &options.addr,
        config: config(&options.authority)?,
        script: Script::echo(if options.mode == Mode::TlsHandshake { 1 } else { options.size }),
        reconnects: options.mode == Mode::TlsHandshake,
    };
    let mut epoll = Epoll::new(options.connections)?;
    let mut buffer = vec![0; BUFFER_LEN];
    let mut connections = (0..options.connections)
        .map(|index| Connection::open(&load, &epoll, index))
        .collect::<io::Result<Vec<_>>>()?;
    let mut tally = Tally::start(options.warmup, options.length, options.server_pids.clone());
    let mut alive = connections.len();
    let mut ready = Vec::with_capacity(alive);
    loop {
        let left = tally.left(Instant::now());
        if left.is_zero() || alive == 0 {
            return Ok(tally.report("epoll"));
        }
        epoll.wait(&mut ready, left)?;
        for &index in &ready {
            let index = index as usize;
            let connection = &mut connections[index];
            if let Err(why) = connection.react(&load, &epoll, index, &mut buffer, &mut tally) {
                tally.failed(&why);
                epoll.remove(connection.stream.as_raw_fd())?;
                alive -= 1;
            }
        }
    }
}

/// What all connections share.
struct Load<'a> {
    addr: &'a str,
    config: Arc<ClientConfig>,
    script: Script,
    reconnects: bool,
}

fn config(authority: &str) -> io::Result<Arc<ClientConfig>> {
    let certificate = CertificateDer::from_pem_file(authority).map_err(io::Error::other)?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    // Every handshake is a full one.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

struct Connection {
    stream: TcpStream,
    tls: ClientConnection,
    exchange: Exchange,
    sent: Instant,
    is_output_watched: bool,
}

impl Connection {
    fn open(load: &Load<'_>, epoll: &Epoll, index: usize) -> io::Result<Self> {
        let sent = Instant::now();
        let stream = TcpStream::connect(load.addr)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
        let config = Arc::clone(&load.config);
        let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        // A message of any length is one write.
        tls.set_buffer_limit(None);
        epoll.add(stream.as_raw_fd(), index as u64)?;
        let mut connection = Self {
            stream,
            tls,
            exchange: Exchange::new(load.script, index),
            sent,
            is_output_watched: false,
        };
        connection.begin(sent)?;
        connection.send(epoll, index)?;
        Ok(connection)
    }

    /// Queue the next request; it is sent after the handshake.
    fn begin(&mut self, now: Instant) -> io::Result<()> {
        self.sent = now;
        let request = self.exchange.next_request();
        self.tls.writer().write_all(request)
    }

    /// Send as much as possible; output is watched only while bytes are left.
    fn send(&mut self, epoll: &Epoll, index: usize) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let wants_output = self.tls.wants_write();
        if wants_output != self.is_output_watched {
            epoll.watch_output(self.stream.as_raw_fd(), index as u64, wants_output)?;
            self.is_output_watched = wants_output;
        }
        Ok(())
    }

    fn react(
        &mut self,
        load: &Load<'_>,
        epoll: &Epoll,
        index: usize,
        buffer: &mut [u8],
        tally: &mut Tally,
    ) -> io::Result<()> {
        if self.receive(buffer)? {
            let now = Instant::now();
            tally.completed(self.sent, now);
            if load.reconnects {
                return self.reconnect(load, epoll, index);
            }
            self.begin(now)?;
        }
        self.send(epoll, index)
    }

    fn reconnect(&mut self, load: &Load<'_>, epoll: &Epoll, index: usize) -> io::Result<()> {
        self.tls.send_close_notify();
        self.send(epoll, index)?;
        epoll.remove(self.stream.as_raw_fd())?;
        *self = Self::open(load, epoll, index)?;
        Ok(())
    }

    /// Receive once (the set is level-triggered); `true` if the response is complete.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let len = match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut ciphertext = &buffer[..len];
        let mut is_complete = false;
        while !ciphertext.is_empty() {
            self.tls.read_tls(&mut ciphertext)?;
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            let mut left = state.plaintext_bytes_to_read();
            let mut reader = self.tls.reader();
            while left > 0 {
                let chunk = io::BufRead::fill_buf(&mut reader)?;
                let len = chunk.len();
                let progress = if self.exchange.is_read_in_full() {
                    self.exchange.received(chunk)
                } else {
                    self.exchange.received_unseen(len)
                };
                is_complete = progress.map_err(|wrong| io::Error::other(wrong.0))?;
                io::BufRead::consume(&mut reader, len);
                left -= len;
            }
        }
        Ok(is_complete)
    }
}
