//! Linked operations, with the same results asserted on both drivers: order, what ends a link, time-outs,
//! and links that are dropped.
#![allow(clippy::unwrap_used)]

mod support;

use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::executor::{Link, Local, Op};
use ringloop::op::{Fsync, Nop, Read, Timeout, Write};
use ringloop::sys::file;
use ringloop::{Options, Runtime, limits, spawn, time};
use std::future::{Future, IntoFuture};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};
use support::{Foreign, PATIENCE, alone, drivers, open_descriptors};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(5);

fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    let _alone = alone();
    for driver in drivers() {
        let before = open_descriptors();
        let options = Options {
            driver,
            ..Options::default()
        };
        let runtime = Runtime::with_options(options).unwrap();
        runtime.block_on(test()).unwrap();
        drop(runtime);
        assert_eq!(open_descriptors(), before, "descriptors ({driver:?})");
    }
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
        assert_eq!(
            (count.unwrap(), errno(&written)),
            (4, Some(libc::ECANCELED))
        );
        assert_eq!(buf.into_vec(), b"6789");
        assert_eq!(contents(&to), b"", "the write has not begun");
        let ((at_end, _), nop) = Link::new(read(from.as_raw_fd(), 8, Some(10)))
            .then(Nop)
            .await;
        assert_eq!((at_end.unwrap(), errno(&nop)), (0, Some(libc::ECANCELED)));
    });
}

#[test]
fn operations_run_in_order_and_an_error_ends_them() {
    on_both(|| async {
        let file = tempfile(b"");
        let fd = file.as_raw_fd();
        let first = Link::new(write(fd, b"one", 0)).then(write(fd, b"two", 1));
        let (((a, _), (b, _)), synced) = first
            .then(Fsync {
                fd,
                data_only: false,
            })
            .await;
        assert_eq!((a.unwrap(), b.unwrap()), (3, 3));
        synced.unwrap();
        assert_eq!(contents(&file), b"otwo");
        let broken = Link::new(write(-1, b"x", 0)).then(write(fd, b"never", 0));
        let (((a, _), (b, back)), c) = broken.then(Nop).await;
        assert_eq!(errno(&a), Some(libc::EBADF));
        assert_eq!(
            (errno(&b), errno(&c)),
            (Some(libc::ECANCELED), Some(libc::ECANCELED))
        );
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
        // A time-out in the middle ends what is behind it.
        let link = Link::new(Nop)
            .then(read(fd, 1, None))
            .timeout(SHORT)
            .then(Nop);
        let ((first, (late, _)), behind) = link.await;
        first.unwrap();
        assert_eq!(errno(&late), Some(libc::ETIMEDOUT));
        assert_eq!(errno(&behind), Some(libc::ECANCELED));
        file::write(writer.as_raw_fd(), b"mine", None).unwrap();
        let (count, buf) = Op::new(read(fd, 16, None)).await;
        assert_eq!(
            (count.unwrap(), buf.filled()),
            (4, b"mine".as_slice()),
            "nothing was taken"
        );
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

/// Wait until everything that was given up is over.
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
                let waits = Read {
                    fd: reader.as_raw_fd(),
                    buf,
                    offset: None,
                };
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

/// Let a future get so far, and drop it.
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
            let link = link.then(Fsync {
                fd: file.as_raw_fd(),
                data_only: false,
            });
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
        let options = Options {
            driver,
            ..Options::default()
        };
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
