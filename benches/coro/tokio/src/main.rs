//! tokio: one thread (`new_current_thread`), or `--workers` threads with work stealing.

use coro_common::{Arguments, BUFFER_BYTES, announce};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

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
    let ran = runtime.block_on(async { tokio::spawn(run(arguments)).await });
    ran.unwrap_or_else(|error| Err(error.into()))
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails does not concern the others.
        drop(tokio::spawn(echo(stream)));
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

coro_common::futures! {
    serve: serve,
    spawn: tokio::spawn,
    yield_now: tokio::task::yield_now,
    channel: tokio::sync::mpsc::channel,
    mutex: tokio::sync::Mutex::new,
    shared: std::sync::Arc::new,
}
