//! Every example except the measurements runs on both drivers and does what its documentation
//! says.
//!
//! `cargo test` builds the examples; `cargo test --test examples` alone does not: `cargo build
//! --examples` does.
#![allow(clippy::unwrap_used)]

use ringloop_testing::PATIENCE;
use ringloop_testing::coro::pattern;
use ringloop_testing::examples::{Server, command, drivers, exchange};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

fn echoes(server: &Server, len: usize) {
    let bytes = pattern(len);
    assert!(exchange(server.connect(), bytes.clone()) == bytes);
}

#[test]
fn echo_returns_what_it_is_sent() {
    for driver in drivers() {
        let server = Server::start("echo", driver, &["127.0.0.1:0", "2"]);
        for len in [1, 4096, 1_000_001] {
            echoes(&server, len);
        }
    }
}

#[test]
fn proxy_brings_bytes_both_ways() {
    for driver in drivers() {
        let echo = Server::start("echo", driver, &[]);
        let to = format!("127.0.0.1:{}", echo.port);
        let proxy = Server::start("proxy", driver, &[&to]);
        for len in [1, 1_000_001] {
            echoes(&proxy, len);
        }
    }
}

#[test]
fn http_server_answers_again_and_again_on_one_connection() {
    for driver in drivers() {
        let server = Server::start("http_server", driver, &[]);
        let mut stream = server.connect();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for (request, status, body) in [
            ("GET /one HTTP/1.1\r\nHost: x\r\n\r\n", "200", "Hello from /one\n"),
            ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", "405", "GET only\n"),
            ("GET /two HTTP/1.1\r\n\r\n", "200", "Hello from /two\n"),
        ] {
            stream.write_all(request.as_bytes()).unwrap();
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert!(line.starts_with(&format!("HTTP/1.1 {status}")), "{line}");
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            let mut answer = vec![0; body.len()];
            reader.read_exact(&mut answer).unwrap();
            assert_eq!(answer, body.as_bytes());
        }
    }
}

#[test]
fn chat_brings_each_line_to_the_others() {
    for driver in drivers() {
        let server = Server::start("chat", driver, &[]);
        let mut readers = Vec::new();
        let mut writers = Vec::new();
        for name in ["ann", "bob"] {
            let mut stream = server.connect();
            stream.write_all(format!("{name}\n").as_bytes()).unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            // The first client is notified of the second.
            if let Some(first) = readers.first_mut() {
                expect(first, "* bob is here\n");
            } else {
                wait_until_known(&server, &mut reader);
            }
            reader.get_mut().set_read_timeout(Some(PATIENCE)).unwrap();
            readers.push(reader);
            writers.push(stream);
        }
        writers[0].write_all(b"hello\n").unwrap();
        expect(&mut readers[1], "ann: hello\n");
        writers[1].write_all(b"hello, ann\n").unwrap();
        expect(&mut readers[0], "bob: hello, ann\n");
        writers[1].shutdown(Shutdown::Write).unwrap();
        expect(&mut readers[0], "* bob has left\n");
    }
}

/// Waits until the room knows the first client: a third one sends lines until the first receives
/// one.
fn wait_until_known(server: &Server, first: &mut BufReader<TcpStream>) {
    let mut probe = server.connect();
    probe.write_all(b"eve\n").unwrap();
    let short = Some(Duration::from_millis(10));
    first.get_mut().set_read_timeout(short).unwrap();
    let mut line = String::new();
    while first.read_line(&mut line).is_err() {
        probe.write_all(b"x\n").unwrap();
    }
    probe.shutdown(Shutdown::Write).unwrap();
    first.get_mut().set_read_timeout(Some(PATIENCE)).unwrap();
    while line != "* eve has left\n" {
        line.clear();
        first.read_line(&mut line).unwrap();
    }
}

#[test]
fn million_parks_as_many_as_it_is_told_and_joins_them() {
    for driver in drivers() {
        for arguments in [["3000", "20"], ["100", "readers"]] {
            let output = command("million", driver).args(arguments).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}");
            let parked = format!("{} coroutines are parked", arguments[0]);
            assert!(said.contains(&parked), "{said}");
            assert!(said.contains("all woken and joined"), "{said}");
        }
    }
}

fn expect(reader: &mut BufReader<TcpStream>, expected: &str) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, expected);
}
