//! Memory that a parked read or write lends to the kernel: however the wait ends, the caller has it
//! back by then. On both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::net::UnixStream;
use ringloop_coro::{Builder, JoinError, scope, sleep, spawn, spawn_local, time, yield_now};
use ringloop_testing::coro::{LONG, OnDrop, is_cancelled, on_both};
use ringloop_testing::drivers;
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as Plain;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const LEN: usize = 4096;

/// A stream, and a std peer for any thread.
fn pair() -> (UnixStream, Plain) {
    let (ours, theirs) = Plain::pair().unwrap();
    (ours.try_into().unwrap(), theirs)
}

#[test]
fn cancelled_read_returns_its_memory_and_loses_no_byte() {
    on_both(|| {
        for _ in 0..50 {
            let (ours, mut peer) = pair();
            let memory = Rc::new(RefCell::new(vec![0; LEN]));
            let (mut stream, lent) = (ours.try_clone().unwrap(), Rc::clone(&memory));
            let reading = spawn_local(move || stream.read(&mut lent.borrow_mut()).unwrap());
            // A sleep of no time would not let the reader run.
            while memory.try_borrow().is_ok() {
                yield_now();
            }
            sleep(Duration::from_micros(100));
            reading.cancel();
            assert!(is_cancelled(reading));
            peer.write_all(&[0xff; LEN]).unwrap();
            sleep(Duration::from_micros(100));
            assert!(memory.borrow().iter().all(|byte| *byte == 0));
            let mut rest = vec![0; LEN];
            (&ours).read_exact(&mut rest).unwrap();
            assert!(rest.iter().all(|byte| *byte == 0xff));
        }
    });
}

#[test]
fn bytes_racing_a_cancel_are_read_or_stay_in_the_socket() {
    on_both(|| {
        let mut outcomes = [0; 2];
        for round in 0..300 {
            let (ours, mut peer) = pair();
            let mut stream = ours.try_clone().unwrap();
            let reading = spawn_local(move || {
                let mut memory = [0; LEN];
                let count = stream.read(&mut memory).unwrap();
                assert!(memory[..count].iter().all(|byte| *byte == 0xff));
                count
            });
            yield_now();
            // It is submitted, or not yet.
            if round % 2 == 0 {
                sleep(Duration::from_micros(20));
            }
            let writer = (round % 3 > 0).then(|| {
                let mut peer = peer.try_clone().unwrap();
                thread::spawn(move || peer.write_all(&[0xff; LEN]).unwrap())
            });
            if writer.is_none() {
                peer.write_all(&[0xff; LEN]).unwrap();
            } else {
                sleep(Duration::from_micros(round));
            }
            reading.cancel();
            let read = match reading.join() {
                Ok(count) => count,
                Err(JoinError::Cancelled) => 0,
                Err(error) => panic!("{error}"),
            };
            outcomes[usize::from(read > 0)] += 1;
            if let Some(writer) = writer {
                writer.join().unwrap();
            }
            let mut rest = vec![0; LEN - read];
            (&ours).read_exact(&mut rest).unwrap();
            assert!(rest.iter().all(|byte| *byte == 0xff), "round {round}");
        }
        eprintln!("{outcomes:?} were cancelled and had bytes");
    });
}

#[test]
fn cancelled_write_returns_its_memory_and_counts_sent_bytes() {
    on_both(|| {
        for _ in 0..10 {
            let (mut ours, mut peer) = pair();
            let memory = Rc::new(RefCell::new(vec![1; LEN]));
            let sent = Rc::new(Cell::new(0));
            let (lent, count) = (Rc::clone(&memory), Rc::clone(&sent));
            let writing = spawn_local(move || {
                loop {
                    let written = ours.write(&lent.borrow()).unwrap();
                    count.set(count.get() + written);
                }
            });
            // Another coroutine is always ready: writes go by the ring.
            let other = spawn_local(|| {
                loop {
                    yield_now();
                }
            });
            let mut before = usize::MAX;
            while before != sent.get() {
                before = sent.get();
                yield_now();
                sleep(Duration::from_millis(1));
            }
            assert!(memory.try_borrow_mut().is_err(), "it is parked");
            writing.cancel();
            assert!(is_cancelled(writing));
            other.cancel();
            memory.borrow_mut().fill(9);
            let mut received = Vec::new();
            peer.read_to_end(&mut received).unwrap();
            assert_eq!(received.len(), sent.get());
            assert!(received.iter().all(|byte| *byte == 1));
        }
    });
}

#[test]
fn timed_out_read_does_not_touch_memory() {
    on_both(|| {
        let (ours, mut peer) = pair();
        let mut memory = [0; 64];
        let limit = Duration::from_millis(1);
        assert!(time::timeout(limit, ours.read_async(&mut memory)).is_err());
        ours.set_read_timeout(Some(limit)).unwrap();
        let error = (&ours).read(&mut memory).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        peer.write_all(&[0xff; 64]).unwrap();
        sleep(limit);
        assert_eq!(memory, [0; 64]);
        (&ours).read_exact(&mut memory).unwrap();
        assert_eq!(memory, [0xff; 64]);
    });
}

#[test]
fn runtime_end_waits_for_the_kernel() {
    for driver in drivers() {
        for workers in [1, 3] {
            let memory: Vec<_> = (0..64).map(|_| Arc::new(Mutex::new(vec![0; LEN]))).collect();
            let lent = memory.clone();
            let builder = Builder::new().driver(driver).workers(workers);
            let peers: Vec<_> = builder
                .start(move || {
                    let peers = lent.into_iter().map(|lent| {
                        let (mut ours, peer) = pair();
                        drop(spawn(move || {
                            let mut lent = lent.lock().unwrap();
                            ours.read(&mut lent).map(drop)
                        }));
                        peer
                    });
                    let peers = peers.collect();
                    sleep(Duration::from_millis(2));
                    peers
                })
                .unwrap();
            for mut peer in peers {
                // The stream is closed: its reader has ended.
                let error = peer.write_all(&[0xff; LEN]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            }
            for memory in memory {
                let memory = memory.try_lock().unwrap_or_else(|error| match error {
                    // It unwound.
                    std::sync::TryLockError::Poisoned(error) => error.into_inner(),
                    std::sync::TryLockError::WouldBlock => panic!("a reader is left"),
                });
                assert!(memory.iter().all(|byte| *byte == 0));
            }
        }
    }
}

#[test]
fn readers_unwind_when_their_runtime_is_dropped() {
    for driver in drivers() {
        for _ in 0..20 {
            let memory = Arc::new(Mutex::new(vec![0; LEN]));
            let lent = Arc::clone(&memory);
            let runtime = ringloop::Runtime::builder().driver(driver).build().unwrap();
            let mut peer = runtime
                .block_on(async move {
                    let (mut ours, peer) = pair();
                    drop(spawn_local(move || {
                        let mut lent = lent.lock().unwrap();
                        let count = ours.read(&mut lent).unwrap();
                        assert_eq!(count, LEN);
                    }));
                    ringloop::time::sleep(Duration::from_millis(1)).await;
                    peer
                })
                .unwrap();
            // Arrived when the runtime ends, and not yet read.
            peer.write_all(&[0xff; LEN]).unwrap();
            drop(runtime);
            let before = memory.lock().unwrap_or_else(PoisonError::into_inner).clone();
            drop(peer);
            thread::sleep(Duration::from_millis(1));
            let after = memory.lock().unwrap_or_else(PoisonError::into_inner);
            assert_eq!(before, *after);
        }
    }
}

#[test]
fn scope_waits_for_its_readers_memory() {
    on_both(|| {
        let (ours, mut peer) = pair();
        let scoped = ours.try_clone().unwrap();
        let is_reading = Rc::new(Cell::new(false));
        let reads = Rc::clone(&is_reading);
        let outer = spawn_local(move || {
            let mut memory = [0; LEN];
            let _at_end = OnDrop(|| peer.write_all(&[0xff; LEN]).unwrap());
            scope(|scope| {
                scope.spawn(|| (&scoped).read(&mut memory).map(drop));
                reads.set(true);
            });
        });
        while !is_reading.get() {
            yield_now();
        }
        sleep(Duration::from_millis(1));
        outer.cancel();
        assert!(is_cancelled(outer));
        let zeros = spawn(|| {
            let memory = [0u8; 2 * LEN];
            sleep(Duration::from_micros(200));
            memory.iter().all(|byte| *byte == 0)
        });
        assert!(zeros.join().unwrap());
        (&ours).read_exact(&mut [0; LEN]).unwrap();
    });
}

#[test]
fn destructor_of_cancelled_coroutine_reads_and_writes() {
    on_both(|| {
        for panics in [true, false] {
            let (mut ours, mut peer) = pair();
            let got = Rc::new(Cell::new([0; 4]));
            let read = Rc::clone(&got);
            let handle = spawn_local(move || {
                let _at_end = OnDrop(|| {
                    let mut word = [0; 4];
                    ours.read_exact(&mut word).unwrap();
                    ours.write_all(&word).unwrap();
                    read.set(word);
                });
                assert!(!panics, "on purpose");
                sleep(LONG);
            });
            yield_now();
            sleep(Duration::from_millis(1));
            handle.cancel();
            sleep(Duration::from_millis(1));
            peer.write_all(b"word").unwrap();
            let error = handle.join().unwrap_err();
            assert_eq!(panics, matches!(error, JoinError::Panicked(_)));
            assert_eq!(got.get(), *b"word");
            let mut back = [0; 4];
            peer.read_exact(&mut back).unwrap();
            assert_eq!(back, *b"word");
        }
    });
}
