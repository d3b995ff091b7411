//! compio on `io_uring`, with deferred task work and queues large enough for all connections.

use bench_common::{
    Arguments, CAT_BYTES, RESPONSE, Workload, announce, is_request, report, spawn_and_join, timers,
    wake,
};
use compio::buf::{BufResult, IntoInner, IoBuf};
use compio::driver::ProactorBuilder;
use compio::fs::File;
use compio::io::{AsyncRead, AsyncReadAt, AsyncWriteExt};
use compio::net::{TcpListener, TcpSocket, TcpStream};
use compio::runtime::RuntimeBuilder;
use std::io;
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
    let mut proactor = ProactorBuilder::new();
    proactor
        .capacity(ENTRIES)
        .single_issuer(true)
        .taskrun_flag(true)
        .defer_taskrun(true);
    RuntimeBuilder::new()
        .with_proactor(proactor)
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
        Workload::Timers => timers(arguments.ops, compio::time::sleep).await,
        Workload::PingPong => return ping_pong(arguments.ops).await,
    }
    Ok(())
}

async fn serve(port: u16, buffer_len: usize, is_echo: bool) -> io::Result<()> {
    let listener = listen(port).await?;
    announce(listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A failed connection ends alone.
        if is_echo {
            compio::runtime::spawn(echo(stream, buffer_len)).detach();
        } else {
            compio::runtime::spawn(http(stream, buffer_len)).detach();
        }
    }
}

async fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4().await?;
    socket.set_reuseport(port != 0)?;
    socket.bind(([127, 0, 0, 1], port).into()).await?;
    socket.listen(4096).await
}

async fn echo(mut stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(buffer_len);
    loop {
        let BufResult(count, filled) = stream.read(buffer).await;
        if count? == 0 {
            return Ok(());
        }
        let BufResult(written, mut back) = stream.write_all(filled).await;
        written?;
        back.clear();
        buffer = back;
    }
}

async fn http(mut stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(buffer_len);
    loop {
        // The client sends a request in one piece; a partial one ends the connection.
        let BufResult(count, filled) = stream.read(buffer).await;
        if count? == 0 || !is_request(&filled) {
            return Ok(());
        }
        stream.write_all(RESPONSE).await.0?;
        buffer = filled;
        buffer.clear();
    }
}

async fn cat(path: &str) -> io::Result<()> {
    let start = Instant::now();
    let mut out = compio::fs::stdout();
    let file = File::open(path).await?;
    let mut buffer: Vec<u8> = Vec::with_capacity(CAT_BYTES);
    let mut bytes = 0;
    loop {
        let BufResult(count, filled) = file.read_at(buffer, bytes).await;
        let count = count?;
        if count == 0 {
            break;
        }
        let BufResult(written, back) = out.write_all(filled.slice(..count)).await;
        written?;
        bytes += count as u64;
        buffer = back.into_inner();
        buffer.clear();
    }
    report(bytes, start);
    Ok(())
}

async fn ping_pong(ops: usize) -> io::Result<()> {
    let (ping, pinged) = flume::bounded::<u64>(1);
    let (pong, ponged) = flume::bounded::<u64>(1);
    compio::runtime::spawn(async move {
        while let Ok(number) = pinged.recv_async().await {
            if pong.send_async(number).await.is_err() {
                break;
            }
        }
    })
    .detach();
    let start = Instant::now();
    for number in 0..ops as u64 {
        assert!(ping.send_async(number).await.is_ok());
        assert_eq!(ponged.recv_async().await, Ok(number));
    }
    report(ops as u64, start);
    Ok(())
}

async fn spawn(ops: usize) {
    let spawn = |number| compio::runtime::spawn(async move { number });
    spawn_and_join(ops, spawn, |result, number| {
        result.is_ok_and(|result| result == number)
    })
    .await;
}
