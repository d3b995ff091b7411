//! ringloop, on the driver that `RINGLOOP_DRIVER` names.

use bench_common::{
    Arguments, Bell, CAT_BYTES, RESPONSE, Workload, announce, fire_half, is_request, report,
    timer_delay,
};
use ringloop::Runtime;
use ringloop::fs::File;
use ringloop::net::{TcpListener, TcpStream};
use ringloop::sync::local::mpsc::channel;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    let builder = Runtime::builder().workers(arguments.workers);
    let runtime = builder.build().map_err(io::Error::other)?;
    match arguments.workload {
        Workload::Echo => serve(&runtime, arguments.buffer_len(), true),
        Workload::Http => serve(&runtime, 4096, false),
        _ => runtime.block_on(run(arguments))?,
    }
}

/// A listener on every worker, where there are several.
fn serve(runtime: &Runtime, buffer_len: usize, is_echo: bool) -> io::Result<()> {
    let addr = ([127, 0, 0, 1], 0).into();
    let accept = move |listener| accept(listener, buffer_len, is_echo);
    let serving = TcpListener::serve_on_all(&runtime.workers(), addr, accept);
    let serving = serving.map_err(io::Error::other)?;
    announce(serving.local_addr.port());
    for worker in serving.handles {
        let ended = runtime.block_on(worker)?;
        ended.map_err(|error| io::Error::other(error.to_string()))??;
    }
    Ok(())
}

async fn accept(listener: TcpListener, buffer_len: usize, is_echo: bool) -> io::Result<()> {
    loop {
        let stream = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails concerns nobody else.
        if is_echo {
            ringloop::spawn(echo(stream, buffer_len));
        } else {
            ringloop::spawn(http(stream, buffer_len));
        }
    }
}

async fn run(arguments: Arguments) -> io::Result<()> {
    match arguments.workload {
        Workload::Echo | Workload::Http => unreachable!("these are served"),
        Workload::Cat => cat(&arguments.path).await,
        Workload::Spawn => spawn(arguments.ops).await,
        Workload::Wake => wake(arguments.ops).await,
        Workload::Timers => timers(arguments.ops).await,
        Workload::PingPong => ping_pong(arguments.ops).await,
    }
}

async fn echo(stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(buffer_len);
    loop {
        let (count, filled) = stream.read(buffer).await;
        if count? == 0 {
            return Ok(());
        }
        let (sent, back) = stream.write_all(filled).await;
        sent?;
        buffer = back;
    }
}

async fn http(stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(buffer_len);
    let mut response = RESPONSE.to_vec();
    loop {
        // The client sends a request at once; one in pieces would end the connection.
        let (count, filled) = stream.read(buffer).await;
        if count? == 0 || !is_request(&filled) {
            return Ok(());
        }
        let (sent, back) = stream.write_all(response).await;
        sent?;
        response = back;
        buffer = filled;
    }
}

async fn cat(path: &str) -> io::Result<()> {
    let start = Instant::now();
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let file = File::open(path).await?;
    let mut buffer = Vec::with_capacity(CAT_BYTES);
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

async fn spawn(ops: usize) -> io::Result<()> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..ops)
        .map(|number| ringloop::spawn(async move { number }))
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        assert!(task.await.is_ok_and(|result| result == number));
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
    fire_half((0..ops).map(|index| Box::pin(ringloop::time::sleep(timer_delay(index, ops))))).await;
    report(ops as u64, start);
    Ok(())
}

async fn ping_pong(ops: usize) -> io::Result<()> {
    let (ping, mut pinged) = channel::<u64>(1);
    let (pong, mut ponged) = channel::<u64>(1);
    ringloop::spawn(async move {
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
