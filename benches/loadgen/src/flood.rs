//! Datagrams as fast as they can be sent. What does not fit the server's receive buffer is lost, as on
//! a network; the server reports how many it received.
//!
//! Owns: the socket and the count requests. Called by: `main`.
//!
//! A datagram that begins with `?` asks for the number of other datagrams received; the answer is
//! that number in digits. Nothing else is sent meanwhile, so the server has caught up when it
//! answers.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::sys;
use crate::tally::Tally;

/// Messages per system call.
const BATCH: usize = 32;
/// How long to wait for an answer before asking again.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);
const QUESTIONS_MAX: usize = 50;

/// Flood the server until the time of the tally is over.
pub fn run(options: &Options, mut tally: Tally) -> io::Result<String> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(&options.addr)?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    if options.segments > 1 {
        sys::set_segment_len(socket.as_raw_fd(), options.size)?;
    }
    let payload = vec![b'.'; options.size * options.segments].leak();
    while !tally.is_warm(Instant::now()) {
        sys::send_many(socket.as_raw_fd(), payload, BATCH)?;
    }
    let before = ask(&socket)?;
    tally.begin(Instant::now());
    while !tally.left(Instant::now()).is_zero() {
        sys::send_many(socket.as_raw_fd(), payload, BATCH)?;
    }
    tally.received(ask(&socket)? - before);
    Ok(tally.report("sendmmsg"))
}

fn ask(socket: &UdpSocket) -> io::Result<u64> {
    let mut answer = [0; 32];
    socket.set_nonblocking(true)?;
    // Late answers to an earlier question that was repeated.
    while socket.recv(&mut answer).is_ok() {}
    socket.set_nonblocking(false)?;
    for _ in 0..QUESTIONS_MAX {
        socket.send(b"?")?;
        match socket.recv(&mut answer) {
            Ok(len) => {
                let digits = std::str::from_utf8(&answer[..len]).ok();
                let count = digits.and_then(|digits| digits.parse().ok());
                return count.ok_or_else(|| io::Error::other("the answer is not a number"));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => (),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the server does not answer"))
}
