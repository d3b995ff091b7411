//! Pipes, with and without a name, and terminals as files of `fs`, with the same results asserted on both
//! drivers.
#![allow(clippy::unwrap_used)]

use ringloop::fs::{self, File, OpenOptions, Pipe};
use ringloop::{spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::in_directories as on_both;
use std::io::{self};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::time::Duration;

fn make_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn whole_pipes_with_a_name_are_read_and_written() {
    const LEN: usize = 300_000;
    on_both("whole-fifo", |dir| async move {
        let path = dir.join("fifo");
        make_fifo(&path);
        let sent: Vec<u8> = (0..LEN).map(|index| index as u8).collect();
        let (name, bytes) = (path.clone(), sent.clone());
        let writer = std::thread::spawn(move || std::fs::write(name, bytes).unwrap());
        assert!(fs::read(&path).await.unwrap() == sent);
        writer.join().unwrap();
        let name = path.clone();
        let reader = std::thread::spawn(move || std::fs::read(name).unwrap());
        fs::write(&path, sent.clone()).await.unwrap();
        assert!(reader.join().unwrap() == sent);
    });
}

#[test]
fn bytes_are_spliced_through_a_pipe_and_shown_to_another() {
    on_both("splice", |dir| async move {
        let (from, to) = (dir.join("from"), dir.join("to"));
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at % 253) as u8).collect();
        fs::write(&from, bytes.clone()).await.unwrap();
        let (from, to) = (File::open(&from).await.unwrap(), File::create(&to).await.unwrap());
        let (pipe, shown) = (Pipe::new(1 << 16).unwrap(), Pipe::new(1 << 16).unwrap());
        let (mut moved, mut seen) = (0, Vec::new());
        loop {
            let len = pipe.capacity();
            let count = fs::splice(&from, Some(moved), &pipe.writer(), None, len).await.unwrap();
            if count == 0 {
                break;
            }
            assert_eq!(fs::tee(&pipe.reader(), &shown.writer(), count).await.unwrap(), count);
            let mut left = count;
            while left > 0 {
                left -= fs::splice(&pipe.reader(), None, &to, None, left).await.unwrap();
            }
            let mut part = vec![0; count];
            let reader = shown.reader().as_raw_fd();
            io::Read::read_exact(&mut &*borrowed(reader), &mut part).unwrap();
            seen.extend(part);
            moved += count as u64;
        }
        assert!(seen == bytes);
        assert!(std::fs::read(dir.join("to")).unwrap() == bytes);
    });
}

/// A `std` file over a descriptor that another owner closes.
fn borrowed(fd: i32) -> std::mem::ManuallyDrop<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the descriptor is open, and not closed by this.
    std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) })
}

#[test]
fn splice_and_tee_wait_for_bytes_and_for_room() {
    on_both("waits", |_| async move {
        let (full, empty) = (Pipe::new(1 << 12).unwrap(), Pipe::new(1 << 12).unwrap());
        let (input, output) = (empty.reader().as_raw_fd(), full.writer().as_raw_fd());
        let feeder = empty.writer().as_raw_fd();
        let drain = full.reader().as_raw_fd();
        while io::Write::write(&mut &*borrowed(output), &[7; 4096]).is_ok() {}
        let moving = spawn(async move { fs::splice(&input, None, &output, None, 100).await });
        let later = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            io::Write::write_all(&mut &*borrowed(feeder), b"hello").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            io::Read::read_exact(&mut &*borrowed(drain), &mut [0; 4096]).unwrap();
        });
        assert_eq!(moving.await.unwrap().unwrap(), 5);
        later.join().unwrap();
        let bad = fs::tee(&input, &-1, 1).await.unwrap_err();
        assert_eq!(bad.raw_os_error(), Some(libc::EBADF));
    });
}

#[test]
fn pipe_with_a_name_is_waited_for_as_a_pipe() {
    on_both("fifo", |dir| async move {
        let path = dir.join("fifo");
        make_fifo(&path);
        let open = |path: &Path| {
            let path = path.to_owned();
            std::thread::spawn(move || std::fs::File::options().write(true).open(path).unwrap())
        };
        let opening = open(&path);
        let file = File::open(&path).await.unwrap();
        let mut writer = opening.join().unwrap();
        let reading = spawn(async move { file.read(Vec::with_capacity(16)).await });
        ringloop::time::sleep(std::time::Duration::from_millis(5)).await;
        io::Write::write_all(&mut writer, b"hi").unwrap();
        let (count, bytes) = reading.await.unwrap();
        assert_eq!((count.unwrap(), bytes.as_slice()), (2, b"hi".as_slice()));
    });
}

#[test]
fn open_of_a_pipe_with_a_name_waits_for_the_other_end() {
    on_both("fifo-open", |dir| async move {
        let path = dir.join("fifo");
        make_fifo(&path);
        let for_writing = |append: bool| {
            let mut options = OpenOptions::new();
            options.write(!append).append(append);
            options
        };
        for append in [false, true] {
            for reader_first in [false, true] {
                let options = for_writing(append);
                let (one, other) = (path.clone(), path.clone());
                let reading = async move { File::open(&one).await.unwrap() };
                let writing = async move { options.open(&other).await.unwrap() };
                let (reader, writer) = if reader_first {
                    let reading = spawn(reading);
                    time::sleep(Duration::from_millis(20)).await;
                    assert!(!reading.is_finished(), "there is no writer");
                    let writer = writing.await;
                    (reading.await.unwrap(), writer)
                } else {
                    let writing = spawn(writing);
                    time::sleep(Duration::from_millis(20)).await;
                    assert!(!writing.is_finished(), "there is no reader");
                    let reader = reading.await;
                    (reader, writing.await.unwrap())
                };
                writer.write_all(b"hi".to_vec()).await.0.unwrap();
                drop(writer);
                let (count, bytes) = reader.read(Vec::with_capacity(16)).await;
                assert_eq!((count.unwrap(), bytes.as_slice()), (2, b"hi".as_slice()));
            }
        }
        // With `O_NONBLOCK` neither waits.
        let mut options = for_writing(false);
        let refused = options.custom_flags(libc::O_NONBLOCK).open(&path).await;
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENXIO));
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK).open(&path).await.unwrap();
    });
}

#[test]
fn cancelled_open_of_a_pipe_leaves_the_loop_at_work() {
    on_both("fifo-cancelled", |dir| async move {
        let path = dir.join("fifo");
        make_fifo(&path);
        let waited = time::timeout(Duration::from_millis(20), File::open(&path)).await;
        assert!(waited.is_err());
        fs::write(dir.join("file"), b"there".to_vec()).await.unwrap();
        assert_eq!(fs::read(dir.join("file")).await.unwrap(), b"there");
        // On the readiness driver a pool thread still waits: it is let out.
        let opened = std::fs::File::options().read(true).write(true).open(&path);
        drop(opened.unwrap());
    });
}

/// Writes a lot to a file that blocks when full, and reads it from its other end concurrently. A
/// thread that reads too unblocks a blocked loop, too late.
async fn write_beside_reading(to: File, from: File) {
    const LEN: usize = 200_000;
    let (over, ended) = mpsc::channel::<()>();
    let mut end = from.try_clone().unwrap();
    let watching = std::thread::spawn(move || {
        let in_time = ended.recv_timeout(PATIENCE);
        if in_time == Err(mpsc::RecvTimeoutError::Timeout) {
            std::thread::spawn(move || io::copy(&mut end, &mut io::sink()));
        }
        in_time
    });
    let sent: Vec<u8> = (0..LEN).map(|index| b'a' + (index / 3 % 26) as u8).collect();
    let reading = async {
        let mut bytes = Vec::new();
        while bytes.len() < LEN {
            let (count, read) = from.read(Vec::with_capacity(10_000)).await;
            assert!(count.unwrap() > 0);
            bytes.extend_from_slice(&read);
        }
        bytes
    };
    let both = ringloop::future::join(to.write_all(sent.clone()), reading);
    let ((written, _), read) = time::timeout(PATIENCE * 2, both).await.unwrap();
    written.unwrap();
    assert!(read == sent);
    over.send(()).unwrap();
    watching.join().unwrap().unwrap();
}

#[test]
fn pipe_with_a_name_that_is_full_holds_its_writer_and_not_the_loop() {
    on_both("full-fifo", |dir| async move {
        let path = dir.join("fifo");
        make_fifo(&path);
        let file = OpenOptions::new().read(true).write(true).open(&path).await;
        let file = file.unwrap();
        let other = File::from(file.try_clone().unwrap());
        write_beside_reading(file, other).await;
    });
}

#[test]
fn terminal_that_is_full_holds_its_writer_and_not_the_loop() {
    on_both("full-terminal", |_| async move {
        let mut ends = [-1; 2];
        let [master, slave] = &mut ends;
        // SAFETY: two numbers are written, and the other pointers may be null.
        let opened = unsafe { libc::openpty(master, slave, null_mut(), null(), null()) };
        assert_eq!(opened, 0);
        // SAFETY: both are open, and owned by nothing else.
        let [master, slave] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        write_beside_reading(slave.into(), master.into()).await;
    });
}
