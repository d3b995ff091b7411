//! Several workers: tasks sent to one, results awaited on another, panics, limits, shutdown; on
//! both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::JoinError;
use ringloop::net::TcpListener;
use ringloop::{Error, Runtime, spawn, spawn_on, time, worker};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a test on each driver, with this many workers.
fn on_both(workers: usize, test: impl Fn(Runtime)) {
    for driver in ringloop_testing::drivers() {
        let builder = Runtime::builder().driver(driver).workers(workers);
        test(builder.build().unwrap());
    }
}

/// Counts how often it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn each_worker_is_a_thread_of_its_own_with_its_name_and_number() {
    for driver in ringloop_testing::drivers() {
        let runtime =
            Runtime::builder().driver(driver).workers(3).thread_name("named").build().unwrap();
        assert_eq!(runtime.workers().count(), 3);
        let handles = runtime
            .workers()
            .spawn_on_all(|number| async move {
                let thread = thread::current();
                (number, worker(), thread.id(), thread.name().map(str::to_owned))
            })
            .unwrap();
        let here = thread::current().id();
        let seen = runtime
            .block_on(async {
                let mut seen = Vec::new();
                for handle in handles {
                    seen.push(handle.await.unwrap());
                }
                seen
            })
            .unwrap();
        assert_eq!(seen[0].2, here);
        for (index, (number, worker, id, name)) in seen.iter().enumerate() {
            assert_eq!((index, index), (*number, *worker));
            if index > 0 {
                assert_ne!(*id, here);
                assert_eq!(name.as_deref(), Some(format!("named-{index}").as_str()));
            }
        }
        assert_ne!(seen[1].2, seen[2].2);
    }
}

#[test]
fn future_that_is_not_send_runs_where_it_was_sent() {
    on_both(2, |runtime| {
        let handle = runtime
            .workers()
            .spawn_on(1, || async {
                let count = Rc::new(Cell::new(0));
                let tasks: Vec<_> = (0..10)
                    .map(|_| {
                        let count = Rc::clone(&count);
                        spawn(async move {
                            time::yield_now().await;
                            count.set(count.get() + 1);
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
                count.get()
            })
            .unwrap();
        assert_eq!(runtime.block_on(handle).unwrap().unwrap(), 10);
    });
}

#[test]
fn handle_is_awaited_by_a_third_worker() {
    on_both(3, |runtime| {
        let sum = runtime
            .block_on(async {
                let first = spawn_on(1, || async {
                    time::sleep(Duration::from_millis(5)).await;
                    20
                })
                .unwrap();
                let second = spawn_on(2, move || async move { first.await.unwrap() + 22 });
                second.unwrap().await.unwrap()
            })
            .unwrap();
        assert_eq!(sum, 42);
    });
}

#[test]
fn thousands_of_tasks_cross_over_and_each_result_comes_back() {
    on_both(2, |runtime| {
        let total: usize = runtime
            .block_on(async {
                let handles: Vec<_> = (0..5000_usize)
                    .map(|number| spawn_on(number % 2, move || async move { number }).unwrap())
                    .collect();
                let mut total = 0;
                for handle in handles {
                    total += handle.await.unwrap();
                }
                total
            })
            .unwrap();
        assert_eq!(total, 4999 * 5000 / 2);
    });
}

#[test]
fn foreign_threads_start_tasks_too() {
    on_both(2, |runtime| {
        let workers = runtime.workers();
        let (send, receive) = mpsc::channel();
        let foreign = thread::spawn(move || {
            let handle = workers.spawn_on(1, || async { worker() }).unwrap();
            send.send(handle).unwrap();
        });
        foreign.join().unwrap();
        let handle = receive.recv().unwrap();
        assert_eq!(runtime.block_on(handle).unwrap().unwrap(), 1);
    });
}

async fn ask_around(number: usize, rounds: usize, counter: Arc<AtomicUsize>) {
    for round in 0..rounds {
        let counter = Arc::clone(&counter);
        let count = move || async move { counter.fetch_add(1, Ordering::Relaxed) };
        let asked = spawn_on((number + round) % 3, count);
        asked.unwrap().await.unwrap();
    }
}

#[test]
fn wakes_from_every_thread_at_once_lose_nothing() {
    on_both(3, |runtime| {
        let (counter, rounds) = (Arc::new(AtomicUsize::new(0)), 2000);
        runtime
            .block_on(async {
                // Each repeatedly asks the others for one more task.
                let shared = Arc::clone(&counter);
                let ask = move |number| ask_around(number, rounds, shared);
                let handles = ringloop::Workers::current().spawn_on_all(ask).unwrap();
                for handle in handles {
                    handle.await.unwrap();
                }
            })
            .unwrap();
        assert_eq!(counter.load(Ordering::Relaxed), 3 * rounds);
    });
}

#[test]
fn panic_in_a_sent_task_reaches_its_handle_and_the_worker_goes_on() {
    on_both(2, |runtime| {
        let workers = runtime.workers();
        let inside = workers.spawn_on(1, || async { panic!("in the future") }).unwrap();
        let made: fn() -> std::future::Ready<()> = || panic!("while it was made");
        let making = workers.spawn_on(1, made).unwrap();
        let after = workers.spawn_on(1, || async { 7 }).unwrap();
        runtime
            .block_on(async {
                let error: Result<(), JoinError> = inside.await;
                assert_eq!(error.unwrap_err().to_string(), "the task panicked: in the future");
                assert_eq!(
                    making.await.unwrap_err().to_string(),
                    "the task panicked: while it was made"
                );
                assert_eq!(after.await.unwrap(), 7);
            })
            .unwrap();
        runtime.shut_down().unwrap();
    });
}

#[test]
fn abort_from_another_thread_drops_the_future_on_its_own() {
    struct Here(thread::ThreadId, Arc<AtomicUsize>);
    impl Drop for Here {
        fn drop(&mut self) {
            assert_eq!(thread::current().id(), self.0);
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    on_both(2, |runtime| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&dropped);
        let (send, receive) = mpsc::channel();
        let handle = runtime
            .workers()
            .spawn_on(1, move || async move {
                let _here = Here(thread::current().id(), counter);
                send.send(()).unwrap();
                time::sleep(Duration::from_secs(3600)).await;
            })
            .unwrap();
        receive.recv().unwrap();
        handle.abort();
        let ended = runtime.block_on(handle).unwrap();
        assert!(matches!(ended, Err(JoinError::Cancelled)), "{ended:?}");
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn abort_before_the_start_never_polls_the_future() {
    on_both(2, |runtime| {
        let (gate, polled) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
        let (wait, count) = (Arc::clone(&gate), Arc::clone(&polled));
        let workers = runtime.workers();
        let blocker = workers.spawn_on(1, move || async move { wait.wait() });
        let task = move || async move { count.fetch_add(1, Ordering::SeqCst) };
        let handle = workers.spawn_on(1, task).unwrap();
        handle.abort();
        gate.wait();
        let ended = runtime.block_on(handle).unwrap();
        assert!(matches!(ended, Err(JoinError::Cancelled)), "{ended:?}");
        assert_eq!(polled.load(Ordering::SeqCst), 0);
        runtime.block_on(blocker.unwrap()).unwrap().unwrap();
    });
}

#[test]
fn worker_that_does_not_exist_is_an_error_with_the_remedy() {
    on_both(1, |runtime| {
        let error = runtime.workers().spawn_on(1, || async {}).unwrap_err();
        assert!(matches!(error, Error::NoSuchWorker { worker: 1, count: 1 }));
        assert!(error.to_string().contains("workers(n)"), "{error}");
    });
}

#[test]
fn full_inbox_is_an_error_and_has_room_again_later() {
    for driver in ringloop_testing::drivers() {
        let runtime =
            Runtime::builder().driver(driver).workers(2).inbox_messages(4).build().unwrap();
        let (workers, gate) = (runtime.workers(), Arc::new(Barrier::new(2)));
        let (started, wait) = (Arc::clone(&gate), Arc::clone(&gate));
        let blocker = workers
            .spawn_on(1, move || async move {
                started.wait();
                wait.wait();
            })
            .unwrap();
        gate.wait();
        // The worker has taken its message and is blocked: four more fit.
        let waiting: Vec<_> = (0..4)
            .map(|number| workers.spawn_on(1, move || async move { number }).unwrap())
            .collect();
        let error = workers.spawn_on(1, || async { 4 }).unwrap_err();
        assert!(matches!(error, Error::InboxFull { waiting: 4 }), "{error:?}");
        gate.wait();
        runtime
            .block_on(async {
                blocker.await.unwrap();
                for (number, handle) in waiting.into_iter().enumerate() {
                    assert_eq!(handle.await.unwrap(), number);
                }
                assert_eq!(spawn_on(1, || async { 5 }).unwrap().await.unwrap(), 5);
            })
            .unwrap();
    }
}

#[test]
fn end_drops_every_task_on_its_thread_and_completes_the_handles() {
    for driver in ringloop_testing::drivers() {
        let runtime =
            Runtime::builder().driver(driver).workers(3).thread_name("ending").build().unwrap();
        let (dropped, workers) = (Arc::new(AtomicUsize::new(0)), runtime.workers());
        let ready = Arc::new(Barrier::new(3));
        let handles: Vec<_> = (1..3)
            .map(|number| {
                let (guard, ready) = (Dropped(Arc::clone(&dropped)), Arc::clone(&ready));
                workers
                    .spawn_on(number, move || async move {
                        let _guard = guard;
                        ready.wait();
                        std::future::pending::<()>().await;
                    })
                    .unwrap()
            })
            .collect();
        ready.wait();
        // A task that never starts: worker 0 runs in block_on only.
        let guard = Dropped(Arc::clone(&dropped));
        let unstarted = workers.spawn_on(0, move || async move { drop(guard) });
        assert_eq!(threads_named("ending"), 2);
        runtime.shut_down().unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 3);
        assert!(handles.iter().all(ringloop::RemoteJoinHandle::is_finished));
        assert!(unstarted.unwrap().is_finished());
        // A joined thread stays in /proc until the kernel has removed it.
        let begun = Instant::now();
        while threads_named("ending") > 0 {
            assert!(begun.elapsed() < ringloop_testing::PATIENCE, "a worker is left");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(matches!(workers.spawn_on(1, || async {}), Err(Error::Closed)));
    }
}

#[test]
fn handle_that_outlives_its_runtime_is_aborted() {
    on_both(2, |runtime| {
        let handle = runtime.workers().spawn_on(1, std::future::pending::<()>).unwrap();
        drop(runtime);
        let other = Runtime::new().unwrap();
        let ended = other.block_on(handle).unwrap();
        assert!(matches!(ended, Err(JoinError::Cancelled)), "{ended:?}");
    });
}

#[test]
fn pinned_workers_run_on_one_processor_each() {
    // In a separate thread: worker 0 stays pinned.
    thread::spawn(|| {
        let allowed = ringloop::embed::sys::thread::allowed_processors().unwrap();
        let runtime = Runtime::builder().workers(2).pin_to_processors(true).build().unwrap();
        let handles = runtime.workers().spawn_on_all(|_| async {
            ringloop::embed::sys::thread::allowed_processors().unwrap()
        });
        for (number, handle) in handles.unwrap().into_iter().enumerate() {
            let processors = runtime.block_on(handle).unwrap().unwrap();
            assert_eq!(processors, [allowed[number % allowed.len()]]);
        }
    })
    .join()
    .unwrap();
}

#[test]
fn ring_of_a_chosen_size_is_refused_only_by_the_kernel() {
    for driver in ringloop_testing::drivers() {
        let runtime = Runtime::builder()
            .driver(driver)
            .ring_entries(4)
            .completion_entries(8)
            .workers(2)
            .build()
            .unwrap();
        // More operations than both queues hold.
        let handle = runtime.workers().spawn_on(1, || async {
            let tasks: Vec<_> = (0..100)
                .map(|_| spawn(ringloop::embed::Op::new(ringloop::embed::op::Nop)))
                .collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
        });
        runtime.block_on(handle.unwrap()).unwrap().unwrap();
    }
}

fn threads_named(start: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(start.as_bytes())).count()
}

#[test]
fn listeners_of_one_address_share_its_connections() {
    for driver in ringloop_testing::drivers() {
        let runtime = Runtime::builder().driver(driver).workers(2).build().unwrap();
        let serving = TcpListener::serve_on_all(
            &runtime.workers(),
            ([127, 0, 0, 1], 0).into(),
            |listener: TcpListener| async move {
                let mut incoming = listener.incoming();
                while let Ok(stream) = incoming.next().await {
                    let number = u8::try_from(worker()).unwrap();
                    let (sent, _) = stream.write_all(vec![number]).await;
                    sent.unwrap();
                }
            },
        )
        .unwrap();
        let addr = serving.local_addr;
        assert_eq!(serving.handles.len(), 2);
        let client = thread::spawn(move || {
            let mut served = [0_u32; 2];
            for _ in 0..400 {
                let mut stream = std::net::TcpStream::connect(addr).unwrap();
                let mut number = [0];
                std::io::Read::read_exact(&mut stream, &mut number).unwrap();
                served[usize::from(number[0])] += 1;
            }
            served
        });
        let served = runtime
            .block_on(async {
                while !client.is_finished() {
                    time::sleep(Duration::from_millis(1)).await;
                }
                client.join().unwrap()
            })
            .unwrap();
        // The kernel's hash is even: 200 of 400, off by 10 standard deviations at most.
        assert!(served.iter().all(|count| *count >= 100), "{served:?}");
        runtime.shut_down().unwrap();
    }
}

#[test]
fn loop_that_is_torn_down_by_a_foreign_waker_is_reported_and_the_others_go_on() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("a waker of somebody else's");
        }
    }
    on_both(3, |runtime| {
        let workers = runtime.workers();
        let trap = || async {
            let mut task = spawn(time::yield_now());
            let waker = Waker::from(Arc::new(Bomb));
            let polled = Pin::new(&mut task).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            std::future::pending::<()>().await;
        };
        let caught = workers.spawn_on(1, trap).unwrap();
        let ended = runtime.block_on(caught).unwrap();
        assert!(matches!(ended, Err(JoinError::Cancelled)), "{ended:?}");
        let other = workers.spawn_on(2, || async { worker() }).unwrap();
        assert_eq!(runtime.block_on(other).unwrap().unwrap(), 2);
        let error = runtime.shut_down().unwrap_err();
        assert_eq!(
            error.to_string(),
            "worker 1 has stopped, and its tasks were dropped: a waker of somebody else's"
        );
        let late = workers.spawn_on(1, || async {});
        assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    });
}
