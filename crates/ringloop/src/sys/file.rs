//! Descriptors in general: read, write, close, pipe, poll once.
//!
//! Owns: nothing. Called by: the readiness form of the operations, and owners that close a
//! descriptor. Never waits for readiness: a non-blocking descriptor that is not ready gives
//! `EAGAIN`. Regular files do block for the disk.
//!
//! # Invariants
//! - **F1** A buffer handed to the kernel is live and of the length given, for the call; a raw twin
//!   passes this duty to its caller.
//! - **F2** A read that returns *n* has initialised exactly the first *n* bytes.
//! - **F3** A successful `pipe2` gives two fresh descriptors that nothing else owns.
//! - **F4** A successful `fstat` fills the whole structure.

use super::check;
use super::interest::Interest;
use super::platform;
use crate::sys::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use crate::sys::libc;
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Reads what is available, at most the buffer's length.
///
/// With `offset` `None` reads at the file's own position, as pipes and sockets require. The first `n` bytes of `buffer` are initialised.
///
/// # Errors
/// `EAGAIN`, `EINTR`, and those of read(2) and pread(2).
pub fn read(fd: RawFd, buffer: &mut [MaybeUninit<u8>], offset: Option<u64>) -> io::Result<usize> {
    // SAFETY: F1.
    unsafe { read_raw(fd, buffer.as_mut_ptr().cast(), buffer.len(), offset) }
}

/// Memory to read into: initialised bytes, or uninitialised room.
#[derive(Debug)]
pub struct Room<'a> {
    at: *mut u8,
    len: usize,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> From<&'a mut [u8]> for Room<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self { at: bytes.as_mut_ptr(), len: bytes.len(), memory: PhantomData }
    }
}

impl<'a> From<&'a mut [MaybeUninit<u8>]> for Room<'a> {
    fn from(room: &'a mut [MaybeUninit<u8>]) -> Self {
        Self { at: room.as_mut_ptr().cast(), len: room.len(), memory: PhantomData }
    }
}

impl Room<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no byte fits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The room after the first `count` bytes.
    pub fn behind(&mut self, count: usize) -> Room<'_> {
        let count = count.min(self.len);
        Room { at: self.at.wrapping_add(count), len: self.len - count, memory: PhantomData }
    }

    /// The vector entry for it.
    pub(super) fn entry(&mut self) -> libc::iovec {
        libc::iovec { iov_base: self.at.cast(), iov_len: self.len }
    }
}

/// Like [`read`], at the file's own position, into room of either kind.
pub fn read_into(fd: RawFd, room: &mut Room<'_>) -> io::Result<usize> {
    // SAFETY: F1: a room borrows its memory.
    unsafe { read_raw(fd, room.at, room.len, None) }
}

/// Reads into raw memory, like [`read`], for memory that another language owns.
///
/// # Safety
/// `at .. at + len` is writable for the call and not read meanwhile.
pub unsafe fn read_raw(
    fd: RawFd,
    at: *mut u8,
    len: usize,
    offset: Option<u64>,
) -> io::Result<usize> {
    let count = match offset {
        // SAFETY: F1, by this function's contract.
        None => unsafe { libc::read(fd, at.cast(), len) },
        // SAFETY: F1, by this function's contract.
        Some(offset) => unsafe { libc::pread(fd, at.cast(), len, offset as libc::off_t) },
    };
    Ok(check(count)? as usize)
}

/// Writes what fits, at most the buffer.
///
/// `offset` is as in [`read`].
///
/// # Errors
/// `EAGAIN`, `EINTR`, `EPIPE` (the runtime ignores SIGPIPE, as Rust and Python do), and those of
/// write(2) and pwrite(2).
pub fn write(fd: RawFd, bytes: &[u8], offset: Option<u64>) -> io::Result<usize> {
    // SAFETY: F1.
    unsafe { write_raw(fd, bytes.as_ptr(), bytes.len(), offset) }
}

/// Writes from raw memory, like [`fn@write`], for memory that another language owns.
///
/// # Safety
/// `at .. at + len` is readable for the call and not written meanwhile.
pub unsafe fn write_raw(
    fd: RawFd,
    at: *const u8,
    len: usize,
    offset: Option<u64>,
) -> io::Result<usize> {
    let count = match offset {
        // SAFETY: F1, by this function's contract.
        None => unsafe { libc::write(fd, at.cast(), len) },
        // SAFETY: F1, by this function's contract.
        Some(offset) => unsafe { libc::pwrite(fd, at.cast(), len, offset as libc::off_t) },
    };
    Ok(check(count)? as usize)
}

/// Writes several buffers as one: at most `IOV_MAX` (1024); returns the bytes of all of them. See
/// writev(2).
///
/// # Errors
/// As [`fn@write`].
pub fn write_vectored(fd: RawFd, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
    let count = buffers.len().min(platform::UIO_MAXIOV as usize) as libc::c_int;
    let vector = platform::vector_of(buffers);
    // SAFETY: F1.
    let written = unsafe { libc::writev(fd, vector.as_ptr(), count) };
    Ok(check(written)? as usize)
}

/// Makes a descriptor non-blocking or blocking, for all that share the open file description. See
/// fcntl(2), `F_SETFL`.
pub fn set_nonblocking(fd: RawFd, nonblocking: bool) -> io::Result<()> {
    let flags = check(platform::status_flags(fd))?;
    let wanted = if nonblocking { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    if wanted != flags {
        // SAFETY: no pointer is passed.
        check(unsafe { libc::fcntl(fd, libc::F_SETFL, wanted) })?;
    }
    Ok(())
}

/// Sets close-on-exec. See fcntl(2), `F_SETFD`.
pub fn set_close_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointer is passed.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(())
}

/// True if a descriptor is non-blocking. See fcntl(2), `F_GETFL`.
pub fn is_nonblocking(fd: RawFd) -> io::Result<bool> {
    let flags = check(platform::status_flags(fd))?;
    Ok(flags & libc::O_NONBLOCK != 0)
}

/// Closes a descriptor. See close(2), "Dealing with error returns".
///
/// # Errors
/// `EBADF`, and a late `EIO`, `ENOSPC` or `EDQUOT` of the file system. Never `EINTR`: Linux closes
/// the descriptor all the same, and a second close could hit another thread's new one.
pub fn close(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointer is passed; a number that is not open is EBADF.
    match check(unsafe { libc::close(fd) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINTR) => Err(error),
        _ => Ok(()),
    }
}

/// A descriptor of the engine, closed on drop.
///
/// Unlike an [`OwnedFd`] it may have been closed by the application: `os.closerange` of all descriptors closes those of its loops, which must then report `EBADF`; std aborts a debug build for that.
#[derive(Debug)]
pub struct Descriptor(RawFd);

impl From<OwnedFd> for Descriptor {
    fn from(fd: OwnedFd) -> Self {
        Self(fd.into_raw_fd())
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        drop(close(self.0));
    }
}

/// Creates a pipe, both ends non-blocking and close-on-exec; the reading end comes first. See
/// pipe2(2).
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: F1: room for two descriptors.
    check(unsafe { platform::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
    // SAFETY: F3.
    let reader = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: F3.
    let writer = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    Ok((reader, writer))
}

/// The kind of file behind a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A pipe, named or not.
    Pipe,
    /// A socket.
    Socket,
    /// A character device, such as a terminal.
    Device,
    /// A character device of memory, such as `/dev/null`: it never blocks.
    Memory,
    /// Anything else: a regular file, a directory.
    Other,
}

impl FileKind {
    /// True for a character device.
    pub fn is_device(self) -> bool {
        matches!(self, Self::Device | Self::Memory)
    }
}

/// True if a descriptor is a socket or a pipe.
///
/// # Errors
/// `EBADF`.
pub fn is_stream(fd: RawFd) -> io::Result<bool> {
    Ok(matches!(kind(fd)?, FileKind::Pipe | FileKind::Socket))
}

/// The kind of file behind a descriptor. See fstat(2), inode(7).
pub fn kind(fd: RawFd) -> io::Result<FileKind> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: F1: room for one, live for the call.
    check(unsafe { libc::fstat(fd, status.as_mut_ptr()) })?;
    // SAFETY: F4.
    let status = unsafe { status.assume_init() };
    Ok(match platform::mode_of(&status) & platform::S_IFMT {
        platform::S_IFIFO => FileKind::Pipe,
        platform::S_IFSOCK => FileKind::Socket,
        platform::S_IFCHR if platform::major(status.st_rdev) == platform::MEMORY_DEVICES => {
            FileKind::Memory
        }
        platform::S_IFCHR => FileKind::Device,
        _ => FileKind::Other,
    })
}

/// True if a descriptor is seekable. A pipe, a socket or a terminal is not, and a ring would read
/// from it at any offset. See lseek(2); pread(2), `ESPIPE`.
pub fn has_positions(fd: RawFd) -> io::Result<bool> {
    // SAFETY: no pointer is passed.
    match check(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESPIPE) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Polls a descriptor without waiting: the part of `interest` that is ready, both directions on an
/// error or a hang-up. A regular file is always ready. See poll(2).
pub fn poll_now(fd: RawFd, interest: Interest) -> io::Result<Interest> {
    let mut entry = libc::pollfd { fd, events: interest.poll_mask() as libc::c_short, revents: 0 };
    loop {
        // SAFETY: F1: one entry, live for the call.
        match check(unsafe { libc::poll(&raw mut entry, 1, 0) }) {
            // poll(2) returns it without waiting if a signal is pending and nothing is ready.
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            asked => break asked.map(drop)?,
        }
    }
    // poll(2) ignores a negative number.
    if fd < 0 || entry.revents & libc::POLLNVAL != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(Interest::from_poll_mask(u32::from(entry.revents as u16)))
}

/// Duplicates a descriptor to the lowest free number from `number` on, for tests of numbers that are
/// used again.
#[cfg(test)]
pub fn duplicate_from(fd: RawFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, number) })?;
    // SAFETY: a successful F_DUPFD_CLOEXEC gives a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    fn read_some(fd: RawFd, room: usize, offset: Option<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(room);
        let count = read(fd, &mut bytes.spare_capacity_mut()[..room], offset)?;
        // SAFETY: F2.
        unsafe { bytes.set_len(count) };
        Ok(bytes)
    }

    #[test]
    fn f1_a_pipe_carries_bytes_and_is_eagain_without() {
        let (reader, writer) = pipe().unwrap();
        assert_eq!(errno(read_some(reader.as_raw_fd(), 8, None)), Some(libc::EAGAIN));
        assert_eq!(write(writer.as_raw_fd(), b"hello", None).unwrap(), 5);
        assert_eq!(read_some(reader.as_raw_fd(), 3, None).unwrap(), b"hel");
        assert_eq!(read_some(reader.as_raw_fd(), 8, None).unwrap(), b"lo");
        drop(writer);
        assert_eq!(read_some(reader.as_raw_fd(), 8, None).unwrap(), b"");
    }

    /// poll(2) is never restarted, and says EINTR with a time-out of zero too.
    #[test]
    fn f1_readiness_is_told_while_signals_arrive() {
        let _listener = crate::sys::signal::Listener::new(&[libc::SIGURG]).unwrap();
        let (reader, _writer) = pipe().unwrap();
        // SAFETY: no pointer is passed.
        let polls = unsafe { libc::pthread_self() };
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    // SAFETY: the thread lives until this scope is over.
                    unsafe { libc::pthread_kill(polls, libc::SIGURG) };
                }
            });
            let mut asked = (0..50_000).map(|_| poll_now(reader.as_raw_fd(), Interest::READ));
            let failed = asked.find_map(errno);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(failed, None);
        });
    }

    #[test]
    fn f2_a_read_leaves_the_rest_of_the_buffer_alone() {
        let (reader, writer) = pipe().unwrap();
        write(writer.as_raw_fd(), b"ab", None).unwrap();
        let mut buffer = [0xEE_u8; 8];
        // SAFETY: F1: the whole array is writable.
        let count = unsafe { read_raw(reader.as_raw_fd(), buffer.as_mut_ptr(), 8, None) };
        assert_eq!(count.unwrap(), 2);
        assert_eq!(buffer, *b"ab\xEE\xEE\xEE\xEE\xEE\xEE");
    }

    #[test]
    fn f1_an_offset_reads_and_writes_without_moving_the_position() {
        // SAFETY: the name is a live C string.
        let fd = unsafe { libc::memfd_create(c"offsets".as_ptr(), libc::MFD_CLOEXEC) };
        write(fd, b"0123456789", None).unwrap();
        write(fd, b"xy", Some(2)).unwrap();
        assert_eq!(read_some(fd, 4, Some(1)).unwrap(), b"1xy4");
        assert_eq!(read_some(fd, 4, None).unwrap(), b"", "the position is at the end");
        assert_eq!(errno(read_some(fd, 1, Some(u64::MAX))), Some(libc::EINVAL));
        close(fd).unwrap();
    }

    #[test]
    fn f3_the_ends_of_a_pipe_are_owned_nonblocking_and_closed_on_exec() {
        let (reader, writer) = pipe().unwrap();
        for end in [&reader, &writer] {
            // SAFETY: no pointer is passed.
            let status = unsafe { libc::fcntl(end.as_raw_fd(), libc::F_GETFL) };
            // SAFETY: no pointer is passed.
            let flags = unsafe { libc::fcntl(end.as_raw_fd(), libc::F_GETFD) };
            assert!(status & libc::O_NONBLOCK != 0 && flags & libc::FD_CLOEXEC != 0);
        }
    }

    #[test]
    fn f1_several_buffers_are_written_as_one() {
        let (reader, writer) = pipe().unwrap();
        let parts = [b"he".as_slice(), b"", b"llo"].map(IoSlice::new);
        assert_eq!(write_vectored(writer.as_raw_fd(), &parts).unwrap(), 5);
        assert_eq!(read_some(reader.as_raw_fd(), 8, None).unwrap(), b"hello");
        drop(reader);
        let broken = write_vectored(writer.as_raw_fd(), &parts);
        assert_eq!(errno(broken), Some(libc::EPIPE));
    }

    #[test]
    fn nonblocking_is_set_and_cleared() {
        let (reader, _writer) = pipe().unwrap();
        for wanted in [false, true] {
            set_nonblocking(reader.as_raw_fd(), wanted).unwrap();
            // SAFETY: no pointer is passed.
            let flags = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_GETFL) };
            assert_eq!(flags & libc::O_NONBLOCK != 0, wanted);
            assert_eq!(is_nonblocking(reader.as_raw_fd()).unwrap(), wanted);
        }
        assert_eq!(errno(is_nonblocking(1 << 24)), Some(libc::EBADF));
        assert_eq!(errno(set_nonblocking(1 << 24, true)), Some(libc::EBADF));
    }

    #[test]
    fn f1_a_room_of_either_kind_is_filled_from_where_it_begins() {
        let (reader, writer) = pipe().unwrap();
        write(writer.as_raw_fd(), b"0123456789", None).unwrap();
        let mut bytes = [b'-'; 4];
        let mut room = Room::from(&mut bytes[..]);
        assert_eq!((room.len(), room.is_empty()), (4, false));
        let read = read_into(reader.as_raw_fd(), &mut room.behind(1)).unwrap();
        assert_eq!((read, &bytes), (3, b"-012"));
        let mut uninit = [MaybeUninit::new(b'-'); 4];
        let mut room = Room::from(&mut uninit[..]);
        assert!(room.behind(9).is_empty());
        assert_eq!(read_into(reader.as_raw_fd(), &mut room).unwrap(), 4);
        // SAFETY: all four were written.
        let written = uninit.map(|byte| unsafe { byte.assume_init() });
        assert_eq!(&written, b"3456");
    }

    #[test]
    fn f4_sockets_and_pipes_are_streams_and_files_are_not() {
        let (reader, _writer) = pipe().unwrap();
        assert_eq!(kind(reader.as_raw_fd()).unwrap(), FileKind::Pipe);
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(kind(null.as_raw_fd()).unwrap(), FileKind::Memory);
        assert!(FileKind::Memory.is_device() && FileKind::Device.is_device());
        // SAFETY: no pointer is passed.
        let terminal = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) };
        assert_eq!(kind(terminal).unwrap(), FileKind::Device);
        close(terminal).unwrap();
        assert!(is_stream(reader.as_raw_fd()).unwrap());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_stream(listener.as_raw_fd()).unwrap());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(!is_stream(file.as_raw_fd()).unwrap());
        assert_eq!(errno(is_stream(1 << 24)), Some(libc::EBADF));
    }

    #[test]
    fn files_have_positions_and_what_is_waited_for_has_none() {
        let (reader, _writer) = pipe().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(!has_positions(reader.as_raw_fd()).unwrap());
        assert!(!has_positions(listener.as_raw_fd()).unwrap());
        assert!(has_positions(file.as_raw_fd()).unwrap());
        assert_eq!(errno(has_positions(1 << 24)), Some(libc::EBADF));
    }

    #[test]
    fn close_reports_a_number_that_is_not_open() {
        assert_eq!(errno(close(-1)), Some(libc::EBADF));
    }

    #[test]
    fn poll_now_reports_the_ready_part_of_the_interest() {
        let (reader, writer) = pipe().unwrap();
        let (from, to) = (reader.as_raw_fd(), writer.as_raw_fd());
        assert_eq!(poll_now(from, Interest::READ).unwrap(), Interest::NONE);
        assert_eq!(poll_now(to, Interest::BOTH).unwrap(), Interest::WRITE);
        write(to, b"x", None).unwrap();
        assert_eq!(poll_now(from, Interest::BOTH).unwrap(), Interest::READ);
        drop(reader);
        assert_eq!(poll_now(to, Interest::NONE).unwrap(), Interest::BOTH, "broken pipe");
        for bad in [1 << 24, -1] {
            assert_eq!(errno(poll_now(bad, Interest::READ)), Some(libc::EBADF));
        }
    }
}
