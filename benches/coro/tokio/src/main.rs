//! tokio: one thread (`new_current_thread`), or `--workers` threads with work stealing.

use coro_common::{Arguments, BATCH, BUFFER_BYTES, LOCKERS, YIELDERS, announce, report, unknown};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::spawn;
use tokio::sync::Mutex;
use tokio::sync::mpsc::channel;
use tokio::task::yield_now;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    let mut builder = if arguments.workers > 1 {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(arguments.workers);
        builder
    } else {
        Builder::new_current_thread()
    };
    let runtime = builder.enable_all().build()?;
    // The root of a runtime with several threads runs outside of them: everything is a task of it.
    let ran = runtime.block_on(async { spawn(run(arguments)).await });
    ran.unwrap_or_else(|error| Err(error.into()))
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails concerns nobody else.
        drop(spawn(echo(stream)));
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}

async fn run(arguments: Arguments) -> io::Result<()> {
    let ops = arguments.ops;
    match arguments.workload.as_str() {
        "echo" => return serve().await,
        "spawn" => spawn_each(ops).await,
        "batch" => spawn_batches(ops).await,
        "yield" => yields(ops).await,
        "pingpong" => ping_pong(ops).await,
        "lock" => lock(ops, false).await,
        "held" => lock(ops, true).await,
        other => unknown(other),
    }
    Ok(())
}

async fn spawn_each(ops: usize) {
    let start = Instant::now();
    for number in 0..ops {
        let task = spawn(async move { number });
        assert!(task.await.is_ok_and(|result| result == number));
    }
    report(ops, start);
}

async fn spawn_batches(ops: usize) {
    let start = Instant::now();
    for _ in 0..ops / BATCH {
        let batch: Vec<_> = (0..BATCH)
            .map(|number| spawn(async move { number }))
            .collect();
        for (number, one) in batch.into_iter().enumerate() {
            assert!(one.await.is_ok_and(|result| result == number));
        }
    }
    report(ops, start);
}

async fn yields(ops: usize) {
    let start = Instant::now();
    let each = ops / YIELDERS;
    let all: Vec<_> = (0..YIELDERS)
        .map(|_| {
            spawn(async move {
                for _ in 0..each {
                    yield_now().await;
                }
            })
        })
        .collect();
    for one in all {
        assert!(one.await.is_ok());
    }
    report(ops, start);
}

async fn ping_pong(ops: usize) {
    let (ping, mut pinged) = channel::<usize>(1);
    let (pong, mut ponged) = channel::<usize>(1);
    let other = spawn(async move {
        while let Some(number) = pinged.recv().await {
            if pong.send(number).await.is_err() {
                break;
            }
        }
    });
    let start = Instant::now();
    for number in 0..ops {
        assert!(ping.send(number).await.is_ok());
        assert_eq!(ponged.recv().await, Some(number));
    }
    report(ops, start);
    drop(ping);
    assert!(other.await.is_ok());
}

/// Count under a lock, which is held while the others have their turn where it `is_held`.
async fn lock(ops: usize, is_held: bool) {
    let count = Arc::new(Mutex::new(0));
    let start = Instant::now();
    let all: Vec<_> = (0..LOCKERS)
        .map(|_| {
            let count = Arc::clone(&count);
            spawn(async move {
                for _ in 0..ops / LOCKERS {
                    let mut count = count.lock().await;
                    *count += 1;
                    if is_held {
                        yield_now().await;
                    }
                }
            })
        })
        .collect();
    for one in all {
        assert!(one.await.is_ok());
    }
    report(ops, start);
    assert_eq!(*count.lock().await, ops / LOCKERS * LOCKERS);
}
