//! Closed-loop load generator for the benchmarks, and a flood of datagrams.
//!
//! Every connection has one request in flight: an echo message or a GET. The answer is checked, its
//! latency is counted, the next request is sent. One thread, to be pinned to a CPU that the server
//! does not use. Reading order: `exchange` (messages), `tally` (counts), `drive_uring` /
//! `drive_epoll` / `drive_connect` / `drive_tls` / `flood` (I/O), `sys` (the kernel).

// Counts are shown as ratios and rates; none is near 2^52.
#![allow(clippy::cast_precision_loss)]

mod drive_connect;
mod drive_epoll;
mod drive_tls;
mod drive_uring;
mod exchange;
mod flood;
mod histogram;
mod options;
mod sys;
mod tally;

use std::io::{self, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use exchange::{CHECKED_LEN_MAX, Script};
use options::{Driver, Mode, Options, USAGE};
use tally::Tally;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return print(io::stdout(), USAGE);
    }
    let options = match Options::parse(arguments.into_iter()) {
        Ok(options) => options,
        Err(sentence) => {
            print(io::stderr(), &format!("loadgen: {sentence}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(report) => print(io::stdout(), &format!("{report}\n")),
        Err(error) => {
            print(io::stderr(), &format!("loadgen: {}: {error}\n", options.addr));
            ExitCode::FAILURE
        }
    }
}

fn print(mut to: impl Write, text: &str) -> ExitCode {
    match to.write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(options: &Options) -> io::Result<String> {
    if let Some(cpu) = options.cpu {
        sys::pin_to_cpu(cpu)?;
    }
    let script = match options.mode {
        Mode::Http => Script::http(&options.addr, &options.path),
        Mode::UdpEcho if options.size > CHECKED_LEN_MAX => {
            return Err(io::Error::other("echoed datagrams are 2048 bytes long at most"));
        }
        Mode::Echo | Mode::UdpEcho => Script::echo(options.size),
        Mode::Connect => return drive_connect::run(options),
        Mode::TlsEcho | Mode::TlsHandshake => return drive_tls::run(options),
        Mode::UdpFlood => {
            let tally = Tally::start(options.warmup, options.length, options.server_pids.clone());
            return flood::run(options, tally);
        }
    };
    let streams = connect(options)?;
    let ring = match options.driver {
        Driver::Epoll => None,
        Driver::Uring => Some(drive_uring::ring_for(script, streams.len())?),
        Driver::Auto => drive_uring::ring_for(script, streams.len()).ok(),
    };
    let mut tally = Tally::start(options.warmup, options.length, options.server_pids.clone());
    if let Some(ring) = ring {
        drive_uring::run(ring, &streams, script, &mut tally)?;
        return Ok(tally.report("uring"));
    }
    streams.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
    drive_epoll::run(&streams, script, &mut tally)?;
    Ok(tally.report("epoll"))
}

fn connect(options: &Options) -> io::Result<Vec<TcpStream>> {
    (0..options.connections)
        .map(|_| {
            if options.mode == Mode::UdpEcho {
                let socket = UdpSocket::bind("127.0.0.1:0")?;
                socket.connect(&options.addr)?;
                // Only send(2) and recv(2) are used on it from here on.
                return Ok(TcpStream::from(OwnedFd::from(socket)));
            }
            if let Some(path) = options.addr.strip_prefix("unix:") {
                // Likewise: nothing that TCP alone has.
                return Ok(TcpStream::from(OwnedFd::from(UnixStream::connect(path)?)));
            }
            let stream = TcpStream::connect(&options.addr)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
        .collect()
}
