//! A TCP proxy that never sees a byte: what one side sends is spliced to the other.
//!
//! Look at: a pipe is the kernel's own buffer. `splice` moves pages from the socket into it and
//! from it into the other socket. Each direction ends by itself, and shuts the other side down.
//!
//!     cargo run --release --example tier4_splice_proxy -- 127.0.0.1:7000    # prints its port

use ringloop::Runtime;
use ringloop::fs::{Pipe, splice};
use ringloop::future::join;
use ringloop::net::{TcpListener, TcpStream};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};

const PIPE_BYTES: usize = 256 * 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("to which address?")?.parse()?;
    Ok(Runtime::new()?.block_on(serve(target))??)
}

async fn serve(target: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    loop {
        let client = listener.accept().await?;
        // An error ends only this connection.
        ringloop::spawn(async move {
            let server = TcpStream::connect(target).await?;
            let (up, down) = join(pass(&client, &server), pass(&server, &client)).await;
            up.and(down)
        });
    }
}

/// Forwards what `from` sends until it ends.
async fn pass(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let pipe = Pipe::new(PIPE_BYTES)?;
    loop {
        let mut left = splice(from, None, &pipe.writer(), None, pipe.capacity()).await?;
        if left == 0 {
            // The other side may have closed first.
            drop(to.shutdown(Shutdown::Write));
            return Ok(());
        }
        while left > 0 {
            left -= splice(&pipe.reader(), None, to, None, left).await?;
        }
    }
}
