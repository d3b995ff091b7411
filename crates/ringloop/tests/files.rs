//! The `fs` module, with the same results asserted on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::limits::BULK_READ_BYTES;
use ringloop::fs::{self, File, OpenOptions, RegisteredBuf, RegisteredFile};
use ringloop::{Options, Runtime, spawn, spawn_blocking, time};
use ringloop_testing::drivers;
use ringloop_testing::engine::{alone, in_directories as on_both, processor_time};
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn file_is_written_and_read_at_offsets_and_at_its_position() {
    on_both("offsets", |dir| async move {
        let path = dir.join("file");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path).await.unwrap();
        assert_eq!(file.write_all(b"hello ".to_vec()).await.0.ok(), Some(()));
        let (result, bytes) = file.write_all(b"world".to_vec()).await;
        assert_eq!((result.ok(), bytes.as_slice()), (Some(()), b"world".as_slice()));
        assert_eq!(file.write_at(b"W".to_vec(), 6).await.0.unwrap(), 1);
        let (count, bytes) = file.read_at(Vec::with_capacity(64), 6).await;
        assert_eq!((count.unwrap(), bytes.as_slice()), (5, b"World".as_slice()));
        let (count, bytes) = file.read(bytes).await;
        assert_eq!((count.unwrap(), bytes.len()), (0, 0), "the position is at the end");
        file.write_all_at(vec![b'x'; 3], 20).await.0.unwrap();
        assert_eq!(fs::read(&path).await.unwrap(), b"hello World\0\0\0\0\0\0\0\0\0xxx");
        assert_eq!(kind(options.open(&path).await), ErrorKind::AlreadyExists);
        file.close().await.unwrap();
    });
}

#[test]
fn position_moves_by_what_was_read_and_is_shared_with_the_kernel() {
    on_both("position", |dir| async move {
        let path = dir.join("file");
        std::fs::write(&path, b"0123456789").unwrap();
        let file = File::open(&path).await.unwrap();
        let (count, bytes) = file.read(Vec::with_capacity(4)).await;
        assert_eq!((count.unwrap(), bytes.as_slice()), (4, b"0123".as_slice()));
        let (_, bytes) = file.read(Vec::with_capacity(4)).await;
        assert_eq!(bytes, b"4567");
        let mut std = std::fs::File::from(OwnedFd::from(file));
        assert_eq!(io::Seek::stream_position(&mut std).unwrap(), 8);
    });
}

#[test]
fn offset_that_means_the_position_is_refused_and_nothing_is_lost() {
    on_both("no offset", |dir| async move {
        let path = dir.join("file");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path).await.unwrap();
        let (bytes, bufs) = (b"hello".to_vec(), vec![b"hello".to_vec()]);
        let refused = [
            file.write_at(bytes.clone(), u64::MAX).await,
            file.read_at(bytes.clone(), u64::MAX).await,
        ];
        for (result, back) in refused {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(back, bytes);
        }
        let refused = [
            file.write_all_at(bytes.clone(), u64::MAX).await,
            file.read_exact_at(bytes.clone(), 3, u64::MAX).await,
        ];
        for (result, back) in refused {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(back, bytes);
        }
        let refused = [
            file.write_vectored_at(bufs.clone(), u64::MAX).await,
            file.read_vectored_at(bufs.clone(), u64::MAX).await,
        ];
        for (result, back) in refused {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(back, bufs);
        }
        let file = RegisteredFile::new(file);
        let (result, buf) = file.write_at(RegisteredBuf::with_capacity(16), u64::MAX).await;
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        let (result, _) = file.read_at(buf, u64::MAX).await;
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    });
}

#[test]
fn exact_read_appends_and_reports_the_end() {
    on_both("exact", |dir| async move {
        let path = dir.join("file");
        std::fs::write(&path, b"0123456789").unwrap();
        let file = File::open(&path).await.unwrap();
        let (result, bytes) = file.read_exact_at(b"ab".to_vec(), 3, 2).await;
        result.unwrap();
        assert_eq!(bytes, b"ab234");
        let (result, bytes) = file.read_exact_at(Vec::new(), 5, 8).await;
        assert_eq!(kind(result), ErrorKind::UnexpectedEof);
        assert_eq!(bytes, b"89", "what was there");
    });
}

#[test]
fn vectors_are_read_and_written_in_order() {
    on_both("vectors", |dir| async move {
        let path = dir.join("file");
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let file = options.open(&path).await.unwrap();
        let lines = vec![b"one\n".to_vec(), Vec::new(), b"two\n".to_vec()];
        let (count, back) = file.write_vectored(lines.clone()).await;
        assert_eq!((count.unwrap(), &back), (8, &lines));
        assert_eq!(file.write_vectored(lines).await.0.unwrap(), 8);
        let bufs = vec![Vec::with_capacity(6), Vec::with_capacity(0), Vec::with_capacity(64)];
        let (count, bufs) = file.read_vectored_at(bufs, 1).await;
        assert_eq!(count.unwrap(), 15);
        assert_eq!(bufs, [b"ne\ntwo".to_vec(), vec![], b"\none\ntwo\n".to_vec()]);
        let (count, _) = file.write_vectored_at(vec![b"end".to_vec()], 0).await;
        assert_eq!(count.unwrap(), 3, "appended wherever it was asked for");
        assert_eq!(file.metadata().await.unwrap().len(), 19);
    });
}

#[test]
fn options_are_those_of_std() {
    on_both("options", |dir| async move {
        let path = dir.join("file");
        assert_eq!(kind(File::open(&path).await), ErrorKind::NotFound);
        for (read, write, append, truncate, create, create_new) in
            (0..64).map(|n| (n & 1 > 0, n & 2 > 0, n & 4 > 0, n & 8 > 0, n & 16 > 0, n & 32 > 0))
        {
            std::fs::write(&path, b"old").unwrap();
            let mut theirs = std::fs::OpenOptions::new();
            theirs.read(read).write(write).append(append);
            theirs.truncate(truncate).create(create).create_new(create_new);
            let expected = theirs.open(&path).map(drop).map_err(|e| e.kind());
            let expected_len = std::fs::metadata(&path).unwrap().len();
            std::fs::write(&path, b"old").unwrap();
            let mut ours = OpenOptions::new();
            ours.read(read).write(write).append(append);
            ours.truncate(truncate).create(create).create_new(create_new);
            let found = ours.open(&path).await.map(drop).map_err(|e| e.kind());
            assert_eq!(found, expected, "{ours:?}");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), expected_len, "{ours:?}");
        }
        let private = dir.join("private");
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600);
        drop(options.open(&private).await.unwrap());
        let mode = std::fs::metadata(&private).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    });
}

#[test]
fn metadata_is_what_std_sees() {
    on_both("metadata", |dir| async move {
        let (path, link) = (dir.join("file"), dir.join("link"));
        fs::write(&path, b"12345".to_vec()).await.unwrap();
        fs::symlink("file", &link).await.unwrap();
        let theirs = std::fs::metadata(&path).unwrap();
        let file = File::open(&path).await.unwrap();
        let by_name = fs::metadata(&link).await.unwrap();
        for ours in [by_name, file.metadata().await.unwrap()] {
            assert!(ours.is_file() && !ours.is_dir() && !ours.is_symlink());
            assert_eq!((ours.len(), ours.ino()), (theirs.len(), theirs.ino()));
            assert_eq!((ours.mode(), ours.uid()), (theirs.mode(), theirs.uid()));
            assert_eq!(ours.modified(), theirs.modified().unwrap());
            assert_eq!(ours.created(), theirs.created().ok());
            assert_eq!(ours.blocks(), theirs.blocks());
        }
        assert!(fs::symlink_metadata(&link).await.unwrap().is_symlink());
        assert!(fs::metadata(&dir).await.unwrap().is_dir());
        assert!(fs::metadata("/dev/null").await.unwrap().file_type().is_char_device());
        assert_eq!(kind(fs::metadata(dir.join("none")).await), ErrorKind::NotFound);
    });
}

#[test]
fn length_space_and_sync() {
    on_both("length", |dir| async move {
        let path = dir.join("file");
        let file = File::create(&path).await.unwrap();
        file.set_len(10).await.unwrap();
        file.sync_data().await.unwrap();
        file.allocate(0, 5000).await.unwrap();
        file.sync_all().await.unwrap();
        assert_eq!(file.metadata().await.unwrap().len(), 5000);
        file.set_len(3).await.unwrap();
        assert_eq!(fs::read(&path).await.unwrap(), [0; 3]);
    });
}

#[test]
fn names_are_made_moved_and_removed() {
    on_both("names", |dir| async move {
        let deep = dir.join("a/b/c");
        assert_eq!(kind(fs::create_dir(&deep).await), ErrorKind::NotFound);
        fs::create_dir_all(&deep).await.unwrap();
        fs::create_dir_all(&deep).await.unwrap();
        let (one, two, three) = (deep.join("one"), dir.join("two"), dir.join("three"));
        fs::write(&one, b"1".to_vec()).await.unwrap();
        fs::rename(&one, &two).await.unwrap();
        fs::hard_link(&two, &three).await.unwrap();
        assert_eq!(fs::metadata(&two).await.unwrap().nlink(), 2);
        fs::remove_file(&two).await.unwrap();
        assert_eq!(fs::read_to_string(&three).await.unwrap(), "1");
        assert!(fs::create_dir_all(three.join("x")).await.is_err(), "below a file");
        assert_eq!(kind(fs::remove_dir(dir.join("a")).await), ErrorKind::DirectoryNotEmpty);
        fs::remove_dir(&deep).await.unwrap();
        assert!(!deep.exists());
        assert_eq!(kind(fs::remove_file("a\0b").await), ErrorKind::InvalidInput);
    });
}

#[test]
fn whole_files_are_read_and_copied_whatever_their_size() {
    on_both("whole", |dir| async move {
        let (from, to) = (dir.join("from"), dir.join("to"));
        for len in [0, 1, fs::CHUNK - 1, fs::CHUNK, 3 * fs::CHUNK + 7] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8).collect();
            fs::write(&from, bytes.clone()).await.unwrap();
            assert!(fs::read(&from).await.unwrap() == bytes);
            assert_eq!(fs::copy(&from, &to).await.unwrap(), len as u64);
            assert!(std::fs::read(&to).unwrap() == bytes);
        }
        let shown = fs::read_to_string("/proc/self/status").await.unwrap();
        assert!(shown.contains("Threads"), "a file whose length is told as 0");
        assert_eq!(kind(fs::copy(&dir, &to).await), ErrorKind::InvalidInput);
        std::fs::set_permissions(&from, PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::remove_file(&to).unwrap();
        fs::copy(&from, &to).await.unwrap();
        assert_eq!(std::fs::metadata(&to).unwrap().mode() & 0o777, 0o700);
    });
}

#[test]
fn file_of_unknown_length_is_read_whole() {
    on_both("untold", |_| async move {
        for path in ["/proc/sys/net/core/somaxconn", "/proc/self/status"] {
            let expected = std::fs::read_to_string(path).unwrap();
            let text = fs::read_to_string(path).await.unwrap();
            assert_eq!(text.lines().next(), expected.lines().next(), "{path}");
            assert_eq!(text.lines().count(), expected.lines().count(), "{path}");
        }
    });
}

#[test]
fn hundred_files_are_read_at_once() {
    on_both("hundred", |dir| async move {
        let path = |n: usize| dir.join(format!("{n}"));
        let mut writers = Vec::new();
        for n in 0..100 {
            writers.push(spawn(fs::write(path(n), vec![n as u8; n * 100])));
        }
        for writer in writers {
            writer.await.unwrap().unwrap();
        }
        let readers: Vec<_> = (0..100).map(|n| spawn(fs::read(path(n)))).collect();
        for (n, reader) in readers.into_iter().enumerate() {
            assert!(reader.await.unwrap().unwrap() == vec![n as u8; n * 100]);
        }
    });
}

#[test]
fn blocking_call_does_not_block_the_loop_and_its_panic_is_returned() {
    on_both("blocking", |_| async move {
        let here = std::thread::current().id();
        let there = spawn_blocking(|| std::thread::current().id()).await.unwrap();
        assert_ne!(here, there);
        let panicked = spawn_blocking(|| panic!("on purpose")).await;
        assert!(panicked.unwrap_err().to_string().contains("on purpose"));
        let many: Vec<_> = (0..5000_u32).map(|n| spawn_blocking(move || n)).collect();
        for (n, call) in many.into_iter().enumerate() {
            assert_eq!(call.await.unwrap() as usize, n, "also past a full queue");
        }
        drop(spawn_blocking(|| ()));
    });
}

/// Has `count` tasks wait for room in the pool's queue, then lets their calls run; returns the CPU
/// time.
async fn time_of_waiting_tasks(count: u32) -> Duration {
    // No thread is free before every task waits.
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let stuck: Vec<_> = (0..ringloop::embed::limits::BLOCKING_THREADS)
        .map(|_| Arc::clone(&gate))
        .map(|gate| spawn_blocking(move || assert!(gate.lock().unwrap().recv().is_err())))
        .collect();
    let before = processor_time();
    let polled = Rc::new(Cell::new(0));
    let one = |n| {
        let polled = Rc::clone(&polled);
        spawn(async move {
            polled.set(polled.get() + 1);
            spawn_blocking(move || n).await.unwrap()
        })
    };
    let calls: Vec<_> = (0..count).map(one).collect();
    while polled.get() < count {
        time::sleep(Duration::from_millis(1)).await;
    }
    drop(open);
    for call in stuck {
        call.await.unwrap();
    }
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap() as usize, n);
    }
    processor_time().saturating_sub(before)
}

#[test]
fn tasks_that_wait_for_room_cost_the_same_however_many_there_are() {
    on_both("waiting", |_| async move {
        // CPU time includes time stolen by the host: one undisturbed pair is enough.
        for attempt in 1.. {
            let few = time_of_waiting_tasks(5_000).await;
            let many = time_of_waiting_tasks(40_000).await;
            if many < 30 * few {
                return;
            }
            assert!(attempt < 5, "{many:?} of processor time for 8 times as many as in {few:?}");
        }
    });
}

#[test]
fn call_that_had_not_begun_when_the_runtime_ended_is_aborted() {
    let _alone = alone();
    for driver in drivers() {
        let options = Options { driver, ..Options::default() };
        let runtime = Runtime::with_options(options).unwrap();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let calls = runtime.block_on(async {
            let call = || {
                let wait = wait.clone();
                spawn_blocking(move || wait.lock().unwrap().recv().is_ok())
            };
            (0..=ringloop::embed::limits::BLOCKING_THREADS).map(|_| call()).collect::<Vec<_>>()
        });
        drop(runtime);
        drop(go);
        let other = Runtime::with_options(options).unwrap();
        let results = other.block_on(async {
            let mut aborted = 0;
            for call in calls.unwrap() {
                aborted += usize::from(call.await.is_err());
            }
            aborted
        });
        assert!(results.unwrap() >= 1, "one more than there are threads");
    }
}

#[test]
fn names_and_addresses_are_looked_up() {
    on_both("lookup", |_| async move {
        let numeric = ringloop::net::lookup_host("[::1]:80").await.unwrap();
        assert_eq!(numeric, ["[::1]:80".parse().unwrap()]);
        let found = ringloop::net::lookup_host("localhost:80").await.unwrap();
        assert!(found.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 80));
        assert!(!found.is_empty());
        assert_eq!(kind(ringloop::net::lookup_host("localhost").await), ErrorKind::InvalidInput);
    });
}

/// The kernel may evict pages at any time, so only one of many tries has to succeed.
#[test]
fn bulk_read_of_what_is_in_memory_is_done_at_its_first_poll() {
    on_both("bulk", |dir| async move {
        let path = dir.join("file");
        let content: Vec<u8> = (0..=255).cycle().take(BULK_READ_BYTES + 1).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).await.unwrap();
        let mut at_once = 0;
        for _ in 0..100 {
            let mut read = Box::pin(file.read_at(Vec::with_capacity(BULK_READ_BYTES), 1));
            let mut polls = 0;
            let read = poll_fn(|cx| {
                polls += 1;
                read.as_mut().poll(cx)
            });
            let (count, bytes) = read.await;
            assert_eq!(count.unwrap(), BULK_READ_BYTES);
            assert!(bytes == content[1..]);
            at_once += u32::from(polls == 1);
            ringloop::time::yield_now().await;
        }
        assert!(at_once > 0, "every read has waited");
    });
}
