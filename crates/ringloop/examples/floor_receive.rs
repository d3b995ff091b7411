//! Cost of each way to receive: `read` with its own buffer, and plain, bundled and incremental
//! multishot receives. Look at `serve`: the same loop for all four.
//!
//! ```text
//! floor_receive echo|sink BYTES CONNECTIONS [MILLISECONDS]
//! ```
//! A peer thread writes one message to each connection, and for `echo` reads all replies before the
//! next round; the ways take turns, five times. One line per turn: messages per second, and CPU
//! time of the serving thread in nanoseconds per message.

#![allow(clippy::print_stdout, clippy::cast_precision_loss)]

use ringloop::embed::Received;
use ringloop::net::{Receive, TcpListener, TcpStream};
use ringloop::{Runtime, spawn};
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

const WAYS: [&str; 4] = ["read", "plain", "bundled", "incremental"];

#[derive(Clone, Copy)]
struct Load {
    echoes: bool,
    len: usize,
    connections: usize,
    time: Duration,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| args.get(at).map_or(Ok(default), |arg| arg.parse());
    let load = Load {
        echoes: args.first().is_none_or(|what| what == "echo"),
        len: number(1, 1024)?,
        connections: number(2, 16)?,
        time: Duration::from_millis(number(3, 350)? as u64),
    };
    for _ in 0..5 {
        for way in WAYS {
            println!("{way:12} {}", turn(way, load)?);
        }
    }
    Ok(())
}

/// One turn of one way, in a runtime of its own.
fn turn(way: &'static str, load: Load) -> Result<String, Box<dyn std::error::Error>> {
    let runtime = Runtime::new()?;
    runtime.block_on(async move {
        let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
        let address = listener.local_addr()?;
        let peer = std::thread::spawn(move || drive(address, load));
        let bytes = Rc::new(Cell::new(0));
        let mut tasks = Vec::new();
        for _ in 0..load.connections {
            let stream = listener.accept().await?;
            stream.set_nodelay(true)?;
            tasks.push(spawn(serve(stream, way, load.echoes, Rc::clone(&bytes))));
        }
        let (begun, cpu_before) = (Instant::now(), thread_cpu_ns()?);
        for task in tasks {
            task.await??;
        }
        let (elapsed, cpu) = (begun.elapsed(), thread_cpu_ns()? - cpu_before);
        drop(peer.join());
        let messages = bytes.get() as f64 / load.len as f64;
        let rate = messages / elapsed.as_secs_f64();
        Ok(format!("{rate:10.0} /s {:8.0} ns", cpu as f64 / messages))
    })?
}

async fn serve(
    stream: TcpStream,
    way: &str,
    echoes: bool,
    bytes: Rc<Cell<usize>>,
) -> io::Result<()> {
    if way == "read" {
        let mut buf = Vec::with_capacity(64 * 1024);
        loop {
            let (count, back) = stream.read(buf).await;
            let count = count?;
            if count == 0 {
                return Ok(());
            }
            bytes.set(bytes.get() + count);
            buf = back;
            if echoes {
                let (sent, back) = stream.write_all(buf).await;
                sent?;
                buf = back;
            }
        }
    }
    let plain = stream.receive();
    let mut received: Receive<'_> = match way {
        "bundled" => plain.bundled(),
        "incremental" => plain.incremental(),
        _ => plain,
    };
    let mut buf = Vec::new();
    while let Some(part) = received.next().await {
        let part = part?;
        buf.clear();
        buf.extend_from_slice(&part);
        drop(part);
        // Send the bytes that came with it too.
        while let Poll::Ready(Some(part)) = at_once(&mut received).await {
            buf.extend_from_slice(&part?);
        }
        bytes.set(bytes.get() + buf.len());
        if echoes {
            let (sent, back) = stream.write_all(buf).await;
            sent?;
            buf = back;
        }
    }
    Ok(())
}

/// The next bytes, if they have arrived.
async fn at_once(received: &mut Receive<'_>) -> Poll<Option<io::Result<Received>>> {
    poll_fn(|cx| Poll::Ready(received.poll_next(cx))).await
}

/// The peer: a round is one message to each connection.
fn drive(address: SocketAddr, load: Load) -> io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..load.connections {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let message = vec![7; load.len];
    let mut answer = vec![0; load.len];
    let begun = Instant::now();
    while begun.elapsed() < load.time {
        for stream in &mut streams {
            stream.write_all(&message)?;
        }
        for stream in streams.iter_mut().filter(|_| load.echoes) {
            stream.read_exact(&mut answer)?;
        }
    }
    Ok(())
}

/// CPU time of this thread, from `/proc`.
fn thread_cpu_ns() -> io::Result<u64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = stat.split(' ').next().and_then(|word| word.parse().ok());
    first.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
