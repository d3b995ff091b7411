//! A file.
//!
//! `read` and `write` use the file's own position, as `std` does; `read_at` and `write_at` name one, and
//! can be many at a time. A name that stands for a pipe or a terminal is waited for as such.

use super::Metadata;
use super::beside::beside;
use crate::buf::{RecvBuf, SendBuf};
use crate::executor::{Home, Local, Op};
use crate::limits::BULK_READ_BYTES;
use crate::op::{Allocate, Close, Fsync, Read, ReadV, Statx, Truncate, Write, WriteV};
use crate::sys::file::{FileKind, has_positions, is_nonblocking, kind};
use crate::sys::storage::CURRENT_POSITION;
use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

/// An open file.
///
/// It belongs to the thread that used it first. Dropping it closes it; its operations borrow it, so they
/// are over or given up by then.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// let file = ringloop::fs::File::open("Cargo.toml").await?;
/// let (count, bytes) = file.read_at(Vec::with_capacity(4096), 0).await;
/// println!("{}", String::from_utf8_lossy(&bytes[..count?]));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct File {
    fd: Option<OwnedFd>,
    /// Where it was used last.
    home: RefCell<Option<Home>>,
    /// What it is, once that was asked.
    kind: Cell<Option<FileKind>>,
    /// It was found to have some.
    has_positions: Cell<bool>,
}

impl From<OwnedFd> for File {
    /// Takes the descriptor over, as it is.
    fn from(fd: OwnedFd) -> Self {
        Self {
            fd: Some(fd),
            home: RefCell::new(None),
            kind: Cell::new(None),
            has_positions: Cell::new(false),
        }
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        OwnedFd::from(file).into()
    }
}

impl From<File> for OwnedFd {
    /// Takes the descriptor off its loop, once no thread uses it any more.
    fn from(mut file: File) -> Self {
        if let Some(home) = file.home.get_mut().take() {
            home.release(file.as_raw_fd());
        }
        file.fd
            .take()
            .expect("a file holds its descriptor until it is dropped")
    }
}

impl AsRawFd for File {
    /// For operations on the loop that runs, too: it is told before the descriptor is closed.
    fn as_raw_fd(&self) -> RawFd {
        let mut home = self.home.borrow_mut();
        if home.is_none() {
            *home = Home::of_current();
        }
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let (Some(fd), Some(home)) = (self.fd.take(), self.home.get_mut()) {
            home.close(fd);
        }
    }
}

impl File {
    /// The descriptor, to be used on the loop that runs.
    pub(super) fn on_loop(&self) -> RawFd {
        let local = Local::current();
        let fd = self.as_raw_fd();
        let mut home = self.home.borrow_mut();
        match &*home {
            Some(home) if home.is(&local) => return fd,
            Some(other) => other.release(fd),
            None => {}
        }
        *home = Some(local.home());
        fd
    }

    /// What stands for "at the file's own position": a pipe is waited for, a file is not.
    pub(super) fn position(&self) -> io::Result<Option<u64>> {
        let is_file = self.kind()? == FileKind::Other;
        Ok(is_file.then_some(CURRENT_POSITION))
    }

    /// Whether a write that has room for some bytes blocks for the others, here and in the ring alike: a terminal's does.
    pub(super) fn blocks(&self) -> io::Result<bool> {
        Ok(self.kind()? == FileKind::Device && !is_nonblocking(self.as_raw_fd())?)
    }

    /// A number of bytes from the file's start, as pread(2) takes it: what stands for the file's own position is none, and
    /// a pipe has none, whatever a ring would do.
    pub(super) fn place(&self, offset: u64) -> io::Result<u64> {
        if offset == CURRENT_POSITION {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if !self.has_positions.get() {
            if !has_positions(self.as_raw_fd())? {
                return Err(io::Error::from_raw_os_error(libc::ESPIPE));
            }
            self.has_positions.set(true);
        }
        Ok(offset)
    }

    fn kind(&self) -> io::Result<FileKind> {
        if let Some(known) = self.kind.get() {
            return Ok(known);
        }
        let kind = kind(self.as_raw_fd())?;
        self.kind.set(Some(kind));
        Ok(kind)
    }

    /// Read up to the capacity of `buf`, from its start, at the file's own position; 0 is the end.
    ///
    /// Cost: as [`File::read_at`] on the ring; on epoll always a pool thread's.
    /// Errors: those of read(2).
    /// Cancel safety: bytes that were read meanwhile are lost with the buffer, and the position has moved.
    /// Source: read(2); the ring's `READ`, Linux 5.6.
    pub async fn read(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        match self.position() {
            Ok(offset) => self.read_buf(buf.into(), offset).await,
            Err(error) => (Err(error), buf),
        }
    }

    /// Read up to the capacity of `buf`, from its start, at `offset` bytes from the file's start; 0 is the
    /// end. The position stays.
    ///
    /// Cost: a copy out of the page cache, and less than a microsecond. From [`crate::limits::BULK_READ_BYTES`] on,
    /// what is in memory is read at once. On epoll a pool thread's, where the bytes are not in memory or more than
    /// [`crate::limits::CACHED_READ_BYTES`].
    /// Errors: those of pread(2), `ESPIPE` for a pipe, socket or terminal among them.
    /// Cancel safety: the buffer is lost.
    /// Source: preadv2(2); the ring's `READ`, Linux 5.6.
    pub async fn read_at(&self, buf: Vec<u8>, offset: u64) -> (io::Result<usize>, Vec<u8>) {
        match self.place(offset) {
            Ok(offset) => self.read_buf(buf.into(), Some(offset)).await,
            Err(error) => (Err(error), buf),
        }
    }

    pub(super) async fn read_buf(
        &self,
        mut buf: RecvBuf,
        offset: Option<u64>,
    ) -> (io::Result<usize>, Vec<u8>) {
        let fd = self.on_loop();
        let is_bulk = offset.is_some() && buf.as_mut_ptr().1 >= BULK_READ_BYTES;
        let read = Read { fd, buf, offset };
        // What is in memory the ring would copy on this thread too, after a turn of the loop.
        let op = if is_bulk {
            Op::eager(read)
        } else {
            Op::new(read)
        };
        let (result, buf) = op.await;
        (result, buf.into_vec())
    }

    /// Read exactly `len` bytes at `offset`, and append them to `buf`, which grows where it must.
    ///
    /// Errors: [`io::ErrorKind::UnexpectedEof`] where the file is shorter; those of pread(2). What was read
    /// is in the buffer.
    /// Cancel safety: the buffer is lost.
    pub async fn read_exact_at(
        &self,
        mut buf: Vec<u8>,
        len: usize,
        offset: u64,
    ) -> (io::Result<()>, Vec<u8>) {
        if let Err(error) = self.place(offset) {
            return (Err(error), buf);
        }
        buf.reserve(len);
        let mut done = 0;
        while done < len {
            let rest = RecvBuf::append(buf, len - done);
            let (result, back) = self.read_buf(rest, Some(offset + done as u64)).await;
            buf = back;
            match result {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    /// Read into several buffers in order, each up to its capacity, at `offset`; the count is over all.
    ///
    /// Shape: at most [`crate::limits::FILE_VECTOR_MAX`] buffers are filled.
    /// Errors: those of preadv(2), `ESPIPE` for a pipe, socket or terminal among them.
    /// Cancel safety: the buffers are lost.
    /// Source: preadv2(2); the ring's `READV`, Linux 5.1.
    pub async fn read_vectored_at(
        &self,
        bufs: Vec<Vec<u8>>,
        offset: u64,
    ) -> (io::Result<usize>, Vec<Vec<u8>>) {
        if let Err(error) = self.place(offset) {
            return (Err(error), bufs);
        }
        let bufs = bufs.into_iter().map(RecvBuf::from).collect();
        let read = ReadV::new(self.on_loop(), bufs, offset);
        let (result, bufs) = Op::new(read).await;
        (result, bufs.into_iter().map(RecvBuf::into_vec).collect())
    }

    /// Write some of `bytes` at the file's own position, or at the end of one that was opened to append;
    /// returns how many.
    ///
    /// Cost: a pool thread's and a descriptor for its time, where it is a terminal or another device that blocks.
    /// Errors: those of write(2).
    /// Cancel safety: it may be written or not.
    /// Source: write(2); the ring's `WRITE`, Linux 5.6.
    pub async fn write(&self, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        match self.position() {
            Ok(None) if self.blocks().unwrap_or(false) => {
                self.write_beside(bytes, io::Write::write).await
            }
            Ok(offset) => {
                let (result, buf) = self.write_buf(bytes.into(), offset).await;
                (result, buf.into_vec().unwrap_or_default())
            }
            Err(error) => (Err(error), bytes),
        }
    }

    /// Write all of `bytes` at the file's own position, or at the end of one that was opened to append.
    ///
    /// Cost: as [`File::write`].
    /// Errors: those of write(2); some of it may be written.
    /// Cancel safety: some of it may be written.
    pub async fn write_all(&self, bytes: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        match self.position() {
            Ok(None) if self.blocks().unwrap_or(false) => {
                self.write_beside(bytes, io::Write::write_all).await
            }
            Ok(offset) => self.write_rest(bytes, offset).await,
            Err(error) => (Err(error), bytes),
        }
    }

    /// Write some of `bytes` at `offset` bytes from the file's start; returns how many. The position stays.
    ///
    /// Errors: those of pwrite(2), `ESPIPE` for a pipe, socket or terminal among them.
    /// Cancel safety: it may be written or not.
    /// Source: pwritev2(2); the ring's `WRITE`, Linux 5.6.
    pub async fn write_at(&self, bytes: Vec<u8>, offset: u64) -> (io::Result<usize>, Vec<u8>) {
        if let Err(error) = self.place(offset) {
            return (Err(error), bytes);
        }
        let (result, buf) = self.write_buf(bytes.into(), Some(offset)).await;
        (result, buf.into_vec().unwrap_or_default())
    }

    /// Write all of `bytes` at `offset` bytes from the file's start.
    ///
    /// Errors: those of pwrite(2); some of it may be written.
    /// Cancel safety: some of it may be written.
    pub async fn write_all_at(&self, bytes: Vec<u8>, offset: u64) -> (io::Result<()>, Vec<u8>) {
        match self.place(offset) {
            Ok(offset) => self.write_rest(bytes, Some(offset)).await,
            Err(error) => (Err(error), bytes),
        }
    }

    /// Write on a pool thread.
    async fn write_beside<T: Send + 'static>(
        &self,
        bytes: Vec<u8>,
        write: fn(&mut std::fs::File, &[u8]) -> io::Result<T>,
    ) -> (io::Result<T>, Vec<u8>) {
        let mut own = match self.try_clone() {
            Ok(own) => own,
            Err(error) => return (Err(error), bytes),
        };
        let written = beside(move || Ok((write(&mut own, &bytes), bytes)));
        written
            .await
            .unwrap_or_else(|error| (Err(error), Vec::new()))
    }

    async fn write_buf(&self, buf: SendBuf, offset: Option<u64>) -> (io::Result<usize>, SendBuf) {
        let fd = self.on_loop();
        Op::new(Write { fd, buf, offset }).await
    }

    async fn write_rest(
        &self,
        bytes: Vec<u8>,
        mut offset: Option<u64>,
    ) -> (io::Result<()>, Vec<u8>) {
        let mut buf = SendBuf::from(bytes);
        while !buf.is_empty() {
            let (result, back) = self.write_buf(buf, offset).await;
            buf = back;
            match result {
                Ok(0) => {
                    let error = io::ErrorKind::WriteZero.into();
                    return (Err(error), buf.into_vec().unwrap_or_default());
                }
                Ok(count) => {
                    buf.advance(count);
                    offset = offset.map(|offset| after(offset, count));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (Err(error), buf.into_vec().unwrap_or_default()),
            }
        }
        (Ok(()), buf.into_vec().unwrap_or_default())
    }

    /// Write several buffers as one at `offset`; returns how many bytes, over all.
    ///
    /// Shape: at most [`crate::limits::FILE_VECTOR_MAX`] buffers are written.
    /// Errors: those of pwritev(2), `ESPIPE` for a pipe, socket or terminal among them.
    /// Cancel safety: it may be written or not.
    /// Source: pwritev2(2); the ring's `WRITEV`, Linux 5.1.
    pub async fn write_vectored_at(
        &self,
        bufs: Vec<Vec<u8>>,
        offset: u64,
    ) -> (io::Result<usize>, Vec<Vec<u8>>) {
        match self.place(offset) {
            Ok(offset) => self.write_vector(bufs, offset).await,
            Err(error) => (Err(error), bufs),
        }
    }

    /// Write several buffers as one at the file's own position, or at the end of one that was opened to
    /// append; returns how many bytes, over all. Not for pipes and terminals.
    ///
    /// Shape, errors, cancel safety and source: as [`File::write_vectored_at`].
    pub async fn write_vectored(&self, bufs: Vec<Vec<u8>>) -> (io::Result<usize>, Vec<Vec<u8>>) {
        self.write_vector(bufs, CURRENT_POSITION).await
    }

    async fn write_vector(
        &self,
        bufs: Vec<Vec<u8>>,
        offset: u64,
    ) -> (io::Result<usize>, Vec<Vec<u8>>) {
        let bufs = bufs.into_iter().map(SendBuf::from).collect();
        let write = WriteV::new(self.on_loop(), bufs, offset);
        let (result, bufs) = Op::new(write).await;
        let bufs = bufs.into_iter().filter_map(SendBuf::into_vec);
        (result, bufs.collect())
    }

    /// Bring the file to the disk, its metadata included. Writes that are still in flight are not waited
    /// for.
    ///
    /// Errors: those of fsync(2).
    /// Source: fsync(2); the ring's `FSYNC`, Linux 5.1.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.sync(false).await
    }

    /// Bring the file's data to the disk, and what reading it back needs.
    ///
    /// Errors and source: fdatasync(2), as [`File::sync_all`].
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync(true).await
    }

    async fn sync(&self, data_only: bool) -> io::Result<()> {
        let fd = self.on_loop();
        Op::new(Fsync { fd, data_only }).await
    }

    /// Look at the file.
    ///
    /// Errors: those of fstat(2).
    /// Source: statx(2); the ring's `STATX`, Linux 5.6.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let itself = CString::default();
        let statx = Statx::new(self.on_loop(), itself, libc::AT_EMPTY_PATH);
        Op::new(statx).await.map(Metadata::from)
    }

    /// Set the file's permissions.
    ///
    /// Errors: those of fchmod(2), and `EMFILE`: a pool thread does it on a descriptor of its own.
    /// Cancel safety: it goes on to its end.
    /// Source: fchmod(2).
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let own = self.try_clone()?;
        beside(move || own.set_permissions(permissions)).await
    }

    /// A second descriptor of the open file, which shares its position, for `std`.
    ///
    /// Errors: `EMFILE`.
    /// Source: fcntl(2), `F_DUPFD_CLOEXEC`.
    pub fn try_clone(&self) -> io::Result<std::fs::File> {
        let fd = self.fd.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        fd.try_clone().map(std::fs::File::from)
    }

    /// Cut the file, or lengthen it by zeros, to `len` bytes.
    ///
    /// Errors: those of ftruncate(2).
    /// Cancel safety: it may have happened or not.
    /// Source: ftruncate(2); the ring's `FTRUNCATE`, Linux 6.9.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        let fd = self.on_loop();
        Op::new(Truncate { fd, len }).await
    }

    /// Reserve space for `len` bytes at `offset`; the file grows where it is shorter.
    ///
    /// Errors: those of fallocate(2).
    /// Cancel safety: it may have happened or not.
    /// Source: fallocate(2); the ring's `FALLOCATE`, Linux 5.6.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let fd = self.on_loop();
        Op::new(Allocate {
            fd,
            mode: 0,
            offset,
            len,
        })
        .await
    }

    /// Close the file, and learn of an error that a write left behind. Dropping the file closes it too.
    ///
    /// Errors: those of close(2); the file is closed in any case.
    /// Source: close(2); the ring's `CLOSE`, Linux 5.6.
    pub async fn close(self) -> io::Result<()> {
        let fd = OwnedFd::from(self).into_raw_fd();
        Op::new(Close { fd }).await
    }
}

/// The offset behind `count` bytes; the file's own position moves by itself.
pub(super) fn after(offset: u64, count: usize) -> u64 {
    match offset {
        CURRENT_POSITION => offset,
        offset => offset + count as u64,
    }
}
