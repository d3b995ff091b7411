//! Two ends of a TCP connection send a number to and fro.
//!
//! Look at: client and server are two tasks of one thread, without locks. At each `await` the other
//! one runs.
//!
//!     cargo run --release --example tier1_ping_pong

use ringloop::Runtime;
use ringloop::net::{TcpListener, TcpStream};
use std::io::{self, Write};

const ROUNDS: u8 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Runtime::new()?.block_on(run())?
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    let addr = listener.local_addr()?;
    let server = ringloop::spawn(async move {
        let stream = listener.accept().await?;
        play(&stream, receive(&stream).await?).await
    });
    let client = TcpStream::connect(addr).await?;
    client.set_nodelay(true)?;
    let last = play(&client, 0).await?;
    assert_eq!(server.await??, last);
    writeln!(io::stdout(), "the ball crossed {last} times")?;
    Ok(())
}

/// Returns the ball each time it arrives, until it has crossed often enough.
async fn play(stream: &TcpStream, mut ball: u8) -> io::Result<u8> {
    while ball < ROUNDS {
        ball += 1;
        send(stream, ball).await?;
        if ball < ROUNDS {
            ball = receive(stream).await?;
        }
    }
    Ok(ball)
}

async fn send(stream: &TcpStream, ball: u8) -> io::Result<()> {
    stream.write_all(vec![ball]).await.0
}

async fn receive(stream: &TcpStream) -> io::Result<u8> {
    let (count, buf) = stream.read(Vec::with_capacity(1)).await;
    match (count?, buf.first()) {
        (1, Some(ball)) => Ok(*ball),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
