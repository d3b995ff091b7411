//! Our coroutines, on the driver that `RINGLOOP_DRIVER` names.

use coro_common::Arguments;
use ringloop_coro::net::{TcpListener, TcpStream};
use ringloop_coro::sync::Mutex;
use ringloop_coro::sync::channel::{Receiver, Sender, bounded};
use std::io;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    let started = ringloop_coro::start(arguments.workers, move || run(&arguments));
    started.map_err(io::Error::other)?
}

fn channel<T>() -> (Sender<T>, Receiver<T>) {
    bounded(1)
}

coro_common::blocking! {
    spawn: ringloop_coro::spawn,
    yield_now: ringloop_coro::yield_now,
    channel: channel,
    mutex: Mutex::new,
    take: Mutex::lock,
    bind: TcpListener::bind,
    stream: TcpStream,
}
