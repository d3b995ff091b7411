//! Failures around the engine: no descriptors, a refused ring, signals, floods, full queues.
//!
//! Limits and filters apply to a whole process, so those tests run again in a child.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::Options;
use ringloop::embed::limits;
use ringloop::embed::op::{Accept, Nop, Poll, RecvMulti, Request, Timeout};
use ringloop::embed::sys::file;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::{Engine, Inbox};
use ringloop::embed::{Event, Kind, Sink, Token};
use ringloop_testing::drivers;
use ringloop_testing::engine::{Bed, connect_to, deny, listener, on_both, tcp_pair, write_all};
use std::collections::{HashSet, VecDeque};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CHILD: &str = "RINGLOOP_TEST_CHILD";

/// Runs the test `name` of this binary in a child with `word` in the environment; `None` in the
/// parent, after the child has passed, and the word in the child.
fn in_child(name: &str, word: &str, environment: &[(&str, &str)]) -> Option<String> {
    if let Ok(word) = std::env::var(CHILD) {
        return Some(word);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, word)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {word}: {output_text}{complaint}");
    assert!(output_text.contains("1 passed"), "{name} is not a test: {output_text}");
    None
}

/// A driver's name in the environment, and back.
fn word(choice: Choice) -> &'static str {
    match choice {
        Choice::Auto => "auto",
        Choice::Uring => "uring",
        Choice::Epoll => "epoll",
    }
}

/// Limits the process to `count` more descriptors.
fn leave_descriptors(count: usize) {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: a pointer to a live `rlimit`.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(done, 0);
    let mut fillers: Vec<RawFd> = Vec::new();
    loop {
        // SAFETY: no pointer is passed; standard input may or may not be open.
        let fd = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3) };
        if fd < 0 {
            break;
        }
        fillers.push(fd);
    }
    assert!(fillers.len() >= count);
    for fd in fillers.into_iter().take(count) {
        file::close(fd).unwrap();
    }
}

#[test]
fn accept_without_descriptors_is_emfile_and_loses_no_connection() {
    let name = "accept_without_descriptors_is_emfile_and_loses_no_connection";
    for choice in drivers() {
        for (multi, kind) in [(false, "one"), (true, "multi")] {
            let word_and_kind = format!("{} {kind}", word(choice));
            if in_child(name, &word_and_kind, &[]).as_ref() == Some(&word_and_kind) {
                accept_without_descriptors(choice, multi);
            }
        }
    }
}

fn accept_without_descriptors(choice: Choice, multi: bool) {
    let mut bed = Bed::new(choice);
    let listener = listener();
    let clients: Vec<_> = (0..5).map(|_| connect_to(&listener)).collect();
    leave_descriptors(2);
    let fd = listener.as_raw_fd();
    let mut servers: VecDeque<TcpStream> = VecDeque::new();
    let mut ports = Vec::new();
    let mut refused_count = 0;
    while ports.len() < clients.len() {
        let (_, token) = bed.submit(Request::Accept(Accept { fd, multi }));
        loop {
            let completion = bed.expect(token);
            if completion.result == -libc::EMFILE {
                assert!(!completion.more);
                assert!(matches!(completion.request, Some(Request::Accept(_))));
                refused_count += 1;
                // As an embedder does after a pause: a connection has ended meanwhile.
                servers.pop_front().unwrap();
                break;
            }
            assert!(completion.result >= 0, "{completion:?}");
            // SAFETY: the completion is the only holder of its descriptor.
            let server = unsafe { TcpStream::from_raw_fd(completion.result) };
            ports.push(server.peer_addr().unwrap());
            servers.push_back(server);
            if !completion.more || ports.len() == clients.len() {
                break;
            }
        }
    }
    let connected: Vec<_> = clients.iter().map(|c| c.local_addr().unwrap()).collect();
    assert_eq!(ports, connected);
    assert_eq!(refused_count, 3);
}

#[test]
fn engine_without_descriptors_is_an_error_with_the_cause() {
    let name = "engine_without_descriptors_is_an_error_with_the_cause";
    if in_child(name, "child", &[]).is_none() {
        return;
    }
    leave_descriptors(1);
    for driver in [Choice::Auto, Choice::Uring, Choice::Epoll] {
        let error = Engine::new(Options { driver, ..Options::default() }).unwrap_err().to_string();
        let says_so = error.contains("Too many open files") || error.contains("RLIMIT_NOFILE");
        assert!(says_so, "{driver:?}: {error}");
    }
}

#[test]
fn ring_refused_by_a_filter_falls_back_with_a_reason_or_is_an_error() {
    let name = "ring_refused_by_a_filter_falls_back_with_a_reason_or_is_an_error";
    let calls = [
        ("setup", libc::SYS_io_uring_setup),
        ("enter", libc::SYS_io_uring_enter),
        ("register", libc::SYS_io_uring_register),
    ];
    for (what, call) in calls {
        for (how, errno) in [("EPERM", libc::EPERM), ("ENOSYS", libc::ENOSYS)] {
            let word_and_kind = format!("{what} {how}");
            if in_child(name, &word_and_kind, &[]).as_ref() == Some(&word_and_kind) {
                deny(call, errno);
                refused_ring_falls_back();
            }
        }
    }
}

fn refused_ring_falls_back() {
    let driver = Choice::Auto;
    let engine = Engine::new(Options { driver, ..Options::default() }).unwrap();
    assert_eq!(engine.kind(), Kind::Epoll);
    let reason = engine.reason();
    for word in ["io_uring refused", "seccomp", "using epoll"] {
        assert!(reason.contains(word), "{reason:?} lacks {word:?}");
    }
    let mut bed = Bed::new(Choice::Auto);
    assert_eq!(bed.run(Request::Nop(Nop)).result, 0);
    let driver = Choice::Uring;
    let error = Engine::new(Options { driver, ..Options::default() }).unwrap_err();
    assert!(
        matches!(&error, ringloop::Error::DriverRefused(refusal) if refusal.to_string().contains("seccomp")),
        "{error:?}"
    );
}

#[test]
fn driver_is_chosen_by_the_environment() {
    let name = "driver_is_chosen_by_the_environment";
    let words = [
        ("auto", Some(Choice::Auto)),
        ("", Some(Choice::Auto)),
        ("uring", Some(Choice::Uring)),
        ("epoll", Some(Choice::Epoll)),
        ("Epoll", None),
        ("io_uring", Some(Choice::Uring)),
        ("kqueue", None),
    ];
    for (word, choice) in words {
        let word_and_kind = format!("driver {word}");
        let environment = [("RINGLOOP_DRIVER", word)];
        if in_child(name, &word_and_kind, &environment).as_ref() != Some(&word_and_kind) {
            continue;
        }
        match (Options::from_env(), choice) {
            (Ok(options), Some(choice)) => assert_eq!(options.driver, choice),
            (Err(error), None) => assert_eq!(
                error.to_string(),
                format!(
                    "RINGLOOP_DRIVER names an unknown driver, {word:?}: \
                     set it to one of auto, uring (or io_uring), epoll"
                )
            ),
            (outcome, _) => panic!("{word:?}: {outcome:?}"),
        }
    }
}

#[test]
fn hundred_thousand_operations_in_flight_complete_once_each() {
    const COUNT: usize = 100_000;
    on_both(|bed| {
        let submitted: HashSet<_> = (0..COUNT).map(|_| bed.submit(Request::Nop(Nop)).1).collect();
        assert_eq!(bed.in_flight(), COUNT);
        bed.drain();
        let events = bed.take_all();
        assert_eq!(events.len(), COUNT);
        let completed: HashSet<_> = events.iter().map(|event| event.token).collect();
        assert!(completed == submitted);
    });
}

#[test]
fn hundred_thousand_operations_can_be_cancelled() {
    const COUNT: usize = 100_000;
    on_both(|bed| {
        let started = Instant::now();
        let keys: Vec<_> = (0..COUNT)
            .map(|_| {
                let timeout = Timeout::after(Duration::from_secs(3600));
                bed.submit(Request::Timeout(timeout)).0
            })
            .collect();
        for key in &keys {
            bed.cancel(*key);
        }
        bed.drain();
        let events = bed.take_all();
        assert_eq!(events.len(), COUNT);
        let cancelled = |event: &Event| event.completion.result == -libc::ECANCELED;
        assert!(events.iter().all(cancelled));
        // The cost is linear: quadratic, it would take minutes.
        assert!(started.elapsed() < ringloop_testing::PATIENCE);
    });
}

/// The completion queue overflows: multishot operations end early, which the driver hides, and
/// nothing is lost.
#[test]
fn full_completion_queue_loses_neither_bytes_nor_connections() {
    on_both(|bed| {
        let listener = listener();
        let (_, accept) =
            bed.submit(Request::Accept(Accept { fd: listener.as_raw_fd(), multi: true }));
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (_, recv) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
        bed.settle();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let mut clients = Vec::new();
        let mut accepted_count = 0;
        for round in 0..5_u8 {
            for _ in 0..limits::COMPLETION_ENTRIES + 100 {
                bed.submit(Request::Nop(Nop));
            }
            // Submitted, and nothing is taken.
            bed.engine.park(Some(Duration::ZERO)).unwrap();
            for _ in 0..3 {
                write_all(&mut peer, &[round; 100]);
                sent.extend([round; 100]);
                clients.push(connect_to(&listener));
                bed.engine.park(Some(Duration::ZERO)).unwrap();
            }
            for _ in 0..5 {
                bed.turn(Duration::from_millis(1));
            }
            for mut event in bed.take_all() {
                if event.token == recv {
                    assert!(event.completion.more, "{event:?}");
                    received.extend(bed.take_bytes(&mut event.completion));
                } else if event.token == accept {
                    assert!(event.completion.more, "{event:?}");
                    file::close(event.completion.result).unwrap();
                    accepted_count += 1;
                } else {
                    assert_eq!(event.completion.result, 0);
                }
            }
        }
        peer.shutdown(Shutdown::Write).unwrap();
        loop {
            let mut completion = bed.expect(recv);
            if completion.result == 0 {
                break;
            }
            received.extend(bed.take_bytes(&mut completion));
        }
        assert!(received == sent, "{} of {}", received.len(), sent.len());
        while accepted_count < clients.len() {
            file::close(bed.expect(accept).result).unwrap();
            accepted_count += 1;
        }
    });
}

/// Installs a handler that only interrupts.
fn catch_user_signal() {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: all-zero is a valid `sigaction`: no flags, so that calls are not restarted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: a pointer to a live action; the old one is not requested.
    let done = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

#[test]
fn signal_ends_a_wait_without_an_error_and_without_losing_anything() {
    catch_user_signal();
    on_both(|bed| {
        let (ours, mut peer) = tcp_pair();
        let fd = ours.as_raw_fd();
        let (_, token) = bed.submit(Request::RecvMulti(RecvMulti::new(fd)));
        bed.settle();
        // SAFETY: no pointer is passed, and it cannot fail.
        let thread = unsafe { libc::pthread_self() };
        let over = Arc::new(AtomicBool::new(false));
        let sender = {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: the thread lives until this one has been joined.
                    unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                    std::thread::sleep(Duration::from_micros(200));
                }
            })
        };
        let started = Instant::now();
        bed.turn(ringloop_testing::PATIENCE);
        assert!(started.elapsed() < ringloop_testing::PATIENCE, "a signal ends a wait");
        assert!(bed.take(token).is_none());
        let mut received = Vec::new();
        for number in 0..100_u8 {
            write_all(&mut peer, &[number]);
            let mut completion = bed.expect(token);
            received.extend(bed.take_bytes(&mut completion));
        }
        over.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        assert_eq!(received, (0..100).collect::<Vec<u8>>());
    });
}

/// A message that arrives at any moment of going to sleep ends the sleep, or prevents it.
#[test]
fn message_from_another_thread_is_never_slept_over() {
    const ROUNDS: u64 = 5_000;
    on_both(|bed| {
        let inbox = Arc::new(Inbox::new(bed.engine.unpark(), 16));
        let seen = Arc::new(AtomicU64::new(0));
        let sender = {
            let (inbox, seen) = (Arc::clone(&inbox), Arc::clone(&seen));
            std::thread::spawn(move || {
                for round in 1..=ROUNDS {
                    inbox.send(round).unwrap();
                    // Meet the loop at different moments of its turn.
                    for _ in 0..round % 64 * 8 {
                        std::hint::spin_loop();
                    }
                    while seen.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                }
            })
        };
        let mut taken = VecDeque::new();
        while seen.load(Ordering::Relaxed) < ROUNDS {
            let started = Instant::now();
            bed.turn(ringloop_testing::PATIENCE);
            assert!(started.elapsed() < ringloop_testing::PATIENCE, "slept over a message");
            inbox.take(&mut taken);
            for message in taken.drain(..) {
                seen.store(message, Ordering::Release);
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn unpark_before_the_wait_prevents_it_once() {
    on_both(|bed| {
        bed.settle();
        let unpark = bed.engine.unpark();
        unpark.notify();
        unpark.notify();
        let started = Instant::now();
        bed.turn(ringloop_testing::PATIENCE);
        assert!(started.elapsed() < ringloop_testing::PATIENCE);
        bed.assert_sleeps();
    });
}

#[test]
fn timeout_of_a_wait_never_ends_early_without_a_reason() {
    on_both(|bed| {
        bed.assert_sleeps();
        let timeout = Timeout::after(Duration::from_millis(3));
        let started = Instant::now();
        let (_, token) = bed.submit(Request::Timeout(timeout));
        bed.expect(token);
        assert!(started.elapsed() >= Duration::from_millis(3));
    });
}

/// An engine moved to another thread.
struct Moved(Engine);

// SAFETY: each test moves its engine as a whole; no reference to it stays behind.
unsafe impl Send for Moved {}

#[test]
fn bind_on_a_second_thread_is_refused_by_a_ring_and_moves_readiness() {
    for driver in drivers() {
        let mut engine = Engine::new(Options { driver, ..Options::default() }).unwrap();
        engine.bind().unwrap();
        engine.bind().unwrap();
        let moved = Moved(engine);
        std::thread::spawn(move || {
            let moved = moved;
            let mut engine = moved.0;
            match (engine.kind(), engine.bind()) {
                (Kind::Uring, bound) => {
                    let error = bound.unwrap_err().to_string();
                    assert!(error.contains("of the thread that bound it first"), "{error}");
                    assert!(error.contains("or use the epoll driver"), "{error}");
                }
                (Kind::Epoll, bound) => {
                    bound.unwrap();
                    engine.park(Some(Duration::ZERO)).unwrap();
                }
            }
        })
        .join()
        .unwrap();
    }
}

#[test]
fn engine_made_on_one_thread_runs_on_the_thread_that_binds_it() {
    for driver in drivers() {
        let moved = Moved(Engine::new(Options { driver, ..Options::default() }).unwrap());
        std::thread::spawn(move || {
            let moved = moved;
            let mut engine = moved.0;
            engine.bind().unwrap();
            let sink = Sink::Handler(Token(7));
            engine.driver_mut().submit(Request::Nop(Nop), sink);
            engine.park(Some(Duration::from_secs(10))).unwrap();
            assert_eq!(engine.next_event().unwrap().token, Token(7));
        })
        .join()
        .unwrap();
    }
}

/// A ring belongs to one thread; a driver that is dropped on another one cannot reap. If the kernel
/// holds no memory, that is harmless and needs no wait.
#[test]
fn engine_with_only_polls_may_be_dropped_on_another_thread() {
    let limit = Duration::from_millis(limits::DRAIN_TIMEOUT_MS) / 2;
    for driver in [Choice::Uring, Choice::Epoll] {
        // A busy machine may delay the test; a driver that waits for its polls does so every time.
        let is_prompt = (0..10).any(|_| drop_elsewhere(driver) < limit);
        assert!(is_prompt, "{driver:?} waited");
    }
}

/// Time to drop an engine that another thread has used.
fn drop_elsewhere(driver: Choice) -> Duration {
    let moved = std::thread::spawn(move || {
        let mut engine = Engine::new(Options { driver, ..Options::default() }).unwrap();
        engine.bind().unwrap();
        let (read, write) = file::pipe().unwrap();
        let poll = Poll { fd: read.as_raw_fd(), interest: Interest::READ, level: true };
        engine.driver_mut().submit(Request::Poll(poll), Sink::Handler(Token(1)));
        engine.park(Some(Duration::ZERO)).unwrap();
        assert_eq!(engine.driver_mut().in_flight(), 1);
        drop((read, write));
        Moved(engine)
    })
    .join()
    .unwrap();
    let started = Instant::now();
    drop(moved.0);
    started.elapsed()
}
