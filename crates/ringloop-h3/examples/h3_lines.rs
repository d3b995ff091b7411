//! A connection by lines, for comparisons with other implementations: a command a line in, an answer a line out.
//!
//! Bytes are hexadecimal, `-` where there are none; `END` and `FIN` are 0 or 1. A line that is refused is answered by
//! `error` and why; any other by what happened and what is to be sent, each with a `;` behind it.
//!
//! | command | effect |
//! |---|---|
//! | `client`, `server` | a new connection |
//! | `receive STREAM FIN BYTES` | bytes from QUIC |
//! | `request STREAM END METHOD URI NAME VALUE …` | sends a request; method and URI as they are |
//! | `response STREAM END STATUS NAME VALUE …` | sends a response |
//! | `data STREAM END BYTES` | sends part of a body |
//! | `trailers STREAM NAME VALUE …` | sends trailers |
//!
//! | in an answer | |
//! |---|---|
//! | `send STREAM FIN BYTES`, `reset STREAM CODE`, `stop STREAM CODE` | for QUIC |
//! | `request STREAM METHOD URI NAME VALUE …`, `response STREAM STATUS NAME VALUE …`, `data STREAM BYTES`, `trailers STREAM NAME VALUE …`, `end STREAM`, `failed STREAM CODE` | events |

use ringloop_h3::{Config, Connection, Event, LocalStreams, Role, StreamId, Transmit};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _, stdin, stdout};

type Answer<T> = Result<T, Box<dyn Error>>;

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(hex: &str) -> Answer<Vec<u8>> {
    if hex == "-" {
        return Ok(Vec::new());
    }
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

fn stream(word: &str) -> Answer<StreamId> {
    Ok(StreamId(word.parse()?))
}

fn headers(words: &[&str]) -> Answer<http::HeaderMap> {
    let mut headers = http::HeaderMap::new();
    for pair in words.chunks_exact(2) {
        let name = http::HeaderName::from_bytes(&bytes(pair[0])?)?;
        headers.append(name, http::HeaderValue::from_bytes(&bytes(pair[1])?)?);
    }
    Ok(headers)
}

fn shown(headers: &http::HeaderMap) -> String {
    let pairs = headers.iter();
    let pairs = pairs.map(|(name, value)| {
        format!(" {} {}", hex(name.as_str().as_bytes()), hex(value.as_bytes()))
    });
    pairs.collect()
}

fn new(role: Role) -> Connection {
    let first = if role == Role::Client { 2 } else { 3 };
    let local = LocalStreams {
        control: StreamId(first),
        encoder: StreamId(first + 4),
        decoder: StreamId(first + 8),
    };
    Connection::new(role, Config::default(), local)
}

fn perform(connection: &mut Connection, words: &[&str]) -> Answer<()> {
    match *words {
        ["client"] => *connection = new(Role::Client),
        ["server"] => *connection = new(Role::Server),
        ["receive", id, fin, data] => {
            connection.receive(stream(id)?, bytes(data)?.into(), fin == "1")?;
        }
        ["request", id, end, method, uri, ref fields @ ..] => {
            let request = http::Request::builder().method(method).uri(uri);
            let (mut parts, ()) = request.body(())?.into_parts();
            parts.headers = headers(fields)?;
            connection.send_request(stream(id)?, &parts, end == "1")?;
        }
        ["response", id, end, status, ref fields @ ..] => {
            let response = http::Response::builder().status(status);
            let (mut parts, ()) = response.body(())?.into_parts();
            parts.headers = headers(fields)?;
            connection.send_response(stream(id)?, &parts, end == "1")?;
        }
        ["data", id, end, data] => {
            connection.send_data(stream(id)?, bytes(data)?.into(), end == "1")?;
        }
        ["trailers", id, ref fields @ ..] => {
            connection.send_trailers(stream(id)?, &headers(fields)?)?;
        }
        _ => return Err("no such command".into()),
    }
    Ok(())
}

fn drain(connection: &mut Connection) -> String {
    let mut out = String::new();
    while let Some(event) = connection.poll_event() {
        let _ = match event {
            Event::Request { stream, parts } => {
                let fields = shown(&parts.headers);
                write!(out, "request {stream} {} {}{fields};", parts.method, parts.uri)
            }
            Event::Response { stream, parts } | Event::Informational { stream, parts } => {
                let fields = shown(&parts.headers);
                write!(out, "response {stream} {}{fields};", parts.status.as_str())
            }
            Event::Data { stream, data } => write!(out, "data {stream} {};", hex(&data)),
            Event::Trailers { stream, trailers } => {
                write!(out, "trailers {stream}{};", shown(&trailers))
            }
            Event::End { stream } => write!(out, "end {stream};"),
            Event::Failed { stream, code, .. } => write!(out, "failed {stream} {code};"),
            _ => Ok(()),
        };
    }
    while let Some(transmit) = connection.poll_transmit() {
        let _ = match transmit {
            Transmit::Stream { stream, data, fin } => {
                write!(out, "send {stream} {} {};", u8::from(fin), hex(&data))
            }
            Transmit::Reset { stream, code } => write!(out, "reset {stream} {code};"),
            Transmit::Stop { stream, code } => write!(out, "stop {stream} {code};"),
            Transmit::Datagram(_) => Ok(()),
        };
    }
    out
}

fn main() -> Answer<()> {
    let mut connection = new(Role::Server);
    for line in stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let result = perform(&mut connection, &words);
        let mut out = stdout().lock();
        match result {
            Ok(()) => writeln!(out, "{}", drain(&mut connection))?,
            Err(error) => writeln!(out, "error {error}")?,
        }
        out.flush()?;
    }
    Ok(())
}
