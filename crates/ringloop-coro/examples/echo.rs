//! A TCP echo server, written as with threads: one coroutine per connection.
//!
//! ```console
//! $ cargo run --release --example echo -- 127.0.0.1:7000
//! ```
//! Prints the port that it listens on. Without an address it takes a free port of the loopback;
//! the second argument is the number of workers.

use ringloop_coro::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let addr = arguments.next().unwrap_or("127.0.0.1:0".to_owned());
    let workers = arguments.next().map_or(Ok(1), |count| count.parse())?;
    ringloop_coro::start(workers, move || serve(&addr))??;
    Ok(())
}

fn serve(addr: &str) -> io::Result<()> {
    let listener = TcpListener::bind(addr)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    for stream in listener.incoming() {
        let stream = stream?;
        // A failed connection does not affect the others.
        drop(ringloop_coro::spawn(move || echo(stream)));
    }
    Ok(())
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count])?;
    }
}
