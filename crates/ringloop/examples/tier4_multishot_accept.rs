//! An echo server of two multishot operations: one accept for all connections, one receive for all bytes of one.
//!
//! Look at: nothing is submitted for the next connection or the next bytes. The kernel completes
//! the same entry repeatedly, and picks a buffer of the loop's pool when bytes arrive, so that an
//! idle connection owns no memory.
//!
//!     cargo run --release --example tier4_multishot_accept    # prints its port, then: nc 127.0.0.1 PORT

use ringloop::Runtime;
use ringloop::net::{TcpListener, TcpStream};
use ringloop::time::sleep;
use std::io::{self, Write};
use std::time::Duration;

/// How long to wait for a descriptor to become free.
const BACK_OFF: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(Runtime::new()?.block_on(serve())??)
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    let mut incoming = listener.incoming();
    loop {
        match incoming.next().await {
            Ok(stream) => drop(ringloop::spawn(echo(stream))),
            Err(error) => {
                writeln!(io::stderr(), "accept: {error}")?;
                sleep(BACK_OFF).await;
            }
        }
    }
}

async fn echo(stream: TcpStream) -> io::Result<()> {
    let mut receive = stream.receive();
    let mut out = Vec::new();
    while let Some(bytes) = receive.next().await {
        out.clear();
        out.extend_from_slice(&bytes?);
        // The pool buffer was returned at the end of the statement above.
        let (sent, back) = stream.write_all(out).await;
        sent?;
        out = back;
    }
    Ok(())
}
