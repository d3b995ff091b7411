//! Files in std's shape, and by path; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::fs::{self, File};
use ringloop_coro::{spawn, yield_now};
use ringloop_testing::coro::{on_both, pattern};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coro-files-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn written_bytes_are_read_back_at_any_size() {
    on_both(|| {
        let directory = Directory::new();
        let path = directory.0.join("file");
        for len in [0, 1, 4096, 4097, 300_000, 1_000_001] {
            let mut file = File::create(&path).unwrap();
            file.write_all(&pattern(len)).unwrap();
            file.sync_all().unwrap();
            assert_eq!(file.metadata().unwrap().len(), len as u64);
            let mut bytes = Vec::new();
            let mut file = File::open(&path).unwrap();
            file.read_to_end(&mut bytes).unwrap();
            assert!(bytes == pattern(len), "{len}");
        }
    });
}

#[test]
fn offsets_leave_the_position() {
    on_both(|| {
        let directory = Directory::new();
        let mut file = File::create_new(directory.0.join("file")).unwrap();
        file.write_all(b"0123456789").unwrap();
        assert_eq!(file.stream_position().unwrap(), 10);
        let mut clone = file.try_clone().unwrap();
        clone.seek(SeekFrom::Start(2)).unwrap();
        let mut two = [0; 2];
        file.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"23");
        assert_eq!(file.read_at(&mut two, 8).unwrap(), 2);
        assert_eq!((&two, file.stream_position().unwrap()), (b"89", 4));
        assert_eq!(file.write_at(b"xy", 4).unwrap(), 2);
        file.set_len(6).unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "xy");
    });
}

#[test]
fn invalid_offset_is_refused() {
    on_both(|| {
        let directory = Directory::new();
        let mut file = File::create_new(directory.0.join("file")).unwrap();
        file.write_all(b"0123").unwrap();
        file.seek(SeekFrom::Start(1)).unwrap();
        for offset in [u64::MAX, u64::MAX - 1] {
            let read = file.read_at(&mut [0; 2], offset).unwrap_err();
            assert_eq!(read.kind(), ErrorKind::InvalidInput);
            let write = file.write_at(b"xy", offset).unwrap_err();
            assert_eq!(write.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(file.stream_position().unwrap(), 1);
    });
}

#[test]
fn files_by_their_names() {
    on_both(|| {
        let directory = Directory::new();
        let below = directory.0.join("a/b");
        fs::create_dir_all(&below).unwrap();
        let (one, other) = (below.join("one"), below.join("other"));
        fs::write(&one, "text").unwrap();
        assert_eq!(fs::copy(&one, &other).unwrap(), 4);
        fs::rename(&other, below.join("third")).unwrap();
        assert_eq!(fs::read_to_string(below.join("third")).unwrap(), "text");
        fs::hard_link(&one, &other).unwrap();
        fs::symlink(&one, below.join("link")).unwrap();
        assert!(fs::symlink_metadata(below.join("link")).unwrap().is_symlink());
        assert_eq!(fs::metadata(below.join("link")).unwrap().nlink(), 2);
        fs::remove_file(&one).unwrap();
        let missing = File::open(&one).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let mut append = File::options().append(true).open(&other).unwrap();
        append.write_all(b" and more").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"text and more");
    });
}

#[test]
fn cancelled_read_leaves_the_file_in_order() {
    on_both(|| {
        let directory = Directory::new();
        let path = directory.0.join("file");
        fs::write(&path, pattern(2_000_000)).unwrap();
        let file = File::open(&path).unwrap();
        let theirs = file.try_clone().unwrap();
        let reading = spawn(move || {
            let mut buffer = vec![0; 100_000];
            loop {
                theirs.read_at(&mut buffer, 7).unwrap();
                yield_now();
            }
        });
        yield_now();
        reading.cancel();
        assert!(reading.join().is_err());
        let mut bytes = vec![0; 1000];
        file.read_at(&mut bytes, 1000).unwrap();
        assert!(bytes == pattern(2000)[1000..]);
    });
}

#[test]
fn positioned_io_on_a_pipe_fails_and_keeps_its_bytes() {
    on_both(|| {
        let (mut reads, mut input) = std::io::pipe().unwrap();
        input.write_all(b"data").unwrap();
        let file = |end: std::os::fd::OwnedFd| File::from(std::fs::File::from(end));
        let reader = file(reads.try_clone().unwrap().into());
        let writer = file(input.try_clone().unwrap().into());
        let refused = reader.read_at(&mut [0; 2], 5).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotSeekable);
        let refused = writer.write_at(b"more", 5).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotSeekable);
        drop((input, writer));
        let mut all = Vec::new();
        reads.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"data");
    });
}
