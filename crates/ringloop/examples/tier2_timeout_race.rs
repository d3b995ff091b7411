//! A read that races a deadline, and loses.
//!
//! Look at: the loser is dropped, and dropping cancels: the kernel is asked to stop the operation,
//! and its buffer stays alive until then. Bytes that arrive later go to the next read.
//!
//!     cargo run --release --example tier2_timeout_race

use ringloop::Runtime;
use ringloop::net::{TcpListener, TcpStream};
use ringloop::time::timeout;
use std::io::{self, Write};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(Runtime::new()?.block_on(race())??)
}

async fn race() -> io::Result<()> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let server = listener.accept().await?;
    let limit = Duration::from_millis(20);
    match timeout(limit, client.read(Vec::with_capacity(16))).await {
        Ok(_) => writeln!(io::stdout(), "something came from nobody")?,
        Err(elapsed) => writeln!(io::stdout(), "first read: {elapsed}")?,
    }
    server.write_all(b"late".to_vec()).await.0?;
    let (count, bytes) = client.read(Vec::with_capacity(16)).await;
    let text = String::from_utf8_lossy(&bytes);
    writeln!(io::stdout(), "second read: {} bytes, {text}", count?)
}
