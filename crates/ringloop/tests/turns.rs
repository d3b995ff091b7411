//! Calls that need not wait: a task that makes many in a row lets the others run; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::limits::ATTEMPTS_PER_POLL;
use ringloop::fs::File;
use ringloop::net::UdpSocket;
use ringloop::{spawn, time};
use ringloop_testing::engine::in_runtimes;
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

const CALLS: usize = 1_000;

/// Turns that another task has during [`CALLS`] calls.
async fn turns_beside(mut call: impl AsyncFnMut()) -> usize {
    let turns = Rc::new(Cell::new(0));
    let counted = Rc::clone(&turns);
    let other = spawn(async move {
        loop {
            counted.set(counted.get() + 1);
            time::yield_now().await;
        }
    });
    for _ in 0..CALLS {
        call().await;
    }
    other.abort();
    turns.get()
}

fn others_have_turns(test: impl AsyncFn() -> usize) {
    in_runtimes(|runtime| {
        let turns = runtime.block_on(test()).unwrap();
        assert!(turns >= CALLS / ATTEMPTS_PER_POLL as usize / 2, "{turns}");
    });
}

#[test]
fn task_that_opens_cached_files_lets_others_run() {
    let path = std::env::current_exe().unwrap();
    others_have_turns(async || turns_beside(async || drop(File::open(&path).await.unwrap())).await);
}

#[test]
fn task_that_sends_batches_lets_others_run() {
    others_have_turns(async || {
        let bind = || UdpSocket::bind_addr((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let (from, to) = (bind(), bind());
        let address = to.local_addr().unwrap();
        let send = async || {
            let (count, sent) = from.send_batch(&[(b"datagram", Some(address))]).await;
            sent.unwrap();
            assert_eq!(count, 1);
        };
        turns_beside(send).await
    });
}
