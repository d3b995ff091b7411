//! The list of tasks: who they are and what they wait for; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::net::UnixStream;
use ringloop::sync::local::{CancellationToken, Mutex, mpsc};
use ringloop::task::{TaskInfo, dump};
use ringloop::time::{sleep, timeout, yield_now};
use ringloop::{Runtime, spawn, spawn_on};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::in_runtimes;
use std::rc::Rc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// Waits until all tasks but the caller wait for something.
async fn settled() -> Vec<TaskInfo> {
    loop {
        yield_now().await;
        let tasks = dump();
        if tasks.iter().all(|task| task.is_running || !task.waits_for.is_empty()) {
            return tasks;
        }
    }
}

#[test]
fn each_task_shows_where_it_is_from_and_what_it_waits_for() {
    in_runtimes(|runtime| {
        let test = async {
            let (ours, _peer) = UnixStream::pair().unwrap();
            let lock = Rc::new(Mutex::new(()));
            let (_sender, mut receiver) = mpsc::channel::<()>(1);
            let token = CancellationToken::new();
            let held = lock.lock().await;
            let line = line!() + 2;
            let tasks = [
                spawn(sleep(LONG)),
                spawn(async move { drop(ours.read(Vec::with_capacity(8)).await) }),
                spawn({
                    let lock = Rc::clone(&lock);
                    async move { drop(lock.lock().await) }
                }),
                spawn(async move { assert!(receiver.recv().await.is_none()) }),
                spawn({
                    let token = token.clone();
                    async move {
                        ringloop::select! { () = token.cancelled() => {}, () = sleep(LONG) => {} }
                    }
                }),
            ];
            let waiter = spawn(async move {
                for task in tasks {
                    drop(task.await);
                }
            });
            let found = settled().await;
            let waits: Vec<_> = found.iter().map(|task| task.waits_for.join(", ")).collect();
            let expected =
                ["", "a timer", "Recv", "a lock", "a channel", "a cancellation, a timer", "a task"];
            assert_eq!(waits, expected);
            assert!(found[0].is_running, "the future of block_on");
            assert_eq!((found[1].spawned_at.line(), found[1].spawned_at.file()), (line, file!()));
            assert!(found[1].future.contains("Sleep") && found[1].poll_count == 1);
            let text = found[2].to_string();
            assert!(text.contains("waits for Recv") && text.contains("dump.rs"), "{text}");
            assert!(found[0].to_string().ends_with("running"));
            waiter.abort();
            drop(held);
            drop(token);
        };
        runtime.block_on(async { timeout(PATIENCE, test).await.unwrap() }).unwrap();
        assert!(dump().iter().all(|task| !task.is_running));
    });
}

#[test]
fn tasks_leave_the_list_when_they_end_or_are_dropped() {
    in_runtimes(|runtime| {
        let count = || dump().len();
        runtime
            .block_on(async {
                let before = count();
                let ended = spawn(async {});
                let aborted = spawn(sleep(LONG));
                let panics = spawn(async { panic!("of a task") });
                assert_eq!(count(), before + 3);
                ended.await.unwrap();
                assert!(panics.await.is_err());
                aborted.abort();
                assert!(aborted.await.is_err());
                assert_eq!(count(), before);
            })
            .unwrap();
        assert_eq!(count(), 0);
    });
}

#[test]
fn each_worker_lists_its_own_tasks() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    runtime
        .block_on(async {
            let here = spawn(sleep(LONG));
            let there = spawn_on(1, async || {
                drop(spawn(sleep(LONG)));
                yield_now().await;
                dump()
            });
            let found = there.unwrap().await.unwrap();
            assert_eq!(found.len(), 2);
            assert!(found[0].is_running && found[0].spawned_at.file() == file!());
            assert_eq!(found[1].waits_for, ["a timer"]);
            here.abort();
        })
        .unwrap();
}
