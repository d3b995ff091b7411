//! Operations that must not block a loop, or its creation. Each test runs in a child, which is
//! killed if it takes too long: a failure would hang it.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::limits::{BLOCKING_QUEUE, BLOCKING_THREADS};
use ringloop::embed::op::{Accept, Fsync, Nop, Read, Write};
use ringloop::embed::sys::file;
use ringloop::embed::sys::storage::CURRENT_POSITION;
use ringloop::embed::{Link, Op};
use ringloop::fs::File;
use ringloop::net::{TcpListener, UdpSocket, UnixListener};
use ringloop::{Runtime, spawn, spawn_blocking, time};
use ringloop_testing::{PATIENCE, drivers};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::Read as _;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const CHILD: &str = "RINGLOOP_TEST_CHILD";
const SHORT: Duration = Duration::from_millis(20);

/// Runs `test`, the body of the test `name`, in a child that a shell starts after `limits`.
fn in_time(name: &str, limits: &str, test: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let mut child = Command::new("sh")
        .args(["-c", &format!("{limits} exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{name} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut output = String::new();
    child.stdout.unwrap().read_to_string(&mut output).unwrap();
    assert!(status.success(), "{output}");
    assert!(output.contains("1 passed"), "{name} is not a test: {output}");
}

fn runtime(driver: Choice) -> Runtime {
    Runtime::builder().driver(driver).build().unwrap()
}

#[test]
fn worker_that_cannot_start_is_an_error_and_the_others_end() {
    let name = "worker_that_cannot_start_is_an_error_and_the_others_end";
    // Room for some of the workers' descriptors.
    in_time(name, "ulimit -n 24;", || {
        for driver in drivers() {
            for _ in 0..50 {
                let builder = Runtime::builder().driver(driver).workers(16);
                let error = builder.build().unwrap_err();
                assert!(!error.to_string().is_empty(), "{error:?}");
            }
            let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
            assert!(threads < 16, "{threads} threads are left");
        }
    });
}

/// Unlike a terminal, a memory device never blocks.
#[test]
fn null_device_is_written_without_a_thread() {
    let name = "null_device_is_written_without_a_thread";
    in_time(name, "", || {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        for driver in drivers() {
            let before = threads();
            let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
            let null = File::from(null.unwrap());
            runtime(driver)
                .block_on(async {
                    null.write_all(vec![7; 100_000]).await.0.unwrap();
                    assert_eq!(null.write(vec![7; 10]).await.0.unwrap(), 10);
                    assert_eq!(threads(), before, "{driver:?}");
                })
                .unwrap();
        }
    });
}

/// A timer fires while `accept` waits, and `accept` then takes the connection of `connect`.
async fn beside_a_timer<C>(
    accept: impl Future<Output = ()> + 'static,
    connect: impl FnOnce() -> C,
) {
    let accepted = Rc::new(Cell::new(false));
    let said = Rc::clone(&accepted);
    let task = spawn(async move {
        accept.await;
        said.set(true);
    });
    time::sleep(SHORT).await;
    assert!(!accepted.get());
    let _peer = connect();
    task.await.unwrap();
}

#[test]
fn listener_that_was_made_elsewhere_does_not_block_the_loop() {
    let name = "listener_that_was_made_elsewhere_does_not_block_the_loop";
    in_time(name, "", || {
        for driver in drivers() {
            runtime(driver)
                .block_on(async {
                    accept_tcp().await;
                    accept_unix().await;
                    accept_raw().await;
                })
                .unwrap();
        }
    });
}

async fn accept_tcp() {
    for by_descriptor in [false, true] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let connect = || std::net::TcpStream::connect(addr).unwrap();
        let listener: TcpListener =
            if by_descriptor { OwnedFd::from(listener).into() } else { listener.into() };
        let listener = Rc::new(listener);
        let one = Rc::clone(&listener);
        let accept = async move { drop(one.accept().await.unwrap()) };
        beside_a_timer(accept, connect).await;
        let all = Rc::clone(&listener);
        let accept = async move {
            let mut incoming = all.incoming();
            drop(incoming.next().await.unwrap());
        };
        beside_a_timer(accept, connect).await;
    }
}

async fn accept_unix() {
    let path = std::env::temp_dir().join(format!("ringloop-stalls-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let listener = Rc::new(UnixListener::from(listener));
    let connect = || std::os::unix::net::UnixStream::connect(&path).unwrap();
    let one = Rc::clone(&listener);
    let accept = async move { drop(one.accept().await.unwrap()) };
    beside_a_timer(accept, connect).await;
    let accept = async move {
        let mut incoming = listener.incoming();
        drop(incoming.next().await.unwrap());
    };
    beside_a_timer(accept, connect).await;
    std::fs::remove_file(&path).unwrap();
}

fn is_blocking(fd: RawFd) -> bool {
    let fdinfo = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    let flags = fdinfo.lines().find_map(|line| line.strip_prefix("flags:"));
    i32::from_str_radix(flags.unwrap().trim(), 8).unwrap() & libc::O_NONBLOCK == 0
}

/// On a descriptor that stays blocking.
async fn accept_raw() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let fd = listener.as_raw_fd();
    let accept = async move { drop(Op::new(Accept { fd, multi: false }).await.unwrap()) };
    beside_a_timer(accept, || std::net::TcpStream::connect(addr).unwrap()).await;
    assert!(is_blocking(fd));
}

/// Calls on pool threads that wait until the gate opens.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn occupy(&self, calls: usize) {
        for _ in 0..calls {
            let gate = self.clone();
            drop(spawn_blocking(move || {
                let (open, opened) = &*gate.0;
                let waited = opened.wait_while(open.lock().unwrap(), |open| !*open);
                drop(waited.unwrap());
            }));
        }
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

fn tempfile() -> std::fs::File {
    let mut options = std::fs::File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_TMPFILE);
    options.read(true).write(true).open(std::env::temp_dir()).unwrap()
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let ns = stat.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(ns)
}

/// A file operation that finds the pool full waits without using CPU time, and runs when there is
/// room.
async fn sync_behind_calls(idle_threads: usize) {
    let gate = Gate::default();
    gate.occupy(BLOCKING_THREADS - idle_threads + BLOCKING_QUEUE);
    time::sleep(SHORT).await;
    gate.occupy(BLOCKING_THREADS);
    let file = tempfile();
    let fd = file.as_raw_fd();
    let synced = spawn(async move {
        let fsync = Fsync { fd, data_only: true };
        Op::new(fsync).await.unwrap();
    });
    time::sleep(SHORT).await;
    let before = thread_time();
    time::sleep(5 * SHORT).await;
    let spent = thread_time().saturating_sub(before);
    assert!(spent < 2 * SHORT, "{spent:?} of {:?}", 5 * SHORT);
    assert!(!synced.is_finished());
    gate.open();
    synced.await.unwrap();
}

#[test]
fn file_operation_runs_after_the_calls_that_filled_the_pool() {
    let name = "file_operation_runs_after_the_calls_that_filled_the_pool";
    in_time(name, "", || {
        runtime(Choice::Epoll).block_on(sync_behind_calls(0)).unwrap();
    });
}

#[test]
fn full_pool_with_a_file_operation_at_work_leaves_the_loop_free() {
    let name = "full_pool_with_a_file_operation_at_work_leaves_the_loop_free";
    in_time(name, "", || {
        let work = async {
            let (reader, writer) = file::pipe().unwrap();
            file::set_nonblocking(reader.as_raw_fd(), false).unwrap();
            // As if of a file: a pool thread waits in it.
            let stuck = Op::new(Read {
                fd: reader.as_raw_fd(),
                buf: RecvBuf::with_capacity(1),
                offset: Some(CURRENT_POSITION),
            });
            let stuck = spawn(async move { stuck.await.0.unwrap() });
            time::sleep(SHORT).await;
            sync_behind_calls(1).await;
            file::write(writer.as_raw_fd(), b"x", None).unwrap();
            assert_eq!(stuck.await.unwrap(), 1);
        };
        runtime(Choice::Epoll).block_on(work).unwrap();
    });
}

#[test]
fn file_that_is_dropped_before_an_operation_no_thread_has_begun_is_closed_with_it() {
    let name = "file_that_is_dropped_before_an_operation_no_thread_has_begun_is_closed_with_it";
    in_time(name, "", || {
        let work = async {
            let gate = Gate::default();
            gate.occupy(BLOCKING_THREADS);
            let file = File::from(tempfile());
            let fd = file.as_raw_fd();
            let mut fsync = Op::new(Fsync { fd, data_only: true });
            let begun = poll_fn(|cx| Poll::Ready(Pin::new(&mut fsync).poll(cx))).await;
            assert!(begun.is_pending());
            drop(file);
            assert!(is_open(fd), "a thread may name it");
            drop(fsync);
            assert!(!is_open(fd), "nobody names it any more");
            gate.open();
        };
        runtime(Choice::Epoll).block_on(work).unwrap();
    });
}

fn is_open(fd: RawFd) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok()
}

/// Accepts a connection and replies, while another task calls the loop repeatedly.
async fn answers_a_client() {
    let listener = TcpListener::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
    let addr = listener.local_addr().unwrap();
    let client = spawn_blocking(move || {
        let mut client = std::net::TcpStream::connect(addr).unwrap();
        std::io::Write::write_all(&mut client, b"hello").unwrap();
        let mut bytes = [0; 5];
        client.read_exact(&mut bytes).unwrap();
        bytes
    });
    let stream = listener.accept().await.unwrap();
    let (count, bytes) = stream.read(Vec::with_capacity(5)).await;
    assert_eq!(count.unwrap(), 5);
    stream.write_all(bytes).await.0.unwrap();
    assert_eq!(&client.await.unwrap(), b"hello");
}

#[test]
fn datagram_socket_whose_peer_is_gone_does_not_keep_the_others_waiting() {
    let name = "datagram_socket_whose_peer_is_gone_does_not_keep_the_others_waiting";
    in_time(name, "", || {
        for driver in drivers() {
            let work = async {
                let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                let addr = gone.local_addr().unwrap();
                drop(gone);
                let refused = spawn(async move {
                    let socket = UdpSocket::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
                    socket.connect(addr).await.unwrap();
                    let mut datagrams = socket.datagrams();
                    loop {
                        socket.send(vec![1]).await.0.unwrap();
                        datagrams.next().await.unwrap_err();
                    }
                });
                answers_a_client().await;
                // A file's operation comes back from a pool thread.
                let file = tempfile();
                let fsync = Fsync { fd: file.as_raw_fd(), data_only: true };
                Op::new(fsync).await.unwrap();
                assert!(!refused.is_finished());
                refused.abort();
            };
            runtime(driver).block_on(work).unwrap();
        }
    });
}

/// An executor inside a task, which polls until its future is ready.
fn run_inside<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

#[test]
fn executor_inside_of_a_task_finishes_operations_that_complete_at_once() {
    let name = "executor_inside_of_a_task_finishes_operations_that_complete_at_once";
    in_time(name, "", || {
        for driver in drivers() {
            let work = async {
                run_inside(async {
                    for _ in 0..100 {
                        time::sleep(Duration::ZERO).await;
                    }
                });
            };
            runtime(driver).block_on(work).unwrap();
        }
    });
}

#[test]
fn link_longer_than_the_ring_runs_all_the_same() {
    let name = "link_longer_than_the_ring_runs_all_the_same";
    in_time(name, "", || {
        for driver in drivers() {
            let builder = Runtime::builder().driver(driver).ring_entries(4);
            let work = async {
                let file = tempfile();
                let fd = file.as_raw_fd();
                let write = Write { fd, buf: SendBuf::from(b"bytes".to_vec()), offset: Some(0) };
                let fsync = Fsync { fd, data_only: true };
                let link = Link::new(write).timeout(PATIENCE).then(fsync);
                let link = link.timeout(PATIENCE).then(Nop);
                let (((written, _), synced), ended) = link.await;
                assert_eq!(written.unwrap(), 5);
                synced.unwrap();
                ended.unwrap();
                // And it blocks nothing after it.
                time::sleep(SHORT).await;
                Op::new(Nop).await.unwrap();
            };
            builder.build().unwrap().block_on(work).unwrap();
        }
    });
}
