//! The command line.
//!
//! Owns: option names and their meaning. Called by: `main`.

use std::str::FromStr;
use std::time::Duration;

/// Printed by `--help` and after a wrong option.
pub const USAGE: &str = "\
loadgen: closed-loop load, one request in flight a connection, or a flood of datagrams

  --addr HOST:PORT    server (required); unix:PATH for a Unix socket, modes echo and http
  --mode MODE         what to send                                              [echo]
           echo         messages on TCP, to be echoed
           http         keep-alive GETs
           connect      a TCP connection, one byte echoed, the next connection
           tls-echo     messages through TLS, to be echoed
           tls-handshake  a connection, one byte echoed, the next connection
           udp-echo     datagrams, to be echoed; a connection is a socket
           udp-flood    datagrams as fast as they go; the server answers `?` with
                        how many it has received
  --connections N     connections held open                                     [32]
  --size BYTES        echo: length of a message                                 [1024]
  --segments N        udp-flood: datagrams a message, cut by the kernel (UDP_SEGMENT)  [1]
  --authority FILE    tls: the certificate to trust, PEM; the server is `localhost`
  --path PATH         http: what to GET                                         [/]
  --seconds S         measured time                                             [1]
  --warmup S          time before it that is not counted                        [0.3]
  --cpu N             run on this CPU only
  --server-pid PID    report this process's CPU time in the same window; again: theirs together
  --driver auto|uring|epoll                                                     [auto]

Prints one JSON object; exits with 1 and a sentence when no load could be made.
";

/// The driver of the load generator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// `io_uring`, or epoll if the kernel refuses it.
    Auto,
    /// `io_uring` only.
    Uring,
    /// epoll.
    Epoll,
}

/// The kind of load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Echo,
    Http,
    Connect,
    TlsEcho,
    TlsHandshake,
    UdpEcho,
    UdpFlood,
}

/// The options of a run.
pub struct Options {
    pub addr: String,
    pub mode: Mode,
    pub connections: usize,
    pub size: usize,
    pub segments: usize,
    pub path: String,
    pub authority: String,
    pub length: Duration,
    pub warmup: Duration,
    pub cpu: Option<usize>,
    pub server_pids: Vec<u32>,
    pub driver: Driver,
}

impl Options {
    /// Parse `arguments` (without the program's name). The error is a sentence.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            addr: String::new(),
            mode: Mode::Echo,
            connections: 32,
            size: 1024,
            segments: 1,
            path: "/".into(),
            authority: String::new(),
            length: Duration::from_secs(1),
            warmup: Duration::from_millis(300),
            cpu: None,
            server_pids: Vec::new(),
            driver: Driver::Auto,
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            options.set(&name, value)?;
        }
        if options.addr.is_empty() {
            return Err("--addr is required".into());
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "--addr" => self.addr = value,
            "--mode" => {
                let modes = [
                    ("echo", Mode::Echo),
                    ("http", Mode::Http),
                    ("connect", Mode::Connect),
                    ("tls-echo", Mode::TlsEcho),
                    ("tls-handshake", Mode::TlsHandshake),
                    ("udp-echo", Mode::UdpEcho),
                    ("udp-flood", Mode::UdpFlood),
                ];
                self.mode = choice(name, &value, &modes)?;
            }
            "--segments" => self.segments = within(name, &value, 1, 64)?,
            "--connections" => self.connections = within(name, &value, 1, 8192)?,
            "--size" => self.size = within(name, &value, 1, 1 << 26)?,
            "--path" => self.path = value,
            "--authority" => self.authority = value,
            "--seconds" => self.length = seconds(name, &value)?,
            "--warmup" => self.warmup = seconds(name, &value)?,
            "--cpu" => self.cpu = Some(number(name, &value)?),
            "--server-pid" => self.server_pids.push(number(name, &value)?),
            "--driver" => {
                let drivers =
                    [("auto", Driver::Auto), ("uring", Driver::Uring), ("epoll", Driver::Epoll)];
                self.driver = choice(name, &value, &drivers)?;
            }
            _ => return Err(format!("{name} is not an option")),
        }
        Ok(())
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}: {value} is not a number"))
}

fn within(name: &str, value: &str, min: usize, max: usize) -> Result<usize, String> {
    let parsed = number(name, value)?;
    if (min..=max).contains(&parsed) {
        Ok(parsed)
    } else {
        Err(format!("{name}: {value} is not between {min} and {max}"))
    }
}

fn seconds(name: &str, value: &str) -> Result<Duration, String> {
    let parsed: f64 = number(name, value)?;
    Duration::try_from_secs_f64(parsed).map_err(|_| format!("{name}: {value} is not a duration"))
}

fn choice<T: Copy>(name: &str, value: &str, of: &[(&str, T)]) -> Result<T, String> {
    of.iter()
        .find(|(text, _)| *text == value)
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| format!("{name}: {value} is not one of its choices"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_are_read() {
        let options = parse("--addr a:1 --mode http --seconds 0.5 --cpu 1 --driver epoll");
        let options = options.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(options.mode, Mode::Http);
        assert_eq!(options.length, Duration::from_millis(500));
        assert_eq!(options.cpu, Some(1));
        assert!(options.driver == Driver::Epoll);
    }

    #[test]
    fn wrong_options_are_refused_with_their_name() {
        for line in [
            "--addr a:1 --connections 0",
            "--addr a:1 --seconds -1",
            "--addr a:1 --mode ftp",
            "--addr a:1 --size",
            "--addr a:1 --colour red",
        ] {
            let name = line.split_whitespace().nth(2).unwrap_or_default();
            assert!(parse(line).is_err_and(|error| error.contains(name)), "{line}");
        }
        assert!(parse("--size 4").is_err());
    }
}
