//! monoio on `io_uring`, with queues large enough for all connections.

use bench_common::{
    Arguments, CAT_BYTES, RESPONSE, Workload, announce, is_request, report, spawn_and_join, timers,
    wake,
};
use local_sync::mpsc::bounded::channel;
use monoio::buf::IoBuf;
use monoio::fs::File;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{ListenerOpts, TcpListener, TcpStream};
use monoio::{IoUringDriver, RuntimeBuilder};
use std::io;
use std::os::fd::FromRawFd;
use std::thread;
use std::time::Instant;

const ENTRIES: u32 = 4096;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    let port = arguments.shared_port()?;
    for _ in 1..arguments.workers {
        let arguments = arguments.clone();
        thread::spawn(move || start(arguments, port));
    }
    start(arguments, port)
}

fn start(arguments: Arguments, port: u16) -> io::Result<()> {
    RuntimeBuilder::<IoUringDriver>::new()
        .with_entries(ENTRIES)
        .enable_timer()
        .build()?
        .block_on(run(arguments, port))
}

async fn run(arguments: Arguments, port: u16) -> io::Result<()> {
    match arguments.workload {
        Workload::Echo => return serve(port, arguments.buffer_len(), true).await,
        Workload::Http => return serve(port, 4096, false).await,
        Workload::Cat => return cat(&arguments.path).await,
        Workload::Spawn => spawn(arguments.ops).await,
        Workload::Wake => wake(arguments.ops).await,
        Workload::Timers => timers(arguments.ops, monoio::time::sleep).await,
        Workload::PingPong => bench_common::ping_pong! {
            ops: arguments.ops,
            channel: channel,
            spawn: monoio::spawn,
        },
    }
    Ok(())
}

async fn serve(port: u16, buffer_len: usize, is_echo: bool) -> io::Result<()> {
    let options = ListenerOpts::new().backlog(4096).reuse_port(port != 0);
    let listener = TcpListener::bind_with_config(("127.0.0.1", port), &options)?;
    announce(listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A failed connection ends alone.
        if is_echo {
            monoio::spawn(echo(stream, buffer_len));
        } else {
            monoio::spawn(http(stream, buffer_len));
        }
    }
}

async fn echo(mut stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(buffer_len);
    loop {
        let (count, filled) = stream.read(buffer).await;
        if count? == 0 {
            return Ok(());
        }
        let (written, mut back) = stream.write_all(filled).await;
        written?;
        back.clear();
        buffer = back;
    }
}

async fn http(mut stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(buffer_len);
    loop {
        // The client sends a request in one piece; a partial one ends the connection.
        let (count, filled) = stream.read(buffer).await;
        if count? == 0 || !is_request(&filled) {
            return Ok(());
        }
        let (written, _) = stream.write_all(RESPONSE).await;
        written?;
        buffer = filled;
        buffer.clear();
    }
}

async fn cat(path: &str) -> io::Result<()> {
    let start = Instant::now();
    // SAFETY: standard output is open, and nothing else in this process uses it.
    let out = File::from_std(unsafe { std::fs::File::from_raw_fd(1) })?;
    let file = File::open(path).await?;
    let mut buffer: Vec<u8> = Vec::with_capacity(CAT_BYTES);
    let mut bytes = 0;
    loop {
        let (count, filled) = file.read_at(buffer, bytes).await;
        let count = count?;
        if count == 0 {
            break;
        }
        let (written, back) = out.write_all_at(filled.slice(..count), u64::MAX).await;
        written?;
        bytes += count as u64;
        buffer = back.into_inner();
        buffer.clear();
    }
    report(bytes, start);
    Ok(())
}

async fn spawn(ops: usize) {
    let spawn = |number| monoio::spawn(async move { number });
    spawn_and_join(ops, spawn, |result, number| result == number).await;
}
