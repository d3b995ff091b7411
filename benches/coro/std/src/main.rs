//! The standard library: a thread for each, blocking calls.

use coro_common::Arguments;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard};

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

coro_common::blocking! {
    spawn: std::thread::spawn,
    yield_now: std::thread::yield_now,
    channel: channel,
    mutex: Mutex::new,
    take: take,
    bind: TcpListener::bind,
    stream: TcpStream,
}
