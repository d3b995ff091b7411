//! tokio: one thread (`new_current_thread`), or `--workers` threads with work stealing.

use bench_common::{
    Arguments, CAT_BYTES, RESPONSE, Workload, announce, is_request, report, spawn_and_join, timers,
    unsupported, wake,
};
use std::io;
use std::time::Instant;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    if arguments.port != 0 {
        unsupported("several threads of one process are what it has");
    }
    let mut builder = if arguments.workers > 1 {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(arguments.workers);
        builder
    } else {
        Builder::new_current_thread()
    };
    let runtime = builder.enable_all().build()?;
    // `block_on` runs its future outside the worker threads: spawn everything as a task.
    let ran = runtime.block_on(async { tokio::spawn(run(arguments)).await });
    ran.unwrap_or_else(|error| Err(error.into()))
}

async fn run(arguments: Arguments) -> io::Result<()> {
    match arguments.workload {
        Workload::Echo => return serve(arguments.buffer_len(), true).await,
        Workload::Http => return serve(4096, false).await,
        Workload::Cat => return cat(&arguments.path).await,
        Workload::Spawn => spawn(arguments.ops).await,
        Workload::Wake => wake(arguments.ops).await,
        Workload::Timers => timers(arguments.ops, tokio::time::sleep).await,
        Workload::PingPong => bench_common::ping_pong! {
            ops: arguments.ops,
            channel: mpsc::channel,
            spawn: tokio::spawn,
        },
    }
    Ok(())
}

async fn serve(buffer_len: usize, is_echo: bool) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A failed connection ends alone.
        if is_echo {
            tokio::spawn(echo(stream, buffer_len));
        } else {
            tokio::spawn(http(stream, buffer_len));
        }
    }
}

async fn echo(mut stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer = vec![0; buffer_len];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}

async fn http(mut stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer = vec![0; buffer_len];
    let mut filled = 0;
    loop {
        let count = stream.read(&mut buffer[filled..]).await?;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        if is_request(&buffer[..filled]) {
            stream.write_all(RESPONSE).await?;
            filled = 0;
        }
    }
}

async fn cat(path: &str) -> io::Result<()> {
    let start = Instant::now();
    let mut out = tokio::io::stdout();
    let mut file = File::open(path).await?;
    file.set_max_buf_size(CAT_BYTES);
    let mut buffer = vec![0; CAT_BYTES];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        out.write_all(&buffer[..count]).await?;
        bytes += count as u64;
    }
    out.flush().await?;
    report(bytes, start);
    Ok(())
}

async fn spawn(ops: usize) {
    let spawn = |number| tokio::spawn(async move { number });
    spawn_and_join(ops, spawn, |result, number| {
        result.is_ok_and(|result| result == number)
    })
    .await;
}
