//! Helpers of the tests, which run on every driver that is available.

use crate::engine::tcp_pair;
use crate::{LIMIT, drivers, name_of};
use ringloop::Choice;
use ringloop_coro::net::TcpStream;
use ringloop_coro::{Builder, JoinError, JoinHandle};
use std::any::Any;
use std::io::Write;
use std::process::{Command, Output};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// A wait that only a cancel ends.
pub const LONG: Duration = Duration::from_secs(3600);

/// Runs a test as the first coroutine of a runtime of one worker, on each driver.
pub fn on_both(test: fn()) {
    on_workers(1, test);
}

/// Runs a test as the first coroutine of a runtime, on each driver.
pub fn on_workers(workers: usize, test: fn()) {
    for driver in drivers() {
        let _guard = guard();
        Builder::new().driver(driver).workers(workers).start(test).unwrap();
    }
}

/// Aborts the process with the test's name after [`LIMIT`], unless this is dropped before.
fn guard() -> Sender<()> {
    let (over, is_over) = channel::<()>();
    let test = thread::current().name().unwrap_or_default().to_owned();
    thread::spawn(move || {
        if is_over.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            // The macros' output is kept until the test ends.
            let _ = writeln!(std::io::stderr(), "{test}: not over after {LIMIT:?}");
            std::process::abort();
        }
    });
    over
}

/// Two connected streams, of any system; made without a park.
pub fn stream_pair() -> (TcpStream, TcpStream) {
    let (one, other) = tcp_pair();
    (one.try_into().unwrap(), other.try_into().unwrap())
}

/// Calls a closure when it is dropped.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Joins a coroutine; whether it was cancelled.
pub fn is_cancelled<T>(handle: JoinHandle<T>) -> bool {
    matches!(handle.join(), Err(JoinError::Cancelled))
}

/// The message of a panic.
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    let owned = payload.downcast_ref::<String>().cloned();
    owned.unwrap_or_else(|| (*payload.downcast_ref::<&str>().unwrap()).to_owned())
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 % 251) as u8).collect()
}

/// Whether this process is to run the body of the test `part`; see [`run_part`].
pub fn is_part(part: &str) -> bool {
    std::env::var("RINGLOOP_CORO_TEST_PART").is_ok_and(|it| it == part)
}

/// Runs the test `part` in a process of its own, on the driver.
pub fn run_part(part: &str, driver: Choice) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", part, "--nocapture", "--test-threads=1"])
        .env("RINGLOOP_CORO_TEST_PART", part)
        .env("RINGLOOP_DRIVER", name_of(driver))
        .output()
        .unwrap()
}

/// Runs `work` in a coroutine of the other worker.
pub fn on_other<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> ringloop::RemoteJoinHandle<T> {
    ringloop::spawn_on(1, move || async move { ringloop_coro::spawn_local(work).await.unwrap() })
        .unwrap()
}
