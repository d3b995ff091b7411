//! The same load on epoll, for kernels and containers that refuse `io_uring`.
//!
//! Owns: the connections' exchanges. Called by: `main`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Instant;

use crate::exchange::{Exchange, Script};
use crate::sys::{self, Epoll};
use crate::tally::Tally;

const BUFFER_LEN: usize = 64 * 1024;

struct Connection<'a> {
    stream: &'a TcpStream,
    exchange: Exchange,
    sent: Instant,
    unsent: &'static [u8],
    is_output_watched: bool,
}

/// Load the (non-blocking) sockets until the time of the tally is over.
pub fn run(streams: &[TcpStream], script: Script, tally: &mut Tally) -> io::Result<()> {
    let mut epoll = Epoll::new(streams.len())?;
    let mut buffer = vec![0; BUFFER_LEN.max(script.response_len())];
    let mut connections = Vec::with_capacity(streams.len());
    for (index, stream) in streams.iter().enumerate() {
        epoll.add(stream.as_raw_fd(), index as u64)?;
        let mut connection = Connection {
            stream,
            exchange: Exchange::new(script, index),
            sent: Instant::now(),
            unsent: &[],
            is_output_watched: false,
        };
        connection.begin(Instant::now());
        connection.send(&epoll, index)?;
        connections.push(connection);
    }
    let mut alive = connections.len();
    let mut ready = Vec::with_capacity(alive);
    loop {
        let left = tally.left(Instant::now());
        if left.is_zero() || alive == 0 {
            return Ok(());
        }
        epoll.wait(&mut ready, left)?;
        for &index in &ready {
            let connection = &mut connections[index as usize];
            if let Err(why) = connection.react(&epoll, index as usize, &mut buffer, tally) {
                tally.failed(&why);
                epoll.remove(connection.stream.as_raw_fd())?;
                alive -= 1;
            }
        }
    }
}

impl Connection<'_> {
    fn begin(&mut self, now: Instant) {
        self.sent = now;
        self.unsent = self.exchange.next_request();
    }

    /// Send as much as possible; output is watched only while bytes are left.
    fn send(&mut self, epoll: &Epoll, index: usize) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(self.unsent) {
                Ok(count) => self.unsent = &self.unsent[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let wants_output = !self.unsent.is_empty();
        if wants_output != self.is_output_watched {
            epoll.watch_output(self.stream.as_raw_fd(), index as u64, wants_output)?;
            self.is_output_watched = wants_output;
        }
        Ok(())
    }

    fn react(
        &mut self,
        epoll: &Epoll,
        index: usize,
        buffer: &mut [u8],
        tally: &mut Tally,
    ) -> io::Result<()> {
        if self.receive(buffer)? {
            let now = Instant::now();
            tally.completed(self.sent, now);
            self.begin(now);
        }
        self.send(epoll, index)
    }

    /// Receive once (the set is level-triggered); `true` if the response is complete.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let is_read = self.exchange.is_read_in_full();
        let received = if is_read {
            self.stream.read(buffer)
        } else {
            sys::discard(self.stream.as_raw_fd(), self.exchange.missing_len())
        };
        let progress = match received {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) if is_read => self.exchange.received(&buffer[..len]),
            Ok(len) => self.exchange.received_unseen(len),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        progress.map_err(|wrong| io::Error::other(wrong.0))
    }
}
