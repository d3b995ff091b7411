//! Linked operations, with the same results asserted on both drivers: order, what ends a link,
//! time-outs, and dropped links.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::limits;
use ringloop::embed::op::{
    Accept, Close, Fsync, Nop, Open, Read, Send, SendDatagram, Timeout, Write,
};
use ringloop::embed::sys::file;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::storage::CURRENT_POSITION;
use ringloop::embed::{Link, Local, Op};
use ringloop::{Options, Runtime, spawn, time};
use ringloop_testing::engine::{
    Foreign, alone, connect_to, expect_descriptors, full_unix_datagrams, in_runtimes, is_closed,
    listener, open_descriptors,
};
use ringloop_testing::{PATIENCE, drivers};
use std::future::{Future, IntoFuture};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(5);

fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    in_runtimes(|runtime| runtime.block_on(test()).unwrap());
}

fn errno<T: std::fmt::Debug>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}

fn tempfile(bytes: &[u8]) -> std::fs::File {
    let mut options = std::fs::File::options();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE);
    let file = options.open(std::env::temp_dir()).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn contents(file: &std::fs::File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn read(fd: RawFd, len: usize, offset: Option<u64>) -> Read {
    let buf = RecvBuf::with_capacity(len);
    Read { fd, buf, offset }
}

fn write(fd: RawFd, bytes: &[u8], offset: u64) -> Write {
    let buf = SendBuf::from(bytes.to_vec());
    let offset = Some(offset);
    Write { fd, buf, offset }
}

#[test]
fn what_is_read_is_written_out_of_the_same_buffer() {
    on_both(|| async {
        let (from, to) = (tempfile(b"0123456789"), tempfile(b""));
        let link = Link::new(read(from.as_raw_fd(), 4, Some(2)));
        let (count, written, buf) = link.then_write(to.as_raw_fd(), Some(1)).await;
        assert_eq!((count.unwrap(), written.unwrap()), (4, 4));
        assert_eq!(buf.filled(), b"2345");
        assert_eq!(contents(&to), b"\x002345");
    });
}

#[test]
fn short_read_ends_the_link_and_leaves_its_bytes_to_be_written() {
    on_both(|| async {
        let (from, to) = (tempfile(b"0123456789"), tempfile(b""));
        let link = Link::new(read(from.as_raw_fd(), 8, Some(6)));
        let (count, written, buf) = link.then_write(to.as_raw_fd(), Some(0)).await;
        assert_eq!((count.unwrap(), errno(&written)), (4, Some(libc::ECANCELED)));
        assert_eq!(buf.into_vec(), b"6789");
        assert_eq!(contents(&to), b"", "the write has not begun");
        let ((at_end, _), nop) = Link::new(read(from.as_raw_fd(), 8, Some(10))).then(Nop).await;
        assert_eq!((at_end.unwrap(), errno(&nop)), (0, Some(libc::ECANCELED)));
    });
}

#[test]
fn operations_run_in_order_and_an_error_ends_them() {
    on_both(|| async {
        let file = tempfile(b"");
        let fd = file.as_raw_fd();
        let first = Link::new(write(fd, b"one", 0)).then(write(fd, b"two", 1));
        let (((a, _), (b, _)), synced) = first.then(Fsync { fd, data_only: false }).await;
        assert_eq!((a.unwrap(), b.unwrap()), (3, 3));
        synced.unwrap();
        assert_eq!(contents(&file), b"otwo");
        let broken = Link::new(write(-1, b"x", 0)).then(write(fd, b"never", 0));
        let (((a, _), (b, back)), c) = broken.then(Nop).await;
        assert_eq!(errno(&a), Some(libc::EBADF));
        assert_eq!((errno(&b), errno(&c)), (Some(libc::ECANCELED), Some(libc::ECANCELED)));
        assert_eq!(back.as_slice(), b"never", "the buffer comes back");
        assert_eq!(contents(&file), b"otwo");
    });
}

#[test]
fn time_that_passes_lets_the_link_go_on() {
    on_both(|| async {
        let begun = Instant::now();
        let link = Link::new(Nop).then(Timeout::after(SHORT)).then(Nop);
        let ((a, b), c) = link.await;
        a.and(b).and(c).unwrap();
        assert!(begun.elapsed() >= SHORT);
    });
}

#[test]
fn operation_that_is_not_over_in_time_is_cancelled_and_its_buffer_comes_back() {
    on_both(|| async {
        let (reader, writer) = file::pipe().unwrap();
        let fd = reader.as_raw_fd();
        let begun = Instant::now();
        let (late, buf) = Op::new(read(fd, 16, None)).timeout(SHORT).await;
        assert_eq!(errno(&late), Some(libc::ETIMEDOUT));
        assert!(begun.elapsed() >= SHORT && buf.filled().is_empty());
        file::write(writer.as_raw_fd(), b"hello", None).unwrap();
        let (in_time, buf) = Op::new(read(fd, 16, None)).timeout(LONG).await;
        assert_eq!((in_time.unwrap(), buf.filled()), (5, b"hello".as_slice()));
        // A time-out in the middle ends the operations after it.
        let link = Link::new(Nop).then(read(fd, 1, None)).timeout(SHORT).then(Nop);
        let ((first, (late, _)), behind) = link.await;
        first.unwrap();
        assert_eq!(errno(&late), Some(libc::ETIMEDOUT));
        assert_eq!(errno(&behind), Some(libc::ECANCELED));
        file::write(writer.as_raw_fd(), b"mine", None).unwrap();
        let (count, buf) = Op::new(read(fd, 16, None)).await;
        assert_eq!((count.unwrap(), buf.filled()), (4, b"mine".as_slice()), "nothing was taken");
    });
}

#[test]
fn link_longer_than_the_ring_takes_and_links_that_fill_the_queue() {
    on_both(|| async {
        let file = tempfile(b"");
        let fd = file.as_raw_fd();
        let tasks: Vec<_> = (0..limits::RING_ENTRIES as usize)
            .map(|n| {
                let link = Link::new(write(fd, &[1], 3 * n as u64));
                let link = link.then(write(fd, &[2], 3 * n as u64 + 1));
                spawn(link.then(write(fd, &[3], 3 * n as u64 + 2)).into_future())
            })
            .collect();
        for task in tasks {
            let (((a, _), (b, _)), (c, _)) = task.await.unwrap();
            assert_eq!((a.unwrap(), b.unwrap(), c.unwrap()), (1, 1, 1));
        }
        let expected = [1, 2, 3].repeat(limits::RING_ENTRIES as usize);
        assert!(contents(&file) == expected);
    });
}

/// Waits until everything that was dropped has ended.
async fn nothing_in_flight() {
    let begun = Instant::now();
    while Local::current().engine().driver_mut().in_flight() > 0 {
        assert!(begun.elapsed() < PATIENCE, "something goes on");
        time::sleep(Duration::from_millis(1)).await;
    }
}

/// Poll a future once, as a task does.
async fn once(future: &mut (impl Future + Unpin)) {
    std::future::poll_fn(|cx| {
        assert!(std::pin::Pin::new(&mut *future).poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
}

#[test]
fn link_dropped_at_every_state_leaves_nothing_behind() {
    on_both(|| async {
        for turns in 0..4 {
            for limit in [None, Some(LONG)] {
                let (reader, writer) = file::pipe().unwrap();
                let foreign = Foreign::new(64);
                let buf = foreign.recv_buf();
                let waits = Read { fd: reader.as_raw_fd(), buf, offset: None };
                let link = Link::new(Nop).then(waits);
                match limit {
                    None => give_up(link.then(Nop).into_future(), turns).await,
                    Some(limit) => {
                        give_up(link.timeout(limit).then(Nop).into_future(), turns).await;
                    }
                }
                nothing_in_flight().await;
                foreign.assert_released_untouched();
                file::write(writer.as_raw_fd(), b"mine", None).unwrap();
                let (count, _) = Op::new(read(reader.as_raw_fd(), 16, None)).await;
                assert_eq!(count.unwrap(), 4, "nobody else has read it");
            }
        }
    });
}

/// Descriptors of /dev/null, which only this test opens; others come and go with threads of earlier
/// tests.
fn open_nulls() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target == Path::new("/dev/null")).count()
}

#[test]
fn descriptors_that_a_dropped_link_has_yielded_are_closed() {
    on_both(|| async {
        let listener = listener();
        let (reader, _writer) = file::pipe().unwrap();
        for round in 0..3 {
            let mut client = connect_to(&listener);
            let (before, nulls_before) = (open_descriptors(), open_nulls());
            let accept = Accept { fd: listener.as_raw_fd(), multi: false };
            let link = Link::new(accept)
                .then(Open {
                    dir: -1,
                    path: c"/dev/null".into(),
                    flags: libc::O_RDONLY | libc::O_CLOEXEC,
                    mode: 0,
                })
                .then(read(reader.as_raw_fd(), 1, None));
            let mut link = link.into_future();
            let begun = Instant::now();
            // Both are open, and the link goes on.
            while open_nulls() == nulls_before {
                once(&mut link).await;
                time::sleep(Duration::from_millis(1)).await;
                assert!(begun.elapsed() < PATIENCE);
            }
            once(&mut link).await;
            drop(link);
            nothing_in_flight().await;
            if round > 0 {
                expect_descriptors(before);
            }
            assert!(is_closed(&mut client));
        }
    });
}

#[test]
fn descriptor_that_a_dropped_link_was_to_close_is_closed() {
    for polling in [false, true] {
        for driver in drivers() {
            let _alone = alone();
            let options = Options {
                driver,
                submission_polling: polling.then_some(SHORT),
                ..Options::default()
            };
            let runtime = Runtime::with_options(options).unwrap();
            let closed = runtime.block_on(async {
                let (reader, _writer) = file::pipe().unwrap();
                for round in 0..3 {
                    let before = open_descriptors();
                    let fd = tempfile(b"").into_raw_fd();
                    let link = Link::new(read(reader.as_raw_fd(), 1, None)).then(Close { fd });
                    give_up(link.into_future(), 2).await;
                    nothing_in_flight().await;
                    if round > 0 {
                        expect_descriptors(before);
                    }
                }
            });
            closed.unwrap();
        }
    }
}

/// An open file under another number, which must be free.
fn at_number(file: &OwnedFd, number: RawFd) -> OwnedFd {
    let mut others = Vec::new();
    while others.len() < 64 {
        let clone = file.try_clone().unwrap();
        if clone.as_raw_fd() == number {
            return clone;
        }
        others.push(clone);
    }
    panic!("{number} is not free");
}

#[test]
fn number_of_a_descriptor_that_a_dropped_link_closed_can_be_waited_for() {
    on_both(|| async {
        let (next, writer) = file::pipe().unwrap();
        let (reader, _writer) = file::pipe().unwrap();
        let fd = reader.into_raw_fd();
        let link = Link::new(read(fd, 1, None)).then(Close { fd });
        give_up(link.into_future(), 1).await;
        nothing_in_flight().await;
        let next = at_number(&next, fd);
        let mut received = Op::new(read(next.as_raw_fd(), 16, None));
        once(&mut received).await;
        file::write(writer.as_raw_fd(), b"mine", None).unwrap();
        let (count, buf) = time::timeout(PATIENCE, received).await.unwrap();
        assert_eq!((count.unwrap(), buf.filled()), (4, b"mine".as_slice()));
    });
}

#[test]
fn write_of_a_dropped_link_that_was_to_close_its_file_hits_no_other() {
    let _alone = alone();
    for driver in drivers() {
        if driver == Choice::Epoll {
            // It has written by then.
            continue;
        }
        // The link does not fit the queue: it is run in sequence.
        let options = Options { driver, ring_entries: 2, ..Options::default() };
        let runtime = Runtime::with_options(options).unwrap();
        let done = runtime.block_on(async {
            let (reader, next) = file::pipe().unwrap();
            let (_reader, writer) = file::pipe().unwrap();
            let fd = writer.into_raw_fd();
            let stray = Write { fd, buf: SendBuf::from(b"stray".to_vec()), offset: None };
            let link = Link::new(stray).then(Close { fd }).then(Nop);
            give_up(link.into_future(), 1).await;
            let next = at_number(&next, fd);
            nothing_in_flight().await;
            file::write(next.as_raw_fd(), b"mine", None).unwrap();
            let (count, buf) = Op::new(read(reader.as_raw_fd(), 16, None)).await;
            assert_eq!((count.unwrap(), buf.filled()), (4, b"mine".as_slice()));
        });
        done.unwrap();
    }
}

#[test]
fn datagram_of_a_link_waits_for_room_and_the_next_begins_after_it() {
    on_both(|| async {
        let (sender, receiver) = full_unix_datagrams();
        let (reader, writer) = file::pipe().unwrap();
        let datagram = SendDatagram::new(sender.as_raw_fd(), b"linked".to_vec().into());
        let mark =
            Write { fd: writer.as_raw_fd(), buf: SendBuf::from(b"!".to_vec()), offset: None };
        let linked = spawn(Link::new(datagram).then(mark).into_future());
        time::sleep(SHORT).await;
        let early = file::poll_now(reader.as_raw_fd(), Interest::READ).unwrap();
        assert_eq!(early, Interest::NONE);
        let mut bytes = [0; 16];
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 4);
        let ((sent, _), (written, _)) = time::timeout(PATIENCE, linked).await.unwrap().unwrap();
        assert_eq!((sent.unwrap(), written.unwrap()), (6, 1));
        receiver.set_nonblocking(true).unwrap();
        let mut last = 0;
        while let Ok(count) = receiver.recv(&mut bytes) {
            last = count;
        }
        assert_eq!(&bytes[..last], b"linked");
    });
}

#[test]
fn file_that_a_dropped_link_was_to_close_keeps_its_number_while_a_thread_names_it() {
    on_both(|| async {
        let (reader, writer) = file::pipe().unwrap();
        file::set_nonblocking(reader.as_raw_fd(), false).unwrap();
        let fd = reader.into_raw_fd();
        let there = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        // At its position, as if the pipe were a file: the read is on a pool thread, and cannot be
        // stopped.
        let stuck = read(fd, 16, Some(CURRENT_POSITION));
        let link = Link::new(stuck).then(Close { fd });
        give_up(link.into_future(), 50).await;
        if Local::current().engine().driver_mut().in_flight() > 0 {
            let now = std::fs::read_link(format!("/proc/self/fd/{fd}"));
            assert_eq!(now.ok(), Some(there), "a thread is reading from it");
        }
        file::write(writer.as_raw_fd(), b"late", None).unwrap();
        nothing_in_flight().await;
    });
}

/// Polls a future for some turns, and drops it.
async fn give_up(mut future: impl Future + Unpin, turns: u32) {
    if turns > 0 {
        once(&mut future).await;
    }
    for _ in 1..turns {
        time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn link_behind_an_operation_that_cannot_be_stopped_is_stopped_all_the_same() {
    on_both(|| async {
        let (reader, writer) = file::pipe().unwrap();
        let file = tempfile(&vec![7; 1 << 20]);
        for _ in 0..50 {
            let link = Link::new(read(file.as_raw_fd(), 1 << 20, Some(0)));
            let link = link.then(Fsync { fd: file.as_raw_fd(), data_only: false });
            let mut link = link.then(read(reader.as_raw_fd(), 1, None)).into_future();
            once(&mut link).await;
            time::yield_now().await;
            drop(link);
        }
        nothing_in_flight().await;
        file::write(writer.as_raw_fd(), b"mine", None).unwrap();
        let (count, _) = Op::new(read(reader.as_raw_fd(), 16, None)).await;
        assert_eq!(count.unwrap(), 4, "a read of a dropped link took it");
    });
}

#[test]
fn runtime_dropped_under_a_link_gives_the_buffer_back() {
    let _alone = alone();
    for driver in drivers() {
        let before = open_descriptors();
        let foreign = Foreign::new(64);
        let options = Options { driver, ..Options::default() };
        let runtime = Runtime::with_options(options).unwrap();
        let (reader, writer) = file::pipe().unwrap();
        let fd = reader.as_raw_fd();
        let buf = foreign.recv_buf();
        runtime
            .block_on(async move {
                let offset = None;
                let link = Link::new(Nop).then(Read { fd, buf, offset }).timeout(LONG);
                spawn(link.into_future());
                time::sleep(SHORT).await;
            })
            .unwrap();
        drop(runtime);
        foreign.assert_released_untouched();
        drop((reader, writer));
        assert_eq!(open_descriptors(), before, "{driver:?}");
    }
}

/// Makes the driver submit its entries.
fn hand_over() {
    let local = Local::current();
    local.engine().driver_mut().wait(Some(Duration::ZERO)).unwrap();
}

/// How the descriptor that a dropped link names is closed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum GivenUp {
    Dropped,
    TakenOffTheLoop,
    Released,
}

#[test]
fn write_of_a_dropped_link_hits_no_other_file_of_its_number() {
    use GivenUp::{Dropped, Released, TakenOffTheLoop};
    on_both(|| async {
        for given_up in [Dropped, TakenOffTheLoop, Released] {
            for by_timer in [true, false] {
                let file = tempfile(b"");
                let (_reader, owned) = file::pipe().unwrap();
                let fd = owned.as_raw_fd();
                // A released descriptor belongs to the test, and is no file of the loop.
                let mut owned = Some(owned);
                let taken = owned.take_if(|_| given_up != Released);
                let to = taken.map(ringloop::fs::File::from);
                assert!(to.as_ref().is_none_or(|to| to.as_raw_fd() == fd));
                let stray = Write { fd, buf: SendBuf::from(b"stray".to_vec()), offset: None };
                // The kernel continues the link when it is next entered: no cancel finds the write
                // before.
                let mut link: Box<dyn Future<Output = ()> + Unpin> = if by_timer {
                    let link = Link::new(Timeout::after(SHORT)).then(stray).into_future();
                    Box::new(Box::pin(async { drop(link.await) }))
                } else {
                    let synced = Fsync { fd: file.as_raw_fd(), data_only: false };
                    let link = Link::new(synced).then(stray).into_future();
                    Box::new(Box::pin(async { drop(link.await) }))
                };
                once(&mut link).await;
                hand_over();
                std::thread::sleep(4 * SHORT);
                drop(link);
                match given_up {
                    Dropped => drop(to),
                    TakenOffTheLoop => drop(to.map(OwnedFd::from)),
                    Released => {
                        Local::current().release(fd);
                        drop(owned.take());
                    }
                }
                // If the number is free, one of them gets it.
                let mut next = pairs();
                nothing_in_flight().await;
                for end in &next {
                    let received = (&*end).read(&mut [0; 8]);
                    let error = received.expect_err("something was written to the next file");
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                }
                // Now it is free.
                next.extend(pairs());
                let mut numbers = next.iter().map(AsRawFd::as_raw_fd);
                assert!(numbers.any(|number| number == fd), "{given_up:?}");
            }
        }
    });
}

/// Connected sockets.
fn pairs() -> Vec<std::os::unix::net::UnixStream> {
    let pairs = (0..4).map(|_| std::os::unix::net::UnixStream::pair().unwrap());
    let ends: Vec<_> = pairs.flat_map(|(one, other)| [one, other]).collect();
    for end in &ends {
        end.set_nonblocking(true).unwrap();
    }
    ends
}

#[test]
fn send_of_a_dropped_link_goes_to_no_other_socket_of_its_number() {
    on_both(|| async {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let near = ringloop::net::UnixStream::from(OwnedFd::from(near));
        let stray = Send { fd: near.as_raw_fd(), buf: SendBuf::from(b"stray".to_vec()) };
        let link = Link::new(Timeout::after(SHORT)).then(stray);
        let mut link = link.into_future();
        once(&mut link).await;
        hand_over();
        std::thread::sleep(4 * SHORT);
        drop(link);
        drop(near);
        let next = pairs();
        nothing_in_flight().await;
        for end in &next {
            let received = (&*end).read(&mut [0; 8]);
            assert_eq!(received.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn release_of_a_descriptor_does_not_wait_for_a_link_that_goes_on() {
    on_both(|| async {
        // A busy machine may delay the test; a release that waits for the link does so every time.
        let limit = Duration::from_millis(limits::DRAIN_TIMEOUT_MS) / 2;
        let mut is_prompt = false;
        for _ in 0..10 {
            is_prompt = release_beside_a_link().await < limit;
            if is_prompt {
                break;
            }
        }
        assert!(is_prompt, "it waited");
    });
}

/// Time to release a descriptor that a link, which waits for something else, will use.
async fn release_beside_a_link() -> Duration {
    let (reader, writer) = file::pipe().unwrap();
    let fd = writer.as_raw_fd();
    let late = Write { fd, buf: SendBuf::from(b"late".to_vec()), offset: None };
    let (waits, wakes) = file::pipe().unwrap();
    let link = Link::new(read(waits.as_raw_fd(), 1, None)).then(late);
    let mut link = link.into_future();
    once(&mut link).await;
    hand_over();
    let begun = Instant::now();
    Local::current().release(fd);
    let took = begun.elapsed();
    file::write(wakes.as_raw_fd(), b"1", None).unwrap();
    let ((first, _), (second, _)) = link.await;
    assert_eq!((first.unwrap(), second.unwrap()), (1, 4));
    let (count, _) = Op::new(read(reader.as_raw_fd(), 16, None)).await;
    assert_eq!(count.unwrap(), 4);
    took
}
