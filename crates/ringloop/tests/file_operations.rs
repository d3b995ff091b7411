//! Reads and writes of files and pipes, with the same results asserted on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::buf::SendBuf;
use ringloop::embed::Completion;
use ringloop::embed::op::{Request, Write};
use ringloop::embed::sys::{file, socket};
use ringloop_testing::engine::{on_both, read, read_exact};
use std::io::{Seek, Write as _};
use std::os::fd::AsRawFd;

fn read_of(completion: Completion) -> (i32, Vec<u8>) {
    let Some(Request::Read(read)) = completion.request else {
        panic!("{completion:?}");
    };
    (completion.result, read.buf.into_vec())
}

#[test]
fn read_of_an_empty_pipe_waits_for_bytes_and_for_the_end() {
    on_both(|bed| {
        // Blocking or not makes no difference to the operation.
        for nonblocking in [false, true] {
            let (reader, writer) = file::pipe().unwrap();
            socket::set_nonblocking(reader.as_raw_fd(), nonblocking).unwrap();
            let mut writer = std::fs::File::from(writer);
            let (_, token) = bed.submit(read(reader.as_raw_fd(), None));
            bed.expect_none(token);
            writer.write_all(b"hello").unwrap();
            assert_eq!(read_of(bed.expect(token)), (5, b"hello".to_vec()));
            drop(writer);
            assert_eq!(read_of(bed.run(read(reader.as_raw_fd(), None))), (0, vec![]));
            bed.release(&reader);
        }
    });
}

#[test]
fn read_and_write_of_a_file_know_offset_and_position() {
    on_both(|bed| {
        let mut file = tempfile();
        let fd = file.as_raw_fd();
        let write = |bytes: &[u8], offset| {
            let buf = SendBuf::from(bytes.to_vec());
            Request::Write(Write { fd, buf, offset })
        };
        assert_eq!(bed.run(write(b"hello world", Some(0))).result, 11);
        let completion = bed.run(write(b"W", Some(6)));
        assert_eq!(completion.result, 1);
        assert!(matches!(completion.request, Some(Request::Write(_))));
        assert_eq!(read_of(bed.run(read(fd, Some(6)))), (5, b"World".to_vec()));
        assert_eq!(
            read_of(bed.run(read(fd, None))),
            (11, b"hello World".to_vec()),
            "offsets do not move the position"
        );
        assert_eq!(read_of(bed.run(read(fd, None))), (0, vec![]));
        assert_eq!(bed.run(write(b"!", None)).result, 1);
        assert_eq!(file.stream_position().unwrap(), 12);
    });
}

fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir();
    std::fs::File::options().read(true).write(true).custom_flags_tmpfile().open(path).unwrap()
}

/// `O_TMPFILE` makes a file without a name.
trait TmpFile {
    fn custom_flags_tmpfile(&mut self) -> &mut Self;
}

impl TmpFile for std::fs::OpenOptions {
    fn custom_flags_tmpfile(&mut self) -> &mut Self {
        use std::os::unix::fs::OpenOptionsExt;
        self.custom_flags(libc::O_TMPFILE)
    }
}

#[test]
fn write_to_a_full_pipe_waits_for_room_and_to_a_broken_one_is_epipe() {
    on_both(|bed| {
        let (reader, writer) = file::pipe().unwrap();
        let fd = writer.as_raw_fd();
        let block = vec![7_u8; 65536];
        while file::write(fd, &block, None).is_ok() {}
        let (_, token) = bed.submit(Request::Write(Write {
            fd,
            buf: SendBuf::from(b"x".to_vec()),
            offset: None,
        }));
        bed.expect_none(token);
        let mut reader = std::fs::File::from(reader);
        read_exact(&mut reader, 65536);
        assert_eq!(bed.expect(token).result, 1);
        drop(reader);
        let broken =
            bed.run(Request::Write(Write { fd, buf: SendBuf::from(b"x".to_vec()), offset: None }));
        assert_eq!(broken.result, -libc::EPIPE);
        bed.release(&writer);
    });
}
