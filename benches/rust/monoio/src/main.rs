//! monoio on `io_uring`, its queues large enough for every connection.

use bench_common::{
    Arguments, Bell, CAT_BYTES, RESPONSE, Workload, announce, fire_half, is_request, report,
    timer_delay,
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
    let port = free_port(&arguments)?;
    for _ in 1..arguments.workers {
        let arguments = arguments.clone();
        thread::spawn(move || start(arguments, port));
    }
    start(arguments, port)
}

/// Several threads listen on one port; it has to be known beforehand.
fn free_port(arguments: &Arguments) -> io::Result<u16> {
    if arguments.workers == 1 {
        return Ok(0);
    }
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()?
        .port())
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
        Workload::Echo => serve(port, arguments.buffer_len(), true).await,
        Workload::Http => serve(port, 4096, false).await,
        Workload::Cat => cat(&arguments.path).await,
        Workload::Spawn => spawn(arguments.ops).await,
        Workload::Wake => wake(arguments.ops).await,
        Workload::Timers => timers(arguments.ops).await,
        Workload::PingPong => ping_pong(arguments.ops).await,
    }
}

async fn serve(port: u16, buffer_len: usize, is_echo: bool) -> io::Result<()> {
    let options = ListenerOpts::new().backlog(4096).reuse_port(port != 0);
    let listener = TcpListener::bind_with_config(("127.0.0.1", port), &options)?;
    announce(listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails concerns nobody else.
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
        // The client sends a request at once; one in pieces would end the connection.
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
    // SAFETY: standard output is open, and nothing else of this process uses it.
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

async fn spawn(ops: usize) -> io::Result<()> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..ops)
        .map(|number| monoio::spawn(async move { number }))
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await, number);
    }
    report(ops as u64, start);
    Ok(())
}

async fn wake(ops: usize) -> io::Result<()> {
    let bell = Bell::default();
    let start = Instant::now();
    for _ in 0..ops {
        bell.ring().await;
    }
    report(ops as u64, start);
    Ok(())
}

async fn timers(ops: usize) -> io::Result<()> {
    let start = Instant::now();
    fire_half((0..ops).map(|index| Box::pin(monoio::time::sleep(timer_delay(index, ops))))).await;
    report(ops as u64, start);
    Ok(())
}

async fn ping_pong(ops: usize) -> io::Result<()> {
    let (ping, mut pinged) = channel::<u64>(1);
    let (pong, mut ponged) = channel::<u64>(1);
    monoio::spawn(async move {
        while let Some(number) = pinged.recv().await {
            if pong.send(number).await.is_err() {
                break;
            }
        }
    });
    let start = Instant::now();
    for number in 0..ops as u64 {
        assert!(ping.send(number).await.is_ok());
        assert_eq!(ponged.recv().await, Some(number));
    }
    report(ops as u64, start);
    Ok(())
}
