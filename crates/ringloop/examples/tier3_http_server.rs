//! An HTTP/1.1 server for one page, with keep-alive.
//!
//! Look at: requests arrive in pieces, so received bytes are kept until a head is complete; a peer
//! that never completes one is refused, and an idle one is closed. A server for real use runs hyper
//! on this runtime (`ringloop::compat`).
//!
//!     cargo run --release --example tier3_http_server     # prints its port, then: curl 127.0.0.1:PORT

use ringloop::Runtime;
use ringloop::net::{TcpListener, TcpStream};
use ringloop::time::timeout;
use std::io::{self, Write};
use std::time::Duration;

const HEAD_BYTES_MAX: usize = 8 * 1024;
const IDLE_MAX: Duration = Duration::from_secs(30);
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(Runtime::new()?.block_on(serve())??)
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    loop {
        let stream = listener.accept().await?;
        stream.set_nodelay(true)?;
        // An error ends only this connection.
        ringloop::spawn(talk(stream));
    }
}

async fn talk(stream: TcpStream) -> io::Result<()> {
    let mut received = Vec::new();
    let mut buf = Vec::with_capacity(4096);
    loop {
        let (count, filled) = timeout(IDLE_MAX, stream.read(buf)).await?;
        if count? == 0 {
            return Ok(());
        }
        received.extend_from_slice(&filled);
        buf = filled;
        while let Some(len) = head_len(&received) {
            received.drain(..len);
            stream.write_all(RESPONSE.to_vec()).await.0?;
        }
        if received.len() > HEAD_BYTES_MAX {
            return stream.write_all(TOO_LARGE.to_vec()).await.0;
        }
    }
}

/// Length of the first complete head.
fn head_len(received: &[u8]) -> Option<usize> {
    let end = received.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(end + 4)
}
