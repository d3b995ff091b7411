//! `select!` over channels, sockets, timers and coroutines; offload, event sources, signals; on
//! both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::event::{EventSource, Interest};
use ringloop_coro::net::{
    TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use ringloop_coro::signal::{Signal, Signals};
use ringloop_coro::sync::{Mutex, channel};
use ringloop_coro::{block_on, offload, select, sleep, spawn, time};
use ringloop_testing::coro::on_both;
use std::io::{Read, Write};
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
        let (mut ours, theirs) = UnixStream::pair().unwrap();
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
fn descriptor_of_another_library_is_an_event_source() {
    on_both(|| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let source = EventSource::new(reader).unwrap();
        select! {
            _ = source.ready(Interest::READ) => panic!("nothing was written"),
            () = time::after(SHORT) => {}
        }
        drop(spawn(move || writer.write_all(b"event").unwrap()));
        assert!(source.wait(Interest::READ).unwrap().contains(Interest::READ));
        let mut word = String::new();
        source.into_inner().read_to_string(&mut word).unwrap();
        assert_eq!(word, "event");
    });
}

#[test]
fn signal_wakes_its_waiter() {
    on_both(|| {
        let mut signals = Signals::new(&[Signal::USER_2]).unwrap();
        drop(spawn(|| {
            let kill = ringloop::process::Command::new("kill")
                .arg("-USR2")
                .arg(std::process::id().to_string())
                .spawn();
            assert!(block_on(kill.unwrap().wait()).unwrap().success());
        }));
        let got = select! {
            signal = signals.wait_async() => signal.unwrap(),
            () = time::after(LONG) => panic!("no signal came"),
        };
        assert_eq!(got, Signal::USER_2);
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
        let (one, other) = UnixDatagram::pair().unwrap();
        one.send(b"a datagram").unwrap();
        assert_eq!(other.recv(&mut buffer).unwrap(), 10);
    });
}

#[test]
fn unix_streams_by_path() {
    on_both(|| {
        let path = std::env::temp_dir().join(format!("coro-{}.sock", std::process::id()));
        drop(std::fs::remove_file(&path));
        let listener = UnixListener::bind(&path).unwrap();
        let serving = spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut word = [0; 4];
            stream.read_exact(&mut word).unwrap();
            stream.write_all(&word).unwrap();
        });
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"unix").unwrap();
        let mut word = String::new();
        stream.read_to_string(&mut word).unwrap();
        assert_eq!(word, "unix");
        serving.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    });
}
