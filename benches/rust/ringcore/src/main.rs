//! ringcore, as far as it goes: it cannot join tasks nor be woken from another thread.

use bench_common::{
    Arguments, CAT_BYTES, RESPONSE, Workload, announce, is_request, report, unsupported,
};
use ringcore::{File, TcpListener, TcpStream, run, spawn};
use std::cell::Cell;
use std::io;
use std::net::TcpListener as StdListener;
use std::os::fd::IntoRawFd;
use std::rc::Rc;
use std::time::Instant;

const ENTRIES: u32 = 4096;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    if arguments.is_shared() {
        unsupported("one thread is what this program runs");
    }
    ringcore::init(ENTRIES, 0)?;
    match arguments.workload {
        Workload::Echo => serve(arguments.buffer_len(), true),
        Workload::Http => serve(4096, false),
        Workload::Cat => {
            spawn(async move {
                cat(&arguments.path)
                    .await
                    .unwrap_or_else(|error| fail(&error))
            });
            run();
            Ok(())
        }
        Workload::Spawn => {
            spawn_all(arguments.ops);
            Ok(())
        }
        Workload::Wake => unsupported("its wakers belong to one thread"),
        Workload::Timers => unsupported("it has a time-out operation and no timers"),
        Workload::PingPong => {
            unsupported("it has no channels, and none of other crates fits its wakers")
        }
    }
}

fn fail(error: &io::Error) {
    eprintln!("{error}");
    std::process::exit(1)
}

fn serve(buffer_len: usize, is_echo: bool) -> io::Result<()> {
    // Its own `bind` has a backlog of 128 and does not report the port.
    let listener = StdListener::bind(("127.0.0.1", 0))?;
    announce(listener.local_addr()?.port());
    let listener = TcpListener::from_raw_fd(listener.into_raw_fd());
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A failed connection ends alone.
            spawn(async move {
                drop(talk(stream, buffer_len, is_echo).await);
            });
        }
    });
    run();
    Ok(())
}

async fn talk(stream: TcpStream, buffer_len: usize, is_echo: bool) -> io::Result<()> {
    let mut buffer = vec![0; buffer_len];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        if is_echo {
            write_all(&stream, &buffer[..count]).await?;
        } else if is_request(&buffer[..count]) {
            write_all(&stream, RESPONSE).await?;
        }
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        bytes = &bytes[stream.write(bytes).await?..];
    }
    Ok(())
}

async fn cat(path: &str) -> io::Result<()> {
    let start = Instant::now();
    let mut file = File::open(path).await?;
    let mut buffer = vec![0; CAT_BYTES];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        let mut written = 0;
        while written < count {
            let left = &buffer[written..count];
            let result = ringcore::op::write(1, left.as_ptr(), left.len() as u32, u64::MAX).await?;
            written += result as usize;
        }
        bytes += count as u64;
    }
    report(bytes, start);
    Ok(())
}

/// There are no join handles: every task counts itself.
fn spawn_all(ops: usize) {
    let done = Rc::new(Cell::new(0));
    let start = Instant::now();
    for _ in 0..ops {
        let done = Rc::clone(&done);
        spawn(async move { done.set(done.get() + 1) });
    }
    run();
    assert_eq!(done.get(), ops);
    report(ops as u64, start);
}
