//! Connections one after the other: connect, one byte echoed, close.
//!
//! Owns: the connections' sockets. Called by: `main`.
//!
//! The client closes first, so that the ports in `TIME_WAIT` are its own. It connects from one address of
//! 127.0.0.0/8 after the other: a single one runs out of ports within seconds.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

use crate::options::Options;
use crate::sys::{self, Epoll};
use crate::tally::Tally;

/// Addresses to connect from: 127.0.1.1 to 127.0.1.32.
const SOURCES: u8 = 32;
const BYTE: &[u8] = b"x";

/// Load the server until the time of the tally is over.
pub fn run(options: &Options) -> io::Result<String> {
    let server: SocketAddr = options.addr.parse().map_err(io::Error::other)?;
    let mut epoll = Epoll::new(options.connections)?;
    let mut sources = (1..=SOURCES).map(|last| Ipv4Addr::new(127, 0, 1, last)).cycle();
    let mut next = || sources.next().unwrap_or(Ipv4Addr::LOCALHOST);
    let mut connections = (0..options.connections)
        .map(|index| Connection::open(server, next(), &epoll, index))
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
            let next = match connection.echoed() {
                Ok(false) => continue,
                Ok(true) => {
                    tally.completed(connection.begun, Instant::now());
                    Connection::open(server, next(), &epoll, index)
                }
                Err(error) => Err(error),
            };
            match next {
                // The old socket is closed, and with that no longer watched.
                Ok(next) => *connection = next,
                Err(why) => {
                    tally.failed(&why);
                    epoll.remove(connection.stream.as_raw_fd())?;
                    alive -= 1;
                }
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    begun: Instant,
}

impl Connection {
    /// Connect, which on this machine is done at once, and send the byte.
    fn open(server: SocketAddr, source: Ipv4Addr, epoll: &Epoll, index: usize) -> io::Result<Self> {
        let begun = Instant::now();
        let mut stream = sys::connect_from(source, server)?;
        stream.write_all(BYTE)?;
        stream.set_nonblocking(true)?;
        epoll.add(stream.as_raw_fd(), index as u64)?;
        Ok(Self { stream, begun })
    }

    fn echoed(&mut self) -> io::Result<bool> {
        let mut answer = [0; 2];
        match self.stream.read(&mut answer) {
            Ok(1) if &answer[..1] == BYTE => Ok(true),
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Err(io::Error::other("other bytes came back than were sent")),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}
