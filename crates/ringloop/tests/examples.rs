//! Every example runs, on both drivers, and does what its first lines say.
//!
//! `cargo test` builds the examples; `cargo test --test examples` alone does not: `cargo build --examples` does.

#![allow(clippy::unwrap_used)]

use ringloop_testing::examples::{Server, command, drivers, exchange};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Output, Stdio};

/// Larger than any buffer involved, and not a multiple of one.
const LARGE_LEN: usize = 3_000_001;

fn ended_well(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs an example to its end; returns its output.
fn run(name: &str, driver: &str, arguments: &[&str]) -> String {
    ended_well(&command(name, driver).args(arguments).output().unwrap())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// A file of this test only, removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(word: &str) -> Self {
        let name = format!("ringloop-example-{}-{word}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn echo_servers_echo_on_several_connections_at_once() {
    for name in ["tier1_echo", "tier4_multishot_accept"] {
        for driver in drivers() {
            let server = Server::start(name, driver, &[]);
            let first = server.connect();
            let second = exchange(server.connect(), pattern(LARGE_LEN));
            assert!(second == pattern(LARGE_LEN), "{name} on {driver}");
            assert_eq!(exchange(first, b"first".to_vec()), b"first");
        }
    }
}

#[test]
fn cats_print_files_of_any_length() {
    for driver in drivers() {
        for len in [0, 1, 64 * 1024, LARGE_LEN] {
            let file = Temporary::new(&format!("cat-{driver}-{len}"));
            std::fs::write(&file.0, pattern(len)).unwrap();
            for name in ["tier1_cat", "tier4_linked_cat"] {
                let output = command(name, driver).arg(&file.0).output().unwrap();
                ended_well(&output);
                assert!(output.stdout == pattern(len), "{name} on {driver}: {len}");
            }
        }
    }
}

#[test]
fn timers_fire_in_order_of_their_deadlines() {
    let expected: String =
        [10, 20, 30].map(|delay_ms| format!("slept {delay_ms} ms, not less: true\n")).concat();
    for driver in drivers() {
        let printed = run("tier1_timer", driver, &[]);
        assert_eq!(printed, expected.clone() + "tick 1\ntick 2\ntick 3\n");
    }
}

#[test]
fn a_ball_crosses_a_hundred_times() {
    for driver in drivers() {
        let printed = run("tier1_ping_pong", driver, &[]);
        assert_eq!(printed, "the ball crossed 100 times\n");
    }
}

#[test]
fn a_hundred_files_are_read() {
    let bytes: usize = (0..100).map(|number| 1024 + number).sum();
    for driver in drivers() {
        let printed = run("tier2_concurrent_reads", driver, &[]);
        assert_eq!(printed, format!("100 files, {bytes} bytes\n"));
    }
}

#[test]
fn tee_copies_its_input_to_both() {
    for driver in drivers() {
        let copy = Temporary::new(&format!("tee-{driver}"));
        let mut command = command("tier2_tee", driver);
        command.arg(copy.path()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || input.write_all(&pattern(LARGE_LEN)).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        ended_well(&output);
        assert!(output.stdout == pattern(LARGE_LEN), "{driver}");
        let kept = std::fs::read(&copy.0).unwrap();
        assert!(kept == pattern(LARGE_LEN), "{driver}");
    }
}

#[test]
fn the_read_that_lost_its_race_takes_no_bytes() {
    for driver in drivers() {
        let printed = run("tier2_timeout_race", driver, &[]);
        let lines: Vec<_> = printed.lines().collect();
        let expected = ["first read: the deadline has passed", "second read: 4 bytes, late"];
        assert_eq!(lines, expected, "{driver}");
    }
}

#[test]
fn the_http_server_answers_requests_in_pieces_and_refuses_endless_heads() {
    for driver in drivers() {
        let server = Server::start("tier3_http_server", driver, &[]);
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let mut stream = server.connect();
        for piece in request.chunks(5) {
            stream.write_all(piece).unwrap();
        }
        // A second one on the same connection.
        let answers = exchange(stream, request.to_vec());
        let text = String::from_utf8(answers).unwrap();
        assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{driver}");
        assert_eq!(text.matches("Hello, World!").count(), 2, "{driver}");
        let mut endless = server.connect();
        endless.write_all(&vec![b'x'; 9 * 1024]).unwrap();
        let mut status = [0; 12];
        endless.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 431", "{driver}");
    }
}

#[test]
fn the_file_server_serves_its_directory_and_nothing_else() {
    let file = Temporary::new("served");
    std::fs::write(&file.0, pattern(LARGE_LEN)).unwrap();
    let directory = file.0.parent().unwrap().to_str().unwrap().to_owned();
    let name = file.0.file_name().unwrap().to_str().unwrap();
    for driver in drivers() {
        let server = Server::start("tier3_file_server", driver, &[&directory]);
        let answer = exchange(server.connect(), format!("{name}\n").into_bytes());
        assert!(answer == pattern(LARGE_LEN), "{driver}");
        for refused in ["../etc/passwd\n", "/etc/passwd\n", "no-such-file\n"] {
            let answer = exchange(server.connect(), refused.into());
            assert!(answer.starts_with(b"error: "), "{driver}: {refused}");
        }
    }
}

#[test]
fn the_logger_keeps_every_line_in_order_of_its_writer() {
    for driver in drivers() {
        let log = Temporary::new(&format!("log-{driver}"));
        let printed = run("tier3_logger", driver, &[log.path()]);
        assert_eq!(printed, "1000 lines, fewer writes: true\n", "{driver}");
        let text = std::fs::read_to_string(&log.0).unwrap();
        assert_eq!(text.lines().count(), 1000);
        for writer in 0..10 {
            let start = format!("writer {writer}, ");
            let own = text.lines().filter_map(|line| line.strip_prefix(&start));
            let expected = (0..100).map(|line| format!("line {line}"));
            assert!(own.eq(expected), "{driver}: writer {writer}");
        }
    }
}

#[test]
fn submission_polling_echoes_or_goes_on_without() {
    for driver in drivers() {
        assert_eq!(run("tier4_sqpoll", driver, &[]), "1000 messages echoed\n");
    }
}

#[test]
fn zero_copy_sends_arrive_whole() {
    for driver in drivers() {
        let printed = run("tier4_zero_copy_send", driver, &[]);
        assert!(printed.starts_with("1048576 bytes arrived"), "{printed}");
    }
}

#[test]
fn stopped_proxy_finishes_its_connections_and_takes_no_new_ones() {
    for driver in drivers() {
        let target = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = target.local_addr().unwrap().to_string();
        let mut command = command("tier3_proxy", driver);
        let mut proxy = command.arg(&addr).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(proxy.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut server, _) = target.accept().unwrap();
        // So that a connection made below ends at once.
        drop(target);
        let mut bytes = [0; 5];
        client.write_all(b"first").unwrap();
        server.read_exact(&mut bytes).unwrap();
        let killed = std::process::Command::new("kill").arg(proxy.id().to_string()).status();
        assert!(killed.unwrap().success());
        // The listener is gone once the signal has arrived.
        while TcpStream::connect(("127.0.0.1", port)).is_ok() {
            std::thread::yield_now();
        }
        let large = pattern(LARGE_LEN);
        let echo = std::thread::spawn(move || {
            server.write_all(&large).unwrap();
            server.shutdown(std::net::Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            server.read_to_end(&mut rest).unwrap();
            rest
        });
        assert!(exchange(client, b"second".to_vec()) == pattern(LARGE_LEN), "{driver}");
        assert_eq!(echo.join().unwrap(), b"second");
        line.clear();
        output.read_to_string(&mut line).unwrap();
        assert!(proxy.wait().unwrap().success());
        assert_eq!(line, "stopped\n");
    }
}

#[test]
fn the_proxy_passes_both_directions_and_their_ends() {
    for driver in drivers() {
        let target = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = target.local_addr().unwrap().to_string();
        let server = Server::start("tier4_splice_proxy", driver, &[&addr]);
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = target.accept().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            stream.write_all(&received).unwrap();
        });
        let passed = exchange(server.connect(), pattern(LARGE_LEN));
        assert!(passed == pattern(LARGE_LEN), "{driver}");
        echo.join().unwrap();
    }
}
