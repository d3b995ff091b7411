//! glommio: one unpinned executor; the runner pins the process.

use bench_common::{
    Arguments, CAT_BYTES, RESPONSE, Workload, announce, busy_polling, is_request, report,
    spawn_and_join, timers, unsupported, wake,
};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::channels::local_channel;
use glommio::io::BufferedFile;
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement};
use std::io::{self, Write};
use std::time::Instant;

const RING_DEPTH: usize = 1024;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    if arguments.is_shared() {
        unsupported("one executor is what this program runs");
    }
    let mut builder = LocalExecutorBuilder::new(Placement::Unbound).ring_depth(RING_DEPTH);
    if let Some(span) = busy_polling() {
        builder = builder.spin_before_park(span);
    }
    let executor = builder.make().map_err(io::Error::from)?;
    executor.run(run(arguments))
}

async fn run(arguments: Arguments) -> io::Result<()> {
    match arguments.workload {
        Workload::Echo => return serve(arguments.buffer_len(), true).await,
        Workload::Http => return serve(4096, false).await,
        Workload::Cat => return cat(&arguments.path).await,
        Workload::Spawn => spawn(arguments.ops).await,
        Workload::Wake => wake(arguments.ops).await,
        Workload::Timers => timers(arguments.ops, glommio::timer::Timer::new).await,
        Workload::PingPong => bench_common::ping_pong! {
            ops: arguments.ops,
            channel: local_channel::new_bounded,
            spawn: |task| glommio::spawn_local(task).detach(),
        },
    }
    Ok(())
}

async fn serve(buffer_len: usize, is_echo: bool) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    announce(listener.local_addr()?.port());
    loop {
        let stream = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A failed connection ends alone.
        if is_echo {
            glommio::spawn_local(echo(stream, buffer_len)).detach();
        } else {
            glommio::spawn_local(http(stream, buffer_len)).detach();
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

/// Writes are blocking: glommio has no asynchronous standard output.
async fn cat(path: &str) -> io::Result<()> {
    let start = Instant::now();
    let file = BufferedFile::open(path).await?;
    let mut out = io::stdout().lock();
    let mut bytes = 0;
    loop {
        let read = file.read_at(bytes, CAT_BYTES).await?;
        if read.is_empty() {
            break;
        }
        out.write_all(&read)?;
        bytes += read.len() as u64;
    }
    report(bytes, start);
    Ok(())
}

async fn spawn(ops: usize) {
    let spawn = |number| glommio::spawn_local(async move { number });
    spawn_and_join(ops, spawn, |result, number| result == number).await;
}
