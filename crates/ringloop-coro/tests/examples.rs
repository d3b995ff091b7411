//! Every example except the measurements runs on both drivers and does what its documentation
//! says.
//!
//! `cargo test` builds the examples; `cargo test --test examples` alone does not: `cargo build
//! --examples` does.
#![allow(clippy::unwrap_used)]

mod support;

use ringloop::Choice;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// An example that serves until it is dropped.
struct Server {
    child: Child,
    port: u16,
}

/// The command of an example.
fn example(name: &str, driver: Choice, arguments: &[&str]) -> Command {
    let test = std::env::current_exe().unwrap();
    // Cargo's version decides how deep a test lies below the profile's folder.
    let mut places = test
        .ancestors()
        .map(|place| place.join("examples").join(name));
    let program = places.find(|program| program.exists());
    let program =
        program.unwrap_or_else(|| panic!("{name} is not built: run cargo build --examples"));
    let driver = match driver {
        Choice::Uring => "uring",
        _ => "epoll",
    };
    let mut command = Command::new(program);
    command.env("RINGLOOP_DRIVER", driver).args(arguments);
    command
}

impl Server {
    fn start(name: &str, driver: Choice, arguments: &[&str]) -> Self {
        let mut child = example(name, driver, arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("the first line is the port");
        Self { child, port }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn echoes(server: &Server, len: usize) {
    let bytes: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
    let stream = server.connect();
    let (mut writer, sent) = (stream.try_clone().unwrap(), bytes.clone());
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    (&stream).read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    assert!(back == bytes);
}

#[test]
fn echo_returns_what_it_is_sent() {
    for driver in support::drivers() {
        let server = Server::start("echo", driver, &["127.0.0.1:0", "2"]);
        for len in [1, 4096, 1_000_001] {
            echoes(&server, len);
        }
    }
}

#[test]
fn proxy_brings_bytes_both_ways() {
    for driver in support::drivers() {
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
    for driver in support::drivers() {
        let server = Server::start("http_server", driver, &[]);
        let mut stream = server.connect();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for (request, status, body) in [
            (
                "GET /one HTTP/1.1\r\nHost: x\r\n\r\n",
                "200",
                "Hello from /one\n",
            ),
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
    for driver in support::drivers() {
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
    for driver in support::drivers() {
        for arguments in [["3000", "20"], ["100", "readers"]] {
            let output = example("million", driver, &arguments).output().unwrap();
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
