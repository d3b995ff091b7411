//! Our runtime with futures, on the driver that `RINGLOOP_DRIVER` names: what the coroutines stand on. One worker.

use coro_common::{Arguments, BATCH, BUFFER_BYTES, LOCKERS, YIELDERS, announce, report, unknown};
use ringloop::net::{TcpListener, TcpStream};
use ringloop::spawn;
use ringloop::sync::local::Mutex;
use ringloop::sync::local::mpsc::channel;
use ringloop::time::yield_now;
use std::io;
use std::rc::Rc;
use std::time::Instant;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    if arguments.workers > 1 {
        eprintln!("its tasks stay on their worker: a lock between workers has no row here");
        std::process::exit(3);
    }
    let runtime = ringloop::Runtime::new().map_err(io::Error::other)?;
    runtime.block_on(run(arguments))?
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    announce(listener.local_addr()?.port());
    loop {
        let stream = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails concerns nobody else.
        drop(spawn(echo(stream)));
    }
}

async fn echo(stream: TcpStream) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
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
    let count = Rc::new(Mutex::new(0));
    let start = Instant::now();
    let all: Vec<_> = (0..LOCKERS)
        .map(|_| {
            let count = Rc::clone(&count);
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
