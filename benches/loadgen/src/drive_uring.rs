//! The load on `io_uring`: sends and waits cost one system call per batch of responses, which keeps
//! the client cheaper than any server it measures.
//!
//! Owns: the connections' exchanges. Called by: `main`.
//! Short responses arrive by multishot receive and are read in full. Most long ones are discarded
//! inside the kernel (`MSG_TRUNC`), so that the client copies half of what the server copies.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use crate::exchange::{CHECKED_LEN_MAX, Exchange, Script};
use crate::sys::{Completion, Ring};
use crate::tally::Tally;

/// Fits an HTTP response head with a short body.
const HTTP_BUFFER_LEN: usize = 16 * 1024;

struct Connection {
    fd: RawFd,
    exchange: Exchange,
    sent: Instant,
    is_lost: bool,
}

struct Load {
    ring: Ring,
    connections: Vec<Connection>,
    lost_count: usize,
    is_multishot: bool,
    /// The connection whose response goes into the scratch buffer.
    scratch_owner: Option<usize>,
}

/// Create a ring sized for the load.
pub fn ring_for(script: Script, connections: usize) -> io::Result<Ring> {
    let buffer_len = match script {
        Script::Echo { .. } => CHECKED_LEN_MAX,
        Script::Http { .. } => HTTP_BUFFER_LEN,
    };
    Ring::new(connections, buffer_len, script.response_len())
}

/// Load the (blocking) sockets until the time of the tally is over.
pub fn run(ring: Ring, streams: &[TcpStream], script: Script, tally: &mut Tally) -> io::Result<()> {
    let connection = |(index, stream): (usize, &TcpStream)| Connection {
        fd: stream.as_raw_fd(),
        exchange: Exchange::new(script, index),
        sent: Instant::now(),
        is_lost: false,
    };
    let mut load = Load {
        ring,
        connections: streams.iter().enumerate().map(connection).collect(),
        lost_count: 0,
        is_multishot: script.is_checked_in_full(),
        scratch_owner: None,
    };
    for index in 0..load.connections.len() {
        if load.is_multishot {
            load.arm_multishot(index)?;
        }
        load.begin(index, Instant::now())?;
    }
    loop {
        let left = tally.left(Instant::now());
        if left.is_zero() || load.lost_count == load.connections.len() {
            return Ok(());
        }
        load.ring.wait(left)?;
        while let Some(completion) = load.ring.pop() {
            load.react(&completion, tally)?;
        }
    }
}

impl Load {
    /// Send the next request and, unless a multishot receive is armed, receive its response.
    fn begin(&mut self, index: usize, now: Instant) -> io::Result<()> {
        let connection = &mut self.connections[index];
        connection.sent = now;
        let request = connection.exchange.next_request();
        self.ring.send(connection.fd, request, index as u64)?;
        if self.is_multishot {
            return Ok(());
        }
        if self.scratch_owner.is_none() && connection.exchange.is_sampled() {
            self.scratch_owner = Some(index);
            let len = connection.exchange.missing_len();
            return self.ring.receive_kept(connection.fd, len, index as u64);
        }
        self.receive_rest(index)
    }

    /// Receive the rest of a long response; its content is discarded.
    fn receive_rest(&mut self, index: usize) -> io::Result<()> {
        let connection = &self.connections[index];
        let len = connection.exchange.missing_len();
        self.ring.receive_dropped(connection.fd, len, index as u64)
    }

    fn arm_multishot(&mut self, index: usize) -> io::Result<()> {
        self.ring.receive_multishot(self.connections[index].fd, index as u64)
    }

    fn react(&mut self, completion: &Completion, tally: &mut Tally) -> io::Result<()> {
        let index = completion.data as usize;
        let progress = self.progress(index, completion);
        if let Some(id) = completion.buffer {
            self.ring.recycle(id);
        }
        if self.connections[index].is_lost {
            return Ok(());
        }
        match progress {
            Ok(is_complete) => {
                if is_complete {
                    let now = Instant::now();
                    tally.completed(self.connections[index].sent, now);
                    self.begin(index, now)?;
                }
                if self.is_multishot && !completion.more {
                    self.arm_multishot(index)?;
                } else if !self.is_multishot && !is_complete {
                    self.receive_rest(index)?;
                }
            }
            Err(why) => {
                tally.failed(&why);
                self.connections[index].is_lost = true;
                self.lost_count += 1;
            }
        }
        Ok(())
    }

    /// Advance the exchange; `true` if its response is complete.
    fn progress(&mut self, index: usize, completion: &Completion) -> Result<bool, String> {
        let exchange = &mut self.connections[index].exchange;
        let len = match completion.result {
            0 => return Err("the server closed the connection".into()),
            // The buffer group is empty: re-arm the receive, nothing is lost.
            result if result == -libc::ENOBUFS => return Ok(false),
            result if result < 0 => {
                return Err(io::Error::from_raw_os_error(-result).to_string());
            }
            result => result as usize,
        };
        let progress = match completion.buffer {
            Some(id) => exchange.received(self.ring.buffer(id, len)),
            None if self.scratch_owner == Some(index) => {
                self.scratch_owner = None;
                if len < exchange.missing_len() {
                    return Err("the response ended early".into());
                }
                exchange.received(self.ring.scratch(len))
            }
            None => exchange.received_unseen(len),
        };
        progress.map_err(|wrong| wrong.0.into())
    }
}
