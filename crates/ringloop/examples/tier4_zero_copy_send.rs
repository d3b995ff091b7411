//! A megabyte sent without copying it into the kernel.
//!
//! Look at: there are two ends. The send completes when the bytes are in flight; the kernel uses
//! the memory until the peer has them, and a second future returns it. Over loopback the kernel
//! copies after all, and reports that; it pays off for large sends over a network card.
//!
//!     cargo run --release --example tier4_zero_copy_send

use ringloop::Runtime;
use ringloop::net::{TcpListener, TcpStream};
use std::io::{self, Write};

const LEN: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Runtime::new()?.block_on(run())?
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let server = listener.accept().await?;
    let reader = ringloop::spawn(async move {
        let mut total = 0;
        let mut buf = Vec::with_capacity(64 * 1024);
        loop {
            let (count, filled) = server.read(buf).await;
            match count? {
                0 => return Ok::<_, io::Error>(total),
                count => total += count,
            }
            buf = filled;
        }
    });
    let (count, bufs) = client.write_zero_copy(vec![7; LEN]).await;
    let count = count?;
    // The bytes are sent; `bufs` is ready when their memory may be changed again.
    let back = bufs.await;
    let transfer = back.transfer;
    let mut rest = back.into_vec();
    rest.drain(..count);
    client.write_all(rest).await.0?;
    drop(client);
    let total = reader.await??;
    writeln!(io::stdout(), "{total} bytes arrived; the first send: {transfer:?}")?;
    Ok(())
}
