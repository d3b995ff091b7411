//! The standard library: one thread per connection, blocking calls. The reference of the file rows.

use bench_common::{
    Arguments, CAT_BYTES, RESPONSE, Workload, announce, is_request, report, unsupported,
};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    if arguments.is_shared() {
        unsupported("threads are what it has, as many as there are connections");
    }
    match arguments.workload {
        Workload::Echo => serve(arguments.buffer_len(), echo),
        Workload::Http => serve(4096, http),
        Workload::Cat => cat(&arguments.path),
        Workload::Spawn => spawn(arguments.ops),
        Workload::PingPong => ping_pong(arguments.ops),
        Workload::Wake | Workload::Timers => unsupported("std has no tasks and no timers"),
    }
}

fn serve(buffer_len: usize, talk: fn(TcpStream, usize) -> io::Result<()>) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    announce(listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        // A failed connection ends alone.
        thread::spawn(move || talk(stream, buffer_len));
    }
}

fn echo(mut stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer = vec![0; buffer_len];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count])?;
    }
}

fn http(mut stream: TcpStream, buffer_len: usize) -> io::Result<()> {
    let mut buffer = vec![0; buffer_len];
    let mut filled = 0;
    loop {
        let count = stream.read(&mut buffer[filled..])?;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        if is_request(&buffer[..filled]) {
            stream.write_all(RESPONSE)?;
            filled = 0;
        }
    }
}

fn cat(path: &str) -> io::Result<()> {
    let start = Instant::now();
    let mut out = io::stdout().lock();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; CAT_BYTES];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        out.write_all(&buffer[..count])?;
        bytes += count as u64;
    }
    report(bytes, start);
    Ok(())
}

/// A thread is not a task; the row shows the benefit of tasks.
fn spawn(ops: usize) -> io::Result<()> {
    let start = Instant::now();
    for _ in 0..ops {
        // A thread with an empty closure does not panic.
        let _ = thread::spawn(|| ()).join();
    }
    report(ops as u64, start);
    Ok(())
}

fn ping_pong(ops: usize) -> io::Result<()> {
    let (ping, pinged) = sync_channel::<u64>(1);
    let (pong, ponged) = sync_channel::<u64>(1);
    thread::spawn(move || pinged.iter().try_for_each(|number| pong.send(number)));
    let start = Instant::now();
    for number in 0..ops as u64 {
        if ping.send(number).is_err() || ponged.recv() != Ok(number) {
            return Err(io::Error::other("the other thread is gone"));
        }
    }
    report(ops as u64, start);
    Ok(())
}
