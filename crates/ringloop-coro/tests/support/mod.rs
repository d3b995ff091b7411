//! What the tests share: each runs on every driver that exists here.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use ringloop::Error;
use ringloop::driver::Choice;
use ringloop::executor::{Engine, Options};
use ringloop_coro::Builder;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// No test takes longer than this on a driver, also under a sanitizer.
const LIMIT: Duration = Duration::from_secs(300);

/// How long a single thing may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The drivers that exist here: the one that `RINGLOOP_DRIVER` names, or both, unless
/// `RINGLOOP_ALLOW_NO_URING` excuses a kernel without a ring.
pub fn drivers() -> Vec<Choice> {
    match Choice::from_env().unwrap() {
        Choice::Auto => {}
        named => return vec![named],
    }
    let uring = Engine::new(Options {
        driver: Choice::Uring,
        ..Options::default()
    });
    match uring {
        Ok(_) => vec![Choice::Uring, Choice::Epoll],
        Err(Error::DriverRefused(reason))
            if std::env::var_os("RINGLOOP_ALLOW_NO_URING").is_some() =>
        {
            eprintln!("skipped on io_uring: {reason}");
            vec![Choice::Epoll]
        }
        Err(error) => panic!("{error}"),
    }
}

/// Run a test as the first coroutine of a runtime of one worker, on each driver.
pub fn on_both(test: fn()) {
    on_workers(1, test);
}

/// Run a test as the first coroutine of a runtime, on each driver.
pub fn on_workers(workers: usize, test: fn()) {
    for driver in drivers() {
        let _guard = guard();
        Builder::new()
            .driver(driver)
            .workers(workers)
            .start(test)
            .unwrap();
    }
}

/// Until this is dropped the process has [`LIMIT`]: a wait that nobody ends fails, and says which
/// test it is in.
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
