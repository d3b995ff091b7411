//! The standard library: a thread for each, blocking calls.

use coro_common::{Arguments, BATCH, BUFFER_BYTES, LOCKERS, YIELDERS, announce, report, unknown};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::{spawn, yield_now};
use std::time::Instant;

fn main() -> io::Result<()> {
    run(&Arguments::read())
}

fn channel<T>() -> (SyncSender<T>, Receiver<T>) {
    sync_channel(1)
}

fn take<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let ops = arguments.ops;
    match arguments.workload.as_str() {
        "echo" => return serve(),
        "spawn" => spawn_each(ops),
        "batch" => spawn_batches(ops),
        "yield" => yields(ops),
        "pingpong" => ping_pong(ops),
        "lock" => lock(ops, false),
        "held" => lock(ops, true),
        other => unknown(other),
    }
    Ok(())
}

fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    announce(listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        // A connection that fails concerns nobody else.
        drop(spawn(move || echo(stream)));
    }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count])?;
    }
}

fn spawn_each(ops: usize) {
    let start = Instant::now();
    for number in 0..ops {
        assert!(
            spawn(move || number)
                .join()
                .is_ok_and(|result| result == number)
        );
    }
    report(ops, start);
}

fn spawn_batches(ops: usize) {
    let start = Instant::now();
    for _ in 0..ops / BATCH {
        let batch: Vec<_> = (0..BATCH).map(|number| spawn(move || number)).collect();
        for (number, one) in batch.into_iter().enumerate() {
            assert!(one.join().is_ok_and(|result| result == number));
        }
    }
    report(ops, start);
}

fn yields(ops: usize) {
    let start = Instant::now();
    let each = ops / YIELDERS;
    let all: Vec<_> = (0..YIELDERS)
        .map(|_| spawn(move || (0..each).for_each(|_| yield_now())))
        .collect();
    for one in all {
        assert!(one.join().is_ok());
    }
    report(ops, start);
}

fn ping_pong(ops: usize) {
    let (ping, pinged) = channel::<usize>();
    let (pong, ponged) = channel::<usize>();
    let other = spawn(move || {
        while let Ok(number) = pinged.recv() {
            if pong.send(number).is_err() {
                break;
            }
        }
    });
    let start = Instant::now();
    for number in 0..ops {
        assert!(ping.send(number).is_ok());
        assert!(ponged.recv().is_ok_and(|back| back == number));
    }
    report(ops, start);
    drop(ping);
    assert!(other.join().is_ok());
}

/// Count under a lock, which is held while the others have their turn where it `is_held`.
fn lock(ops: usize, is_held: bool) {
    let count = Arc::new(Mutex::new(0));
    let start = Instant::now();
    let all: Vec<_> = (0..LOCKERS)
        .map(|_| {
            let count = Arc::clone(&count);
            spawn(move || {
                for _ in 0..ops / LOCKERS {
                    let mut count = take(&count);
                    *count += 1;
                    if is_held {
                        yield_now();
                    }
                }
            })
        })
        .collect();
    for one in all {
        assert!(one.join().is_ok());
    }
    report(ops, start);
    assert_eq!(*take(&count), ops / LOCKERS * LOCKERS);
}
