//! The runtime as applications use it: tasks, timers, wakes from other threads, TCP; on both
//! drivers.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::JoinError;
use ringloop::embed::Kind;
use ringloop::embed::sys::libc;
use ringloop::net::{TcpListener, TcpStream};
use ringloop::time::{self, Elapsed};
use ringloop::{Options, Runtime, spawn};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Run a test on each driver that exists here.
fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for driver in [Choice::Uring, Choice::Epoll] {
        match Runtime::with_options(Options { driver, ..Options::default() }) {
            Ok(runtime) => runtime.block_on(test()).unwrap(),
            Err(error)
                if driver == Choice::Uring
                    && std::env::var_os("RINGLOOP_ALLOW_NO_URING").is_some() =>
            {
                eprintln!("skipped on io_uring: {error}");
            }
            Err(error) => panic!("{driver:?}: {error}"),
        }
    }
}

fn localhost() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn driver_is_the_one_asked_for() {
    for (choice, kind) in [(Choice::Uring, Kind::Uring), (Choice::Epoll, Kind::Epoll)] {
        let runtime =
            Runtime::with_options(Options { driver: choice, ..Options::default() }).unwrap();
        assert_eq!(runtime.kind(), kind);
        assert!(runtime.reason().contains("as asked for"));
    }
}

#[test]
fn join_handle_yields_the_result_of_the_task() {
    on_both(|| async {
        let handles: Vec<_> = (0..100).map(|number| spawn(async move { number * 2 })).collect();
        for (number, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.await.unwrap(), number * 2);
        }
    });
}

#[test]
fn join_handle_polled_after_its_result_panics_with_a_message() {
    on_both(|| async {
        let mut handle = spawn(async { 1 });
        assert_eq!((&mut handle).await.unwrap(), 1);
        assert!(handle.is_finished());
        let again = spawn(async move { handle.await.unwrap() });
        assert_eq!(
            again.await.unwrap_err().to_string(),
            "the task panicked: JoinHandle polled after it gave the task's result"
        );
    });
}

#[test]
fn panic_in_a_task_reaches_only_its_handle() {
    on_both(|| async {
        let handle = spawn(async { panic!("on purpose") });
        let error: Result<(), JoinError> = handle.await;
        assert_eq!(error.unwrap_err().to_string(), "the task panicked: on purpose");
        assert_eq!(spawn(async { 1 }).await.unwrap(), 1);
    });
}

#[test]
fn abort_drops_the_future_and_completes_the_handle() {
    struct Guard(Rc<RefCell<bool>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            *self.0.borrow_mut() = true;
        }
    }
    on_both(|| async {
        let dropped = Rc::new(RefCell::new(false));
        let guard = Guard(Rc::clone(&dropped));
        let handle = spawn(async move {
            let _guard = guard;
            time::sleep(Duration::from_secs(3600)).await;
        });
        time::yield_now().await;
        handle.abort();
        assert!(matches!(handle.await, Err(JoinError::Cancelled)));
        assert!(*dropped.borrow());
    });
}

#[test]
fn timers_fire_in_order_and_never_early() {
    on_both(|| async {
        for _ in 0..100 {
            let order = Rc::new(RefCell::new(Vec::new()));
            let start = Instant::now();
            let handles: Vec<_> = [30_u64, 10, 20, 10]
                .into_iter()
                .enumerate()
                .map(|(index, ms)| {
                    let order = Rc::clone(&order);
                    let due = start + Duration::from_millis(ms);
                    spawn(async move {
                        time::sleep_until(due).await;
                        assert!(Instant::now() >= due);
                        order.borrow_mut().push(index);
                    })
                })
                .collect();
            time::yield_now().await;
            // On a machine that late, some have not slept at all.
            let all_lay_down = start.elapsed() < Duration::from_millis(10);
            for handle in handles {
                handle.await.unwrap();
            }
            if all_lay_down {
                return assert_eq!(*order.borrow(), [1, 3, 2, 0]);
            }
        }
        panic!("this machine is always late");
    });
}

#[test]
fn timeout_cancels_what_takes_too_long() {
    on_both(|| async {
        let listener = TcpListener::bind_addr(localhost()).unwrap();
        let late = time::timeout(Duration::from_millis(5), listener.accept()).await;
        assert_eq!(late.unwrap_err(), Elapsed);
        // The listener still works: the cancelled accept took no connection with it.
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = listener.accept().await.unwrap();
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    });
}

#[test]
fn wake_from_another_thread_ends_the_wait() {
    on_both(|| async {
        let (send, receive) = mpsc::channel::<Waker>();
        let thread = std::thread::spawn(move || {
            let waker = receive.recv().unwrap();
            std::thread::sleep(Duration::from_millis(10));
            waker.wake();
        });
        let handle = spawn(async move {
            let mut asked = false;
            std::future::poll_fn(|cx| {
                if std::mem::replace(&mut asked, true) {
                    return Poll::Ready(());
                }
                send.send(cx.waker().clone()).unwrap();
                Poll::Pending
            })
            .await;
        });
        handle.await.unwrap();
        thread.join().unwrap();
    });
}

#[test]
fn echo_returns_every_byte_in_order() {
    on_both(|| async {
        let listener = TcpListener::bind_addr(localhost()).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = spawn(async move {
            let stream = listener.accept().await.unwrap();
            let mut buf = Vec::with_capacity(64 * 1024);
            loop {
                let (count, bytes) = stream.read(buf).await;
                if count.unwrap() == 0 {
                    return;
                }
                let (sent, bytes) = stream.write_all(bytes).await;
                sent.unwrap();
                buf = bytes;
            }
        });
        let client = Rc::new(TcpStream::connect(addr).await.unwrap());
        let data: Vec<u8> = (0..4_000_000_u32).map(|number| (number % 251) as u8).collect();
        let writer = {
            let (client, data) = (Rc::clone(&client), data.clone());
            spawn(async move {
                client.write_all(data).await.0.unwrap();
                client.shutdown(std::net::Shutdown::Write).unwrap();
            })
        };
        let mut received = Vec::new();
        loop {
            let (count, bytes) = client.read(Vec::with_capacity(100_000)).await;
            if count.unwrap() == 0 {
                break;
            }
            received.extend(bytes);
        }
        assert!(received == data, "{} of {} bytes", received.len(), data.len());
        writer.await.unwrap();
        server.await.unwrap();
    });
}

#[test]
fn connect_to_a_closed_port_keeps_its_errno() {
    on_both(|| async {
        let listener = TcpListener::bind_addr(localhost()).unwrap();
        let addr = listener.local_addr().unwrap();
        drop(listener);
        let error = TcpStream::connect(addr).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    });
}

#[test]
fn more_operations_than_the_submission_queue_holds_all_complete() {
    on_both(|| async {
        let handles: Vec<_> = (0..10_000)
            .map(|_| spawn(async { ringloop::embed::Op::new(ringloop::embed::op::Nop).await }))
            .collect();
        for handle in handles {
            handle.await.unwrap().unwrap();
        }
    });
}

#[test]
fn dropped_runtime_completes_its_handles() {
    for driver in [Choice::Uring, Choice::Epoll] {
        let runtime = Runtime::with_options(Options { driver, ..Options::default() }).unwrap();
        let handle = runtime.spawn(std::future::pending::<()>());
        runtime.block_on(time::yield_now()).unwrap();
        drop(runtime);
        assert!(handle.is_finished());
    }
}
