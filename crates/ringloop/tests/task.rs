//! Groups of tasks, values of tasks, `select!` with guards and `else`, the attributes; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::sync::local::{mpsc, oneshot};
use ringloop::task::{JoinSet, NotSet};
use ringloop::time::{sleep, timeout, yield_now};
use ringloop::{JoinError, select, spawn};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::in_runtimes;
use std::cell::Cell;
use std::future::{pending, ready};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    in_runtimes(|runtime| {
        runtime.block_on(async { timeout(PATIENCE, test()).await.unwrap() }).unwrap();
    });
}

fn is_ready<F: Future>(future: F) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn results_come_in_the_order_of_the_ends() {
    on_both(async || {
        let mut tasks = JoinSet::new();
        assert!(tasks.join_next().await.is_none() && tasks.is_empty());
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..5).map(|_| oneshot::channel()).unzip();
        for receiver in receivers {
            tasks.spawn(async move { receiver.await.unwrap() });
        }
        let mut senders: Vec<_> = senders.into_iter().map(Some).collect();
        for number in [3, 1, 4, 0, 2] {
            assert!(tasks.try_join_next().is_none());
            assert!(!is_ready(tasks.join_next()));
            senders[number].take().unwrap().send(number).unwrap();
            assert_eq!(tasks.join_next().await.unwrap().unwrap(), number);
        }
        assert!(tasks.is_empty());
    });
}

#[test]
fn panics_and_aborts_are_results() {
    on_both(async || {
        let mut tasks = JoinSet::new();
        tasks.spawn(async { panic!("of a task") });
        let failed = tasks.join_next().await.unwrap().unwrap_err();
        assert!(matches!(failed, JoinError::Panicked(_)), "{failed}");
        for _ in 0..3 {
            tasks.spawn(pending::<()>());
        }
        yield_now().await;
        // It is never polled.
        tasks.spawn(pending());
        tasks.abort_all();
        for left in (0..4).rev() {
            let aborted = tasks.join_next().await.unwrap().unwrap_err();
            assert!(matches!(aborted, JoinError::Cancelled), "{aborted}");
            assert_eq!(tasks.len(), left);
        }
    });
}

#[test]
fn set_aborts_its_tasks_when_it_is_dropped_and_not_when_they_are_detached() {
    on_both(async || {
        for detaches in [false, true] {
            let drops = Rc::new(Cell::new(0));
            let (sender, receiver) = oneshot::channel::<()>();
            let mut tasks = JoinSet::new();
            let counted = Counted(Rc::clone(&drops));
            tasks.spawn(async move {
                let _counted = counted;
                receiver.await.is_ok()
            });
            yield_now().await;
            if detaches {
                tasks.detach_all();
                assert!(tasks.is_empty());
            }
            drop(tasks);
            for _ in 0..3 {
                yield_now().await;
            }
            assert_eq!(drops.get(), usize::from(!detaches));
            assert_eq!(sender.send(()).is_ok(), detaches);
            while drops.get() == 0 {
                yield_now().await;
            }
        }
    });
}

#[test]
fn shutdown_waits_until_what_tasks_own_is_dropped() {
    on_both(async || {
        let drops = Rc::new(Cell::new(0));
        let mut tasks = JoinSet::new();
        for number in 0..10 {
            let counted = Counted(Rc::clone(&drops));
            tasks.spawn(async move {
                let _counted = counted;
                if number % 2 == 0 {
                    pending::<()>().await;
                }
            });
        }
        tasks.shutdown().await;
        assert_eq!((drops.get(), tasks.len()), (10, 0));
        for number in 0..10 {
            tasks.spawn(async move { assert!(number < 10) });
        }
        assert_eq!(tasks.join_all().await.len(), 10);
    });
}

#[test]
fn set_of_many_tasks_polls_only_those_that_end() {
    on_both(async || {
        let mut tasks = JoinSet::new();
        let gates: Vec<_> = (0..2000_usize)
            .map(|number| {
                let (sender, receiver) = oneshot::channel::<()>();
                tasks.spawn(async move { receiver.await.map(|()| number) });
                sender
            })
            .collect();
        for (number, gate) in gates.into_iter().enumerate() {
            gate.send(()).unwrap();
            assert_eq!(tasks.join_next().await.unwrap().unwrap(), Ok(number));
        }
    });
}

ringloop::task_local! {
    static NUMBER: u32;
    static NAME: String
}

#[test]
fn value_of_a_task_stays_with_it_across_its_waits() {
    on_both(async || {
        let read = || NUMBER.try_with(|number| *number);
        let task = |number| {
            spawn(NUMBER.scope(number, async move {
                for _ in 0..10 {
                    assert_eq!(read(), Ok(number));
                    yield_now().await;
                }
                let inner = NUMBER.scope(number + 100, async {
                    yield_now().await;
                    NUMBER.with(|number| *number)
                });
                assert_eq!(inner.await, number + 100);
                assert_eq!(NUMBER.sync_scope(7, read), Ok(7));
                // Not in a task that it starts.
                assert_eq!(spawn(async move { read() }).await.unwrap(), Err(NotSet));
                NUMBER.with(|number| *number)
            }))
        };
        let (one, two) = (task(1), task(2));
        assert_eq!(read(), Err(NotSet));
        assert_eq!((one.await.unwrap(), two.await.unwrap()), (1, 2));
        let named = NAME.scope("a".to_owned(), async {
            NAME.with(|outer| NAME.sync_scope(format!("{outer}b"), || NAME.with(String::clone)))
        });
        assert_eq!(named.await, "ab");
    });
}

#[test]
fn panic_in_a_scope_leaves_no_value_behind() {
    on_both(async || {
        let task = spawn(NUMBER.scope(1, async { panic!("of a scope") }));
        assert!(task.await.is_err());
        assert!(NUMBER.try_with(|_| ()).is_err());
    });
}

#[test]
fn guard_keeps_a_branch_out_of_the_race() {
    on_both(async || {
        let won = select! {
            number = ready(1), if false => number,
            number = ready(2), if true => number,
            number = ready(3) => number,
        };
        assert_eq!(won, 2);
        // Guards come before the futures, which may borrow what they look at.
        let (mut values, mut polled) = (vec![1, 2, 3], 0);
        loop {
            select! {
                popped = async { values.pop() }, if !values.is_empty() => polled += popped.unwrap(),
                () = yield_now(), if polled >= 6 => break,
            }
        }
        assert_eq!((polled, values), (6, vec![]));
    });
}

#[test]
fn pattern_that_does_not_fit_drops_its_branch_and_else_is_last() {
    on_both(async || {
        let (sender, mut receiver) = mpsc::channel::<u32>(4);
        let (_open, mut idle) = mpsc::channel::<u32>(1);
        sender.try_send(1).unwrap();
        drop(sender);
        let mut log = Vec::new();
        loop {
            select! {
                Some(number) = receiver.recv() => log.push(number),
                Some(_) = idle.recv(), if log.is_empty() => unreachable!(),
                Ok(()) = timeout(Duration::ZERO, pending()) => unreachable!(),
                else => break,
            }
        }
        assert_eq!(log, [1]);
        // The others go on after one has dropped out.
        let won = select! {
            Some(number) = ready(None::<u32>) => number,
            number = async { yield_now().await; 2 } => number,
            else => 3,
        };
        assert_eq!(won, 2);
        let all_disabled = select! {
            number = ready(1), if log.len() > 1 => number,
            else => 9,
        };
        assert_eq!(all_disabled, 9);
        // The output is moved into the pattern.
        let text = select! {
            Ok(text) = ready(Ok::<_, ()>(String::from("a"))) => text + "b",
            else => String::new(),
        };
        assert_eq!(text, "ab");
        // Without an else, a pattern may bind by `mut` at any depth.
        let text = select! {
            (mut text, _) = ready((String::from("a"), 1)), if true => { text.push('b'); text }
        };
        assert_eq!(text, "ab");
    });
}

#[test]
#[should_panic(expected = "every branch of select! is disabled")]
fn select_without_a_branch_panics() {
    let runtime = ringloop::Runtime::new().unwrap();
    runtime
        .block_on(async {
            select! {
                () = ready(()), if false => {}
            }
        })
        .unwrap();
}

#[test]
fn losers_are_dropped_before_a_guarded_branch_runs() {
    on_both(async || {
        let drops = Rc::new(Cell::new(0));
        let counted = Counted(Rc::clone(&drops));
        let mut buffer = String::from("kept");
        select! {
            () = async { let _held = &counted; pending::<()>().await }, if true => {}
            () = async { buffer.push('!'); pending::<()>().await }, if true => {}
            () = sleep(Duration::ZERO), if drops.get() == 0 => buffer.push('?'),
            else => unreachable!(),
        }
        assert_eq!((buffer.as_str(), drops.get()), ("kept!?", 0));
        drop(counted);
    });
}

#[cfg(feature = "macros")]
mod attributes {
    use super::*;

    #[ringloop::test]
    async fn test_runs_in_a_runtime_and_may_return_a_result() -> std::io::Result<()> {
        assert_eq!(spawn(async { 1 }).await.unwrap(), 1);
        sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    #[ringloop::test(workers = 2, driver = "epoll", crate = "ringloop")]
    async fn options_are_those_of_the_builder() {
        let runtime = ringloop::embed::Local::current();
        assert_eq!(runtime.engine().kind(), ringloop::embed::Kind::Epoll);
        let worker = ringloop::spawn_on(1, async || ringloop::worker()).unwrap();
        assert_eq!(worker.await.unwrap(), 1);
    }

    /// A comment, attributes and a visibility stay.
    #[ringloop::test]
    #[should_panic(expected = "of the test")]
    #[allow(clippy::unused_async)]
    pub(super) async fn attributes_of_the_function_stay() {
        panic!("of the test");
    }

    #[ringloop::main(crate = "ringloop")]
    async fn doubled() -> u32 {
        spawn(async { 21 }).await.unwrap() * 2
    }

    #[test]
    fn main_returns_what_the_function_does() {
        assert_eq!(doubled(), 42);
    }
}
