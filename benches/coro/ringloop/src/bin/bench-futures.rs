//! Our runtime with futures, on the driver that `RINGLOOP_DRIVER` names: what the coroutines stand on. One worker.

use coro_common::{Arguments, BUFFER_BYTES, announce};
use ringloop::net::{TcpListener, TcpStream};
use std::io;

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
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    announce(listener.local_addr()?.port());
    loop {
        let stream = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails does not concern the others.
        drop(ringloop::spawn(echo(stream)));
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

coro_common::futures! {
    serve: serve,
    spawn: ringloop::spawn,
    yield_now: ringloop::time::yield_now,
    channel: ringloop::sync::local::mpsc::channel,
    mutex: ringloop::sync::local::Mutex::new,
    shared: std::rc::Rc::new,
}
