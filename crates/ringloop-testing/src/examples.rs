//! Runs a crate's examples, where cargo has built them; servers among them.

use crate::PATIENCE;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// [`drivers`](crate::drivers), by the names in `RINGLOOP_DRIVER`.
pub fn drivers() -> impl Iterator<Item = &'static str> {
    crate::drivers().into_iter().map(crate::name_of)
}

fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // How deep below the profile's folder a test lies is up to cargo's version.
    let mut places = test.ancestors().map(|place| place.join("examples").join(name));
    let program = places.find(|program| program.exists());
    program.unwrap_or_else(|| panic!("{name} is not built: run cargo build --examples"))
}

/// The command of an example.
pub fn command(name: &str, driver: &str) -> Command {
    let mut command = Command::new(program(name));
    command.env("RINGLOOP_DRIVER", driver);
    command
}

/// An example that serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    pub fn start(name: &str, driver: &str, arguments: &[&str]) -> Self {
        let mut command = command(name, driver);
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("the first line is the port");
        Self { child, port }
    }

    pub fn connect(&self) -> TcpStream {
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

/// Send `bytes`, end, and return what came back until the other end has ended too.
pub fn exchange(mut stream: TcpStream, bytes: Vec<u8>) -> Vec<u8> {
    let mut reader = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    received
}
