//! `select!` over channels, sockets, timers and coroutines; offload; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::net::{TcpListener, TcpStream, UdpSocket};
use ringloop_coro::sync::{Mutex, channel};
use ringloop_coro::{offload, select, sleep, spawn, time};
use ringloop_testing::coro::{on_both, stream_pair};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(5);

#[test]
fn first_of_channel_socket_timer_and_coroutine_wins() {
    on_both(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (sender, receiver) = channel::unbounded();
        let mut won = Vec::new();
        let mut clients = Vec::new();
        for step in 0..4 {
            let mut coroutine = spawn(move || {
                sleep(if step == 0 { SHORT } else { LONG });
                step
            });
            match step {
                1 => sender.send(1).unwrap(),
                2 => clients.push(TcpStream::connect(addr).unwrap()),
                _ => {}
            }
            let limit = if step == 3 { SHORT } else { LONG };
            won.push(select! {
                step = &mut coroutine => format!("coroutine {}", step.unwrap()),
                value = receiver.recv_async() => format!("channel {}", value.unwrap()),
                accepted = listener.accept_async() => {
                    drop(accepted.unwrap());
                    "listener".to_owned()
                }
                () = time::after(limit) => "timer".to_owned(),
            });
            coroutine.cancel();
        }
        assert_eq!(won, ["coroutine 0", "channel 1", "listener", "timer"]);
    });
}

#[test]
fn losing_reads_take_nothing() {
    on_both(|| {
        let (mut ours, theirs) = stream_pair();
        let mut buffer = [0; 8];
        for _ in 0..3 {
            select! {
                _ = theirs.read_async(&mut buffer) => panic!("nothing was written"),
                () = time::after(SHORT) => {}
            }
        }
        ours.write_all(b"all").unwrap();
        let count = select! {
            count = theirs.read_async(&mut buffer) => count.unwrap(),
            () = time::after(LONG) => 0,
        };
        assert_eq!(&buffer[..count], b"all");
        // The socket is writable; the call writes.
        select! {
            ready = theirs.writable() => ready.unwrap(),
            () = time::after(LONG) => panic!("never writable"),
        }
    });
}

#[test]
fn control_flow_leaves_an_arm() {
    on_both(|| {
        let (sender, receiver) = channel::unbounded();
        let lock = Mutex::new(());
        for number in 0..3 {
            sender.send(number).unwrap();
        }
        drop(sender);
        let mut seen = Vec::new();
        loop {
            select! {
                number = receiver.recv_async() => match number {
                    Ok(1) => {}
                    Ok(number) => seen.push(number),
                    Err(_) => break,
                },
                _guard = lock.lock_async() => unreachable!("the first one that is written wins"),
            }
        }
        assert_eq!(seen, [0, 2]);
    });
}

#[test]
fn time_limits_and_intervals_are_never_early() {
    on_both(|| {
        let start = Instant::now();
        assert!(time::timeout(SHORT, std::future::pending::<()>()).is_err());
        assert_eq!(time::timeout(LONG, async { 7 }), Ok(7));
        time::sleep_until(start + 2 * SHORT);
        assert!(start.elapsed() >= 2 * SHORT);
        let mut ticks = time::interval(SHORT);
        let first = ticks.tick();
        let third = {
            ticks.tick();
            ticks.tick()
        };
        assert_eq!(third - first, 2 * SHORT);
        assert!(Instant::now() >= third);
    });
}

#[test]
fn offload_parks_only_its_coroutine_and_brings_result_or_panic() {
    on_both(|| {
        let ticks = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&ticks);
        let counting = spawn(move || {
            loop {
                counter.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(1));
            }
        });
        // It returns only if the other coroutine runs.
        let answer = offload(move || {
            let begun = Instant::now();
            while ticks.load(Ordering::Relaxed) <= 3 && begun.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(1));
            }
            ticks.load(Ordering::Relaxed)
        });
        assert!(answer.unwrap() > 3);
        counting.cancel();
        let panics = spawn(|| offload(|| panic!("in the pool")));
        assert!(panics.join().is_err());
    });
}

#[test]
fn datagrams_of_both_kinds_keep_their_bounds() {
    on_both(|| {
        let (one, other) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut buffer = [0; 64];
        let receiver = other.try_clone().unwrap();
        let receiving = spawn(move || {
            let mut buffer = [0; 64];
            let (count, from) = receiver.recv_from(&mut buffer).unwrap();
            (buffer[..count].to_vec(), from)
        });
        one.send_to(b"first", other.local_addr().unwrap()).unwrap();
        let (bytes, from) = receiving.join().unwrap();
        assert_eq!((&*bytes, from), (&b"first"[..], one.local_addr().unwrap()));
        one.send_to(b"next", other.local_addr().unwrap()).unwrap();
        assert_eq!(other.peek_from(&mut buffer).unwrap(), (4, from));
        assert_eq!(other.recv_from(&mut buffer).unwrap(), (4, from));
        assert_eq!(&buffer[..4], b"next");
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(from).unwrap();
        other.send(b"back").unwrap();
        assert_eq!(one.peek(&mut buffer).unwrap(), 4);
        assert_eq!(one.recv(&mut buffer).unwrap(), 4);
        one.set_read_timeout(Some(SHORT)).unwrap();
        assert!(one.recv(&mut buffer).is_err());
    });
}
