//! A TCP echo server: one task per connection, one buffer that goes back and forth.
//!
//! Look at: who owns the buffer. `read` takes it, the kernel fills it, and it is returned with the
//! count; so no buffer is ever shared with a kernel that still writes to it. Everything runs on one
//! thread.
//!
//!     cargo run --release --example tier1_echo            # prints its port, then: nc 127.0.0.1 PORT

use ringloop::Runtime;
use ringloop::net::{TcpListener, TcpStream};
use std::io::{self, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(Runtime::new()?.block_on(serve())??)
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    loop {
        let stream = listener.accept().await?;
        // An error ends only this connection.
        ringloop::spawn(echo(stream));
    }
}

async fn echo(stream: TcpStream) -> io::Result<()> {
    let mut buf = Vec::with_capacity(4096);
    loop {
        let (count, filled) = stream.read(buf).await;
        if count? == 0 {
            return Ok(());
        }
        let (sent, back) = stream.write_all(filled).await;
        sent?;
        buf = back;
    }
}
