//! may: as many workers as it is told, stacks of 32 KiB (its own default), a pool that holds every coroutine.
//!
//! Its coroutines may move between threads, for which its author makes spawning unsafe where thread-locals are used;
//! none are used here. Its channels are unbounded, which is no more work.

use coro_common::{Arguments, BATCH};
use may::coroutine::JoinHandle;
use may::net::{TcpListener, TcpStream};
use may::sync::{Mutex, MutexGuard};
use std::io;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    may::config()
        .set_workers(arguments.workers)
        .set_pool_capacity(2 * BATCH);
    let run = spawn(move || run(&arguments)).join();
    run.unwrap_or_else(|_| Err(io::Error::other("the coroutine panicked")))
}

fn spawn<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // SAFETY: no thread-local storage is used, and 32 KiB of stack are enough for what is called.
    unsafe { may::coroutine::spawn(call) }
}

fn take<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

coro_common::blocking! {
    spawn: spawn,
    yield_now: may::coroutine::yield_now,
    channel: may::sync::mpsc::channel,
    mutex: Mutex::new,
    take: take,
    bind: TcpListener::bind,
    stream: TcpStream,
}
