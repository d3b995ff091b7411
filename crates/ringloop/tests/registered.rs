//! Registered files and buffers: the same results on both drivers, and nothing kept longer than it
//! is used.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::embed::limits;
use ringloop::embed::op::Nop;
use ringloop::embed::{Link, Local};
use ringloop::fs::{File, OpenOptions, RegisteredBuf, RegisteredFile};
use ringloop::{Options, Runtime, time};
use ringloop_testing::drivers;
use ringloop_testing::engine::{alone, open_descriptors};
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;

fn runtime(driver: Choice) -> Runtime {
    let options = Options { driver, ..Options::default() };
    Runtime::with_options(options).unwrap()
}

fn on_both<F: Future<Output = ()>>(test: impl Fn(Choice, PathBuf) -> F) {
    let _alone = alone();
    for driver in drivers() {
        let before = open_descriptors();
        let path = std::env::temp_dir().join(format!("ringloop-registered-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let runtime = runtime(driver);
        runtime.block_on(test(driver, path.clone())).unwrap();
        drop(runtime);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(open_descriptors(), before, "descriptors ({driver:?})");
    }
}

async fn open(path: &PathBuf) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).open(path).await.unwrap()
}

#[test]
fn registered_file_and_buffer_read_and_write_as_others_do() {
    on_both(|driver, path| async move {
        let file = RegisteredFile::new(open(&path).await);
        let buf = RegisteredBuf::with_capacity(4);
        let is_ring = driver == Choice::Uring;
        assert_eq!((file.is_registered(), buf.is_registered()), (is_ring, is_ring));
        let (count, mut buf) = file.read_at(buf, 2).await;
        assert_eq!((count.unwrap(), &*buf), (4, b"2345".as_slice()));
        assert_eq!(buf.fill(b"abcdef"), 4);
        let (count, buf) = file.write_at(buf, 8).await;
        assert_eq!((count.unwrap(), &*buf), (4, b"abcd".as_slice()));
        let (count, buf) = file.read_at(buf, 10).await;
        assert_eq!((count.unwrap(), &*buf), (2, b"cd".as_slice()), "the end");
        let (count, buf) = file.read_at(buf, 100).await;
        assert_eq!((count.unwrap(), buf.len()), (0, 0));
        assert_eq!(file.file().metadata().await.unwrap().len(), 12);
        let large = RegisteredBuf::with_capacity(limits::CACHED_READ_BYTES + 1);
        let (count, large) = file.read_at(large, 0).await;
        assert_eq!((count.unwrap(), &*large), (12, b"01234567abcd".as_slice()));
    });
}

#[test]
fn more_than_there_are_slots_work_without() {
    on_both(|driver, path| async move {
        let count = limits::REGISTERED_BUFFERS as usize + 2;
        let mut bufs: Vec<_> = (0..count).map(|_| RegisteredBuf::with_capacity(8)).collect();
        let file = RegisteredFile::new(open(&path).await);
        let without = bufs.pop().unwrap();
        assert!(!without.is_registered());
        let (count, without) = file.read_at(without, 0).await;
        assert_eq!((count.unwrap(), &*without), (8, b"01234567".as_slice()));
        drop(bufs);
        let again = RegisteredBuf::with_capacity(8);
        assert_eq!(again.is_registered(), driver == Choice::Uring, "slots are used again");
    });
}

#[test]
fn file_that_was_dropped_is_closed_also_for_the_ring() {
    on_both(|_, _| async move {
        let (reader, writer) = ringloop::embed::sys::file::pipe().unwrap();
        let file = RegisteredFile::new(File::from(writer));
        let reader = File::from(reader);
        drop(file);
        // The next wait empties the slot; if the ring kept the file, the pipe would stay open.
        let (count, _) = reader.read(Vec::with_capacity(1)).await;
        assert_eq!(count.unwrap(), 0, "the end");
    });
}

#[test]
fn operation_given_up_keeps_buffer_and_slot_until_it_ends() {
    on_both(|driver, path| async move {
        let file = RegisteredFile::new(open(&path).await);
        for polled in [false, true] {
            for _ in 0..2 * limits::REGISTERED_BUFFERS {
                let buf = RegisteredBuf::with_capacity(4096);
                assert!(buf.is_registered() || driver == Choice::Epoll);
                let mut read = pin!(file.read_at(buf, 0));
                if polled {
                    std::future::poll_fn(|cx| {
                        drop(read.as_mut().poll(cx));
                        Poll::Ready(())
                    })
                    .await;
                }
                time::yield_now().await;
                while Local::current().engine().driver_mut().in_flight() > 1 {
                    time::yield_now().await;
                }
            }
        }
        drop(file);
        Link::new(Nop).await.unwrap();
    });
}

#[test]
fn registered_file_is_read_and_written_at_its_position() {
    on_both(|_, path| async move {
        let file = RegisteredFile::new(open(&path).await);
        let buf = RegisteredBuf::with_capacity(4);
        let (count, buf) = file.read(buf).await;
        assert_eq!((count.unwrap(), &*buf), (4, b"0123".as_slice()));
        let (written, buf) = file.write(buf).await;
        assert_eq!(written.unwrap(), 4);
        let (count, mut buf) = file.read(buf).await;
        assert_eq!((count.unwrap(), &*buf), (2, b"89".as_slice()));
        assert_eq!(buf.fill(b"abc"), 3);
        let (written, buf) = file.write_all(buf).await;
        written.unwrap();
        assert_eq!(&*buf, b"abc", "it comes back whole");
        let (written, buf) = file.write_all_at(buf, 1).await;
        written.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"0abc012389abc");
        let (refused, buf) = file.write_all_at(buf, u64::MAX).await;
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(&*buf, b"abc");

        let mut append = OpenOptions::new();
        let end = RegisteredFile::new(append.append(true).open(&path).await.unwrap());
        end.write_all(buf).await.0.unwrap();
        assert!(std::fs::read(&path).unwrap().ends_with(b"abcabc"));
    });
}

/// Large reads are tried at once, on the ring too.
#[test]
fn bulk_reads_fill_the_buffer_as_far_as_the_file_goes() {
    on_both(|_, path| async move {
        let len = limits::BULK_READ_BYTES;
        let content: Vec<u8> = (0..=250).cycle().take(len + 10).collect();
        std::fs::write(&path, &content).unwrap();
        let file = RegisteredFile::new(open(&path).await);
        let mut buf = RegisteredBuf::with_capacity(len);
        for (offset, end) in [(0, len), (5, len + 5), (100, len + 10), (len + 10, len + 10)] {
            let (count, read) = file.read_at(buf, offset as u64).await;
            assert_eq!(count.unwrap(), end - offset);
            assert!(*read == content[offset..end], "at {offset}");
            buf = read;
        }
        assert_eq!(buf.fill(&content), len);
        file.write_all_at(buf, 1).await.0.unwrap();
        let written = std::fs::read(&path).unwrap();
        assert_eq!(written[1..=len], content[..len]);
    });
}

/// More than a pipe holds, so that it is written in parts, even if one end is blocking.
#[test]
fn registered_pipe_is_written_whole() {
    on_both(|_, _| async move {
        let (reader, writer) = ringloop::embed::sys::file::pipe().unwrap();
        let (reader, writer) = (File::from(reader), RegisteredFile::new(File::from(writer)));
        let content: Vec<u8> = (0..=255).cycle().take(1 << 18).collect();
        let mut buf = RegisteredBuf::with_capacity(content.len());
        buf.fill(&content);
        let writing = ringloop::spawn(async move {
            let (written, buf) = writer.write_all(buf).await;
            written.unwrap();
            buf.len()
        });
        let mut received = Vec::new();
        loop {
            let (count, part) = reader.read(Vec::with_capacity(5000)).await;
            if count.unwrap() == 0 {
                break;
            }
            received.extend_from_slice(&part);
        }
        assert_eq!(received, content);
        assert_eq!(writing.await.unwrap(), content.len());
    });
}

/// `O_DIRECT` requires it.
#[test]
fn registered_buffers_begin_with_a_page() {
    on_both(|_, _| async move {
        for capacity in [1, 24, 4096, 5000, 1 << 18] {
            let mut buf = RegisteredBuf::with_capacity(capacity);
            assert_eq!((buf.fill(&vec![7; 1 << 18]), buf.capacity()), (capacity, capacity));
            assert!(buf.iter().all(|byte| *byte == 7));
            assert_eq!(buf.as_ptr().addr() % 4096, 0);
        }
        assert_eq!(RegisteredBuf::with_capacity(0).fill(b"x"), 0);
    });
}

#[test]
fn file_registered_with_one_runtime_is_used_by_its_descriptor_on_another() {
    let _alone = alone();
    for driver in drivers() {
        let path = std::env::temp_dir().join(format!("ringloop-two-{}", std::process::id()));
        let other = path.with_extension("other");
        std::fs::write(&path, b"right").unwrap();
        std::fs::write(&other, b"wrong").unwrap();
        let (first, second) = (runtime(driver), runtime(driver));
        let file = first.block_on(async { RegisteredFile::new(open(&path).await) }).unwrap();
        second
            .block_on(async {
                // It has the same slot in the other ring's table.
                let decoy = RegisteredFile::new(open(&other).await);
                let buf = RegisteredBuf::with_capacity(8);
                let (count, buf) = file.read_at(buf, 0).await;
                assert_eq!((count.unwrap(), &*buf), (5, b"right".as_slice()));
                drop(decoy);
            })
            .unwrap();
        drop(file);
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&other).unwrap();
    }
}
