//! A forked child and its parent's runtimes: it frees their memory, and gets errors; on both
//! drivers.
#![allow(clippy::unwrap_used)]

use ringloop::net::{TcpListener, UnixStream};
use ringloop::process::Command;
use ringloop::signal::{Signal, Signals};
use ringloop::{Error, Runtime, spawn, spawn_blocking, time};
use ringloop_testing::engine::alone;
use ringloop_testing::sys::fork::{end_child, forked, status_of};
use ringloop_testing::{PATIENCE, drivers};
use std::fmt::Display;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(2);

/// Runs a test on every driver, alone, with an owned runtime of this many workers.
fn with_runtimes(workers: usize, test: impl Fn(Runtime)) {
    let _alone = alone();
    for driver in drivers() {
        let builder = Runtime::builder().driver(driver).workers(workers);
        test(builder.build().unwrap());
    }
}

#[track_caller]
fn assert_inherited(error: impl Display) {
    let text = error.to_string();
    assert!(text.contains("made before a fork"), "{text}");
}

/// A new runtime works in the child.
fn run_anew(workers: usize) {
    let runtime = Runtime::builder().workers(workers).build().unwrap();
    let main = async {
        let (one, other) = UnixStream::pair().unwrap();
        one.write_all(b"here".to_vec()).await.0.unwrap();
        let (count, bytes) = other.read(vec![0; 8]).await;
        assert_eq!(&bytes[..count.unwrap()], b"here");
        time::sleep(MOMENT).await;
        assert_eq!(spawn_blocking(|| 7).await.unwrap(), 7);
    };
    runtime.block_on(main).unwrap();
}

/// A pair of streams, and a task that reads from one of them, in flight.
fn reading(runtime: &Runtime) -> (UnixStream, ringloop::JoinHandle<Vec<u8>>) {
    let (one, other) = runtime.block_on(async { UnixStream::pair().unwrap() }).unwrap();
    let read = runtime.spawn(async move {
        let (count, bytes) = other.read(vec![0; 8]).await;
        bytes[..count.unwrap()].to_vec()
    });
    runtime.block_on(time::sleep(MOMENT)).unwrap();
    (one, read)
}

fn assert_reads(runtime: &Runtime, (one, read): (UnixStream, ringloop::JoinHandle<Vec<u8>>)) {
    let main = async move {
        one.write_all(b"parent".to_vec()).await.0.unwrap();
        time::timeout(PATIENCE, read).await.unwrap().unwrap()
    };
    assert_eq!(runtime.block_on(main).unwrap(), b"parent");
}

#[test]
fn child_drops_what_it_inherits_and_the_parent_goes_on() {
    with_runtimes(2, |runtime| {
        let mut inherited = Some((reading(&runtime), runtime));
        let status = forked(|| {
            let ((one, read), runtime) = inherited.take().unwrap();
            drop(read);
            drop(one);
            drop(runtime);
            run_anew(2);
        });
        assert_eq!(status, 0);
        let (reading, runtime) = inherited.unwrap();
        assert_reads(&runtime, reading);
    });
}

#[test]
fn use_of_an_inherited_runtime_is_an_error_with_a_remedy() {
    with_runtimes(2, |runtime| {
        let reading = reading(&runtime);
        let workers = runtime.workers();
        let status = forked(|| {
            assert_inherited(runtime.block_on(async {}).unwrap_err());
            assert_inherited(workers.spawn_on(1, || async {}).unwrap_err());
            assert_inherited(runtime.block_on(async { reading.0.local_addr() }).unwrap_err());
            assert!(matches!(workers.spawn_on(0, || async {}), Err(Error::Inherited)));
        });
        assert_eq!(status, 0);
        assert_reads(&runtime, reading);
    });
}

#[test]
fn fork_inside_a_task_ends_the_childs_run() {
    with_runtimes(1, |runtime| {
        let (sender, receiver) = mpsc::channel();
        let run = runtime.block_on(async {
            let (one, other) = UnixStream::pair().unwrap();
            let read = spawn(async move {
                let (count, bytes) = other.read(vec![0; 8]).await;
                bytes[..count.unwrap()].to_vec()
            });
            time::sleep(MOMENT).await;
            // SAFETY: the child goes on with this task, and ends below.
            let pid = unsafe { libc::fork() };
            sender.send(pid).unwrap();
            one.write_all(vec![b'0' + u8::from(pid == 0)]).await.0.unwrap();
            time::timeout(PATIENCE, read).await.unwrap().unwrap()
        });
        let pid = receiver.recv().unwrap();
        if pid == 0 {
            end_child(|| {
                assert_inherited(run.unwrap_err());
                drop(runtime);
                run_anew(1);
            });
        }
        assert_eq!(status_of(pid), 0);
        assert_eq!(run.unwrap(), b"0");
    });
}

#[test]
fn received_bytes_are_still_there_in_the_child() {
    with_runtimes(1, |runtime| {
        let main = async {
            let (one, other) = UnixStream::pair().unwrap();
            one.write_all(b"held".to_vec()).await.0.unwrap();
            let mut received = other.receive();
            received.next().await.unwrap().unwrap()
        };
        let held = runtime.block_on(main).unwrap();
        let mut inherited = Some((held, runtime));
        let status = forked(|| {
            let (held, runtime) = inherited.take().unwrap();
            assert_eq!(&held[..], b"held");
            drop(runtime);
            assert_eq!(&held[..], b"held");
        });
        assert_eq!(status, 0);
    });
}

#[test]
fn blocking_calls_of_the_parent_are_not_the_childs_to_wait_for() {
    with_runtimes(1, |runtime| {
        let (ends, end) = mpsc::channel::<()>();
        let call = async { spawn_blocking(move || end.recv().is_ok()).await };
        let call = runtime.spawn(call);
        runtime.block_on(time::sleep(MOMENT)).unwrap();
        let mut inherited = Some((call, runtime));
        let status = forked(|| {
            let (call, runtime) = inherited.take().unwrap();
            drop(call);
            drop(runtime);
            run_anew(1);
        });
        assert_eq!(status, 0);
        ends.send(()).unwrap();
        let (call, runtime) = inherited.unwrap();
        assert!(runtime.block_on(call).unwrap().unwrap().unwrap());
    });
}

#[test]
fn listener_stays_the_parents() {
    with_runtimes(1, |runtime| {
        let listen = async {
            let listener = TcpListener::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
            let addr = listener.local_addr().unwrap();
            let accepted = spawn(async move { listener.accept().await.unwrap().peer_addr() });
            time::sleep(MOMENT).await;
            (addr, accepted)
        };
        let (addr, accepted) = runtime.block_on(listen).unwrap();
        let mut inherited = Some((accepted, runtime));
        let status = forked(|| drop(inherited.take()));
        assert_eq!(status, 0);
        let (accepted, runtime) = inherited.unwrap();
        let peer = std::net::TcpStream::connect(addr).unwrap();
        let from = runtime.block_on(accepted).unwrap().unwrap().unwrap();
        assert_eq!(from, peer.local_addr().unwrap());
    });
}

#[test]
fn child_that_is_killed_on_drop_is_killed_by_its_own_parent_alone() {
    with_runtimes(1, |runtime| {
        let start = async {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).kill_on_drop(true);
            command.spawn().unwrap()
        };
        let mut inherited = Some((runtime.block_on(start).unwrap(), runtime));
        let status = forked(|| drop(inherited.take()));
        assert_eq!(status, 0);
        let (mut child, runtime) = inherited.unwrap();
        let status = runtime.block_on(async { child.wait().await.unwrap() });
        assert!(status.unwrap().success());
    });
}

/// Two workers, forked after their parent began to listen, each with its own listener.
#[test]
fn every_signal_reaches_the_worker_that_it_is_sent_to() {
    with_runtimes(1, |runtime| {
        let heard = async {
            let mut signals = Signals::new(&[Signal::HANGUP]).unwrap();
            // SAFETY: no pointer is passed.
            assert_eq!(unsafe { libc::raise(Signal::HANGUP.as_raw()) }, 0);
            signals.next().await.unwrap();
            signals
        };
        let mut inherited = Some((runtime.block_on(heard).unwrap(), runtime));
        let mut workers: Vec<_> = (0..2)
            .map(|_| {
                let (reads, writes) = std::io::pipe().unwrap();
                // SAFETY: as in `forked`.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    drop(inherited.take());
                    end_child(|| count_signals(&writes));
                }
                (pid, reads)
            })
            .collect();
        let mut byte = [0];
        for (_, reads) in &mut workers {
            reads.read_exact(&mut byte).unwrap();
        }
        for round in 0..200 {
            let (pid, reads) = &mut workers[round % 2];
            // SAFETY: no pointer is passed.
            assert_eq!(unsafe { libc::kill(*pid, Signal::USER_1.as_raw()) }, 0);
            reads.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [b's'], "signal {round}");
        }
        for (pid, _) in workers {
            // SAFETY: no pointer is passed.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            assert!(libc::WIFSIGNALED(status_of(pid)));
        }
    });
}

/// Writes a byte once it listens, and one per signal.
fn count_signals(mut writes: impl Write) {
    let main = async {
        let mut signals = Signals::new(&[Signal::USER_1]).unwrap();
        writes.write_all(b"r").unwrap();
        loop {
            assert_eq!(signals.next().await.unwrap(), Signal::USER_1);
            writes.write_all(b"s").unwrap();
        }
    };
    Runtime::new().unwrap().block_on(main).unwrap();
}

#[test]
fn signal_that_only_the_parent_listens_to_does_to_the_child_what_it_did_before() {
    with_runtimes(1, |runtime| {
        let listen = async { Signals::new(&[Signal::USER_2]).unwrap() };
        let mut signals = runtime.block_on(listen).unwrap();
        let status = forked(|| {
            // SAFETY: no pointer is passed.
            unsafe { libc::raise(Signal::USER_2.as_raw()) };
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == Signal::USER_2.as_raw());
        let silent = async { time::timeout(MOMENT, signals.next()).await.is_err() };
        assert!(runtime.block_on(silent).unwrap());
        // SAFETY: no pointer is passed.
        unsafe { libc::raise(Signal::USER_2.as_raw()) };
        let heard = runtime.block_on(async { signals.next().await.unwrap() });
        assert_eq!(heard.unwrap(), Signal::USER_2);
    });
}
