//! The command line.

use std::io;
use std::net::TcpListener;
use std::str::FromStr;

/// The workload of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Serve a TCP echo.
    Echo,
    /// Serve one short HTTP/1.1 response.
    Http,
    /// Read a file and write it to standard output.
    Cat,
    /// Start tasks and wait for each.
    Spawn,
    /// Round trips between a task and a thread outside the runtime.
    Wake,
    /// Arm timers, cancel one half, wait for the other.
    Timers,
    /// Round trips between two tasks of one thread, through channels.
    PingPong,
}

impl FromStr for Workload {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "echo" => Self::Echo,
            "http" => Self::Http,
            "cat" => Self::Cat,
            "spawn" => Self::Spawn,
            "wake" => Self::Wake,
            "timers" => Self::Timers,
            "pingpong" => Self::PingPong,
            _ => return Err(()),
        })
    }
}

/// The command line of a run.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// What to do.
    pub workload: Workload,
    /// echo: bytes of a message, for servers that size their buffers by it.
    pub size: usize,
    /// Number of operations to time.
    pub ops: usize,
    /// Servers: threads that serve.
    pub workers: usize,
    /// Servers: a port shared with other processes; 0: any free port, not shared.
    pub port: u16,
    /// cat: the file.
    pub path: String,
}

impl Arguments {
    /// Parse the command line; exit with a message if it is invalid.
    pub fn read() -> Self {
        Self::parse(std::env::args().skip(1)).unwrap_or_else(|sentence| {
            eprintln!("{sentence}");
            std::process::exit(2)
        })
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let name = words.next().ok_or("which workload?")?;
        let workload = name
            .parse()
            .map_err(|()| format!("{name} is not a workload"))?;
        let mut arguments = Self {
            workload,
            size: 1024,
            ops: 1_000_000,
            workers: 1,
            port: 0,
            path: String::new(),
        };
        while let Some(option) = words.next() {
            let value = words.next().ok_or(format!("{option} needs a value"))?;
            match option.as_str() {
                "--size" => arguments.size = number(&option, &value)?,
                "--ops" => arguments.ops = number(&option, &value)?,
                "--workers" => arguments.workers = number(&option, &value)?,
                "--port" => arguments.port = number(&option, &value)?,
                "--path" => arguments.path = value,
                _ => return Err(format!("{option} is not an option")),
            }
        }
        Ok(arguments)
    }

    /// Bytes of a server's receive buffer: fits a message, and is not unusually small.
    pub fn buffer_len(&self) -> usize {
        self.size.max(4096)
    }

    /// Whether several threads or processes serve.
    pub fn is_shared(&self) -> bool {
        self.workers > 1 || self.port != 0
    }

    /// The port shared by all listeners of a server: several threads need to know it beforehand.
    /// 0: there is one listener, on any port.
    pub fn shared_port(&self) -> io::Result<u16> {
        if self.port != 0 || self.workers == 1 {
            return Ok(self.port);
        }
        let free = TcpListener::bind(("127.0.0.1", 0))?;
        Ok(free.local_addr()?.port())
    }
}

fn number<T: FromStr>(option: &str, value: &str) -> Result<T, String> {
    let number = value.parse();
    number.map_err(|_| format!("{option}: {value} is not a number"))
}
