//! A TCP proxy: forwards connections to another address, both ways at once.
//!
//! ```console
//! $ cargo run --release --example proxy -- 127.0.0.1:8080 127.0.0.1:7002
//! ```
//! The first argument is where connections go, the second where it listens. Prints the port that it
//! listens on.

use ringloop_coro::net::{Shutdown, TcpListener, TcpStream};
use ringloop_coro::spawn;
use std::io::{self, Read, Write};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let to = arguments.next().ok_or("where do connections go to?")?;
    let addr = arguments.next().unwrap_or("127.0.0.1:0".to_owned());
    ringloop_coro::start(2, move || serve(&addr, &to.into()))??;
    Ok(())
}

fn serve(addr: &str, to: &Arc<str>) -> io::Result<()> {
    let listener = TcpListener::bind(addr)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    for stream in listener.incoming() {
        let (stream, to) = (stream?, Arc::clone(to));
        // A failed connection does not affect the others.
        drop(spawn(move || -> io::Result<()> {
            let upstream = TcpStream::connect(&*to)?;
            let (client, server) = (stream.try_clone()?, upstream.try_clone()?);
            let back = spawn(move || forward(&upstream, &stream));
            forward(&client, &server)?;
            back.join()?
        }));
    }
    Ok(())
}

/// Copies all bytes and the end of the stream.
fn forward(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return to.shutdown(Shutdown::Write);
        }
        to.write_all(&buffer[..count])?;
    }
}
