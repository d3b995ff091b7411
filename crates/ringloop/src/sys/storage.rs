//! Regular files beyond a plain read: vectors at an offset, cached reads, sync, allocation, and
//! moving bytes without a copy.
//!
//! Owns: nothing. Called by: the readiness form of the file operations. Except for [`Wait::Never`], a
//! call here may wait for a disk. Never retries.
//!
//! # Invariants
//! - **T1** Every vector entry names live memory of the length given, for the call: the duty of the
//!   caller.
//! - **T2** An offset handed by pointer is a live local.

use super::check;
use super::file::Room;
use super::platform;
use crate::sys::fd::RawFd;
use crate::sys::libc;
use std::io;

/// As an offset: the file's own position, as in preadv2(2) and on the ring.
pub const CURRENT_POSITION: u64 = u64::MAX;

/// Whether a call may wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It may.
    Disk,
    /// `EAGAIN` instead of waiting (`RWF_NOWAIT`), `EOPNOTSUPP` if the file system does not support
    /// it.
    Never,
}

impl Wait {
    fn flags(self) -> libc::c_int {
        match self {
            Self::Disk => 0,
            Self::Never => platform::RWF_NOWAIT,
        }
    }
}

/// Reads at `offset`, or at the file's own position.
///
/// # Errors
/// As [`read_vector`].
pub fn read_at(fd: RawFd, room: &mut Room<'_>, offset: u64, wait: Wait) -> io::Result<usize> {
    let vector = [room.entry()];
    // SAFETY: T1: a room borrows its memory.
    unsafe { read_vector(fd, &vector, offset, wait) }
}

/// Writes at `offset`, or at the file's own position.
///
/// # Errors
/// As [`write_vector`].
pub fn write_at(fd: RawFd, bytes: &[u8], offset: u64) -> io::Result<usize> {
    let vector = [libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
    // SAFETY: T1: a slice borrows its memory.
    unsafe { write_vector(fd, &vector, offset) }
}

/// Reads into several buffers, at most `UIO_MAXIOV`; returns the bytes of all of them. See
/// preadv2(2).
///
/// # Errors
/// Those of read(2).
///
/// # Safety
/// T1, writable, and not read meanwhile.
pub unsafe fn read_vector(
    fd: RawFd,
    vector: &[libc::iovec],
    offset: u64,
    wait: Wait,
) -> io::Result<usize> {
    let (at, count) = (vector.as_ptr(), vector.len() as libc::c_int);
    // SAFETY: T1, by this function's contract.
    let read = unsafe { platform::preadv2(fd, at, count, offset as libc::off_t, wait.flags()) };
    Ok(check(read)? as usize)
}

/// Writes from several buffers, at most `UIO_MAXIOV`; returns the bytes of all of them. See
/// pwritev2(2).
///
/// # Errors
/// Those of write(2).
///
/// # Safety
/// T1, and not written meanwhile.
pub unsafe fn write_vector(fd: RawFd, vector: &[libc::iovec], offset: u64) -> io::Result<usize> {
    let (at, count) = (vector.as_ptr(), vector.len() as libc::c_int);
    // SAFETY: T1, by this function's contract.
    let written = unsafe { platform::pwritev2(fd, at, count, offset as libc::off_t, 0) };
    Ok(check(written)? as usize)
}

/// Flushes a file to disk; with `data_only` without metadata that reading it back does not need.
/// See fsync(2).
///
/// # Errors
/// `EIO`, `ENOSPC`, `EROFS`, `EINVAL`.
pub fn sync(fd: RawFd, data_only: bool) -> io::Result<()> {
    let done = if data_only {
        // SAFETY: no pointer is passed.
        unsafe { platform::fdatasync(fd) }
    } else {
        // SAFETY: no pointer is passed.
        unsafe { platform::fsync(fd) }
    };
    check(done)?;
    Ok(())
}

/// Allocates space, punches a hole, and the like; `mode` is `FALLOC_FL_*`.
///
/// # Errors
/// Those of fallocate(2).
pub fn allocate(fd: RawFd, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (offset as libc::off_t, len as libc::off_t);
    // SAFETY: no pointer is passed.
    check(unsafe { platform::fallocate(fd, mode, offset, len) })?;
    Ok(())
}

/// Sets a file's length.
///
/// # Errors
/// Those of ftruncate(2).
pub fn truncate(fd: RawFd, len: u64) -> io::Result<()> {
    // SAFETY: no pointer is passed.
    check(unsafe { libc::ftruncate(fd, len as libc::off_t) })?;
    Ok(())
}

/// Moves at most `len` bytes between a pipe and a descriptor; an offset of `None` is the
/// descriptor's own position, and required for a pipe.
///
/// # Errors
/// Those of splice(2).
pub fn splice(
    from: (RawFd, Option<u64>),
    to: (RawFd, Option<u64>),
    len: usize,
    flags: u32,
) -> io::Result<usize> {
    let mut offset_in = from.1.map(|offset| offset as platform::loff_t);
    let mut offset_out = to.1.map(|offset| offset as platform::loff_t);
    let at_in = offset_in.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let at_out = offset_out.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: T2.
    let moved = unsafe { platform::splice(from.0, at_in, to.0, at_out, len, flags) };
    Ok(check(moved)? as usize)
}

/// Copies at most `len` bytes from one pipe to another; they stay in the first.
///
/// # Errors
/// Those of tee(2).
pub fn tee(from: RawFd, to: RawFd, len: usize, flags: u32) -> io::Result<usize> {
    // SAFETY: no pointer is passed.
    Ok(check(unsafe { platform::tee(from, to, len, flags) })? as usize)
}

/// Sets a pipe's capacity in bytes; returns the actual one. See fcntl(2), `F_SETPIPE_SZ`.
///
/// # Errors
/// `EPERM` past `/proc/sys/fs/pipe-max-size`, `EBUSY`.
pub fn set_pipe_capacity(fd: RawFd, len: usize) -> io::Result<usize> {
    let len = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX);
    Ok(check(platform::set_pipe_capacity(fd, len))? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fd::AsRawFd;
    use crate::sys::file::{pipe, write};
    use std::os::unix::fs::{FileExt, OpenOptionsExt};

    fn file() -> std::fs::File {
        let mut options = std::fs::File::options();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE);
        options.open(std::env::temp_dir()).unwrap()
    }

    fn entry(bytes: &mut [u8]) -> libc::iovec {
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn t1_slices_are_written_and_read_at_their_offsets() {
        let file = file();
        let fd = file.as_raw_fd();
        assert_eq!(write_at(fd, b"hello", 3).unwrap(), 5);
        let mut bytes = [0; 4];
        let mut room = Room::from(&mut bytes[..]);
        assert_eq!(read_at(fd, &mut room, 4, Wait::Disk).unwrap(), 4);
        assert_eq!(&bytes, b"ello");
    }

    #[test]
    fn t1_vectors_are_filled_and_written_in_order() {
        let file = file();
        let (mut a, mut b) = (*b"he", *b"llo");
        let vector = [entry(&mut a), entry(&mut b)];
        // SAFETY: both arrays are live.
        let written = unsafe { write_vector(file.as_raw_fd(), &vector, 3) }.unwrap();
        assert_eq!(written, 5);
        let (mut a, mut b) = ([0; 4], [0; 9]);
        let vector = [entry(&mut a), entry(&mut b)];
        // SAFETY: both arrays are live.
        let read = unsafe { read_vector(file.as_raw_fd(), &vector, 0, Wait::Disk) }.unwrap();
        assert_eq!((read, &a, &b[..4]), (8, b"\0\0\0h", b"ello".as_slice()));
        // SAFETY: the array is live.
        let at_position = unsafe {
            read_vector(file.as_raw_fd(), &[entry(&mut a)], CURRENT_POSITION, Wait::Disk)
        };
        assert_eq!(at_position.unwrap(), 4, "the position had not moved");
    }

    #[test]
    fn t2_offsets_of_a_splice_are_honoured_and_positions_stay() {
        let file = file();
        file.write_all_at(b"hello", 0).unwrap();
        let (reader, writer) = pipe().unwrap();
        let moved = splice((file.as_raw_fd(), Some(1)), (writer.as_raw_fd(), None), 3, 0);
        assert_eq!(moved.unwrap(), 3);
        let back = splice((reader.as_raw_fd(), None), (file.as_raw_fd(), Some(10)), 9, 0);
        assert_eq!(back.unwrap(), 3);
        let mut all = [0; 13];
        file.read_exact_at(&mut all, 0).unwrap();
        assert_eq!(&all, b"hello\0\0\0\0\0ell");
    }

    #[test]
    fn tee_leaves_the_bytes_and_pipes_change_their_size() {
        let (reader, writer) = pipe().unwrap();
        let (other_reader, other_writer) = pipe().unwrap();
        write(writer.as_raw_fd(), b"abc", None).unwrap();
        assert_eq!(tee(reader.as_raw_fd(), other_writer.as_raw_fd(), 9, 0).unwrap(), 3);
        for end in [&reader, &other_reader] {
            let mut bytes = [0; 9];
            // SAFETY: the array is live.
            let read = unsafe {
                read_vector(end.as_raw_fd(), &[entry(&mut bytes)], CURRENT_POSITION, Wait::Disk)
            };
            assert_eq!((read.unwrap(), &bytes[..3]), (3, b"abc".as_slice()));
        }
        assert_eq!(set_pipe_capacity(reader.as_raw_fd(), 4096).unwrap(), 4096);
    }

    #[test]
    fn space_is_reserved_cut_and_synced() {
        let file = file();
        allocate(file.as_raw_fd(), 0, 0, 8192).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8192);
        truncate(file.as_raw_fd(), 10).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10);
        for data_only in [true, false] {
            sync(file.as_raw_fd(), data_only).unwrap();
            assert_eq!(sync(-1, data_only).unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }
}
