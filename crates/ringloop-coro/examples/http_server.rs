//! An HTTP/1.1 server that answers each GET with a greeting, keeps connections open, and ends by
//! Ctrl-C.
//!
//! ```console
//! $ cargo run --release --example http_server -- 127.0.0.1:8080
//! $ curl http://127.0.0.1:8080/
//! ```
//! Prints the port that it listens on.

use ringloop_coro::net::{TcpListener, TcpStream};
use ringloop_coro::{select, signal, spawn};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

/// An idle client is disconnected after this time.
const IDLE: Duration = Duration::from_secs(30);
/// The most bytes of a request's head.
const HEAD_BYTES_MAX: u64 = 16 * 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:0".to_owned());
    ringloop_coro::start(2, move || serve(&addr))??;
    Ok(())
}

fn serve(addr: &str) -> io::Result<()> {
    let listener = TcpListener::bind(addr)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    let mut signals = signal::Signals::new(&[signal::Signal::INTERRUPT])?;
    loop {
        select! {
            accepted = listener.accept_async() => {
                let (stream, _) = accepted?;
                // A failed connection does not affect the others.
                drop(spawn(move || answer(&stream)));
            }
            ended = signals.wait_async() => return ended.map(drop),
        }
    }
}

fn answer(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let Some(line) = request(&mut reader)? else {
            return Ok(());
        };
        let mut words = line.split_ascii_whitespace();
        let (status, body) = match (words.next(), words.next()) {
            (Some("GET"), Some(path)) => ("200 OK", format!("Hello from {path}\n")),
            (Some(_), Some(_)) => ("405 Method Not Allowed", "GET only\n".to_owned()),
            _ => ("400 Bad Request", "What?\n".to_owned()),
        };
        let len = body.len();
        writer.write_all(
            format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n\r\n{body}").as_bytes(),
        )?;
    }
}

/// The first line of the next request; `None` at the end of the connection.
fn request(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut head = reader.take(HEAD_BYTES_MAX);
    let mut first = String::new();
    if head.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut line = String::new();
    while head.read_line(&mut line)? > 0 && line != "\r\n" {
        line.clear();
    }
    Ok((line == "\r\n").then_some(first))
}
