//! ringloop, on the driver that `RINGLOOP_DRIVER` names.

use bench_common::{
    Arguments, CAT_BYTES, RESPONSE, Workload, announce, busy_polling, is_request, report,
    spawn_and_join, timers, wake,
};
use ringloop::Runtime;
use ringloop::fs::{File, RegisteredBuf, RegisteredFile};
use ringloop::net::{TcpListener, TcpStream};
use ringloop::sync::local::mpsc::channel;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    let builder = Runtime::builder()
        .workers(arguments.workers)
        .busy_polling(busy_polling());
    let runtime = builder.build().map_err(io::Error::other)?;
    match arguments.workload {
        Workload::Echo => serve(&runtime, arguments.port, true),
        Workload::Http => serve(&runtime, arguments.port, false),
        _ => runtime.block_on(run(arguments))?,
    }
}

/// One listener per worker.
fn serve(runtime: &Runtime, port: u16, is_echo: bool) -> io::Result<()> {
    let addr = ([127, 0, 0, 1], port).into();
    let accept = move |listener| accept(listener, is_echo);
    let serving = TcpListener::serve_on_all(&runtime.workers(), addr, accept);
    let serving = serving.map_err(io::Error::other)?;
    announce(serving.local_addr.port());
    for worker in serving.handles {
        let ended = runtime.block_on(worker)?;
        ended.map_err(|error| io::Error::other(error.to_string()))??;
    }
    Ok(())
}

async fn accept(listener: TcpListener, is_echo: bool) -> io::Result<()> {
    loop {
        let stream = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A failed connection ends alone.
        if is_echo {
            ringloop::spawn(echo(stream));
        } else {
            ringloop::spawn(http(stream));
        }
    }
}

async fn run(arguments: Arguments) -> io::Result<()> {
    match arguments.workload {
        Workload::Echo | Workload::Http => unreachable!("these are served"),
        Workload::Cat => return cat(&arguments.path).await,
        Workload::Spawn => spawn(arguments.ops).await,
        Workload::Wake => wake(arguments.ops).await,
        Workload::Timers => timers(arguments.ops, ringloop::time::sleep).await,
        Workload::PingPong => bench_common::ping_pong! {
            ops: arguments.ops,
            channel: channel,
            spawn: ringloop::spawn,
        },
    }
    Ok(())
}

async fn echo(stream: TcpStream) -> io::Result<()> {
    let mut incoming = stream.receive();
    while let Some(bytes) = incoming.next().await {
        let (sent, _) = stream.write_all(bytes?).await;
        sent?;
    }
    Ok(())
}

async fn http(stream: TcpStream) -> io::Result<()> {
    let mut incoming = stream.receive();
    while let Some(bytes) = incoming.next().await {
        // The client sends a request in one piece; a partial one ends the connection.
        if !is_request(&bytes?) {
            break;
        }
        stream.write_all(RESPONSE).await.0?;
    }
    Ok(())
}

async fn cat(path: &str) -> io::Result<()> {
    let start = Instant::now();
    let out = RegisteredFile::new(File::from(io::stdout().as_fd().try_clone_to_owned()?));
    let file = RegisteredFile::new(File::open(path).await?);
    let mut buffer = RegisteredBuf::with_capacity(CAT_BYTES);
    let mut bytes = 0;
    loop {
        let (count, filled) = file.read_at(buffer, bytes).await;
        let count = count?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
        let (written, back) = out.write_all(filled).await;
        written?;
        buffer = back;
    }
    report(bytes, start);
    Ok(())
}

async fn spawn(ops: usize) {
    let spawn = |number| ringloop::spawn(async move { number });
    spawn_and_join(ops, spawn, |result, number| {
        result.is_ok_and(|result| result == number)
    })
    .await;
}
