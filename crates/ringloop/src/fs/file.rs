//! A file.
//!
//! `read` and `write` use the file's own position, as `std` does; `read_at` and `write_at` name one, and
//! can be many at a time. A pipe or a terminal is polled first.

use super::Metadata;
use super::beside::beside;
use super::transfers::transfers;
use crate::buf::{Outgoing, RecvBuf, SendBuf};
use crate::executor::{Local, LoopFd, Op};
use crate::limits::BULK_READ_BYTES;
use crate::op::{Allocate, Close, Fsync, Read, ReadV, Statx, Truncate, Write, WriteV};
use crate::sys::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use crate::sys::file::{FileKind, has_positions, is_nonblocking, kind};
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::storage::CURRENT_POSITION;
use std::cell::Cell;
use std::ffi::CString;
use std::fs::Permissions;
use std::io;

/// An open file.
///
/// It is registered with the driver of the thread that uses it. Dropping it closes it; its operations
/// borrow it, so they have ended or were dropped by then.
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
    fd: LoopFd,
    /// Kind of the file, once known.
    kind: Cell<Option<FileKind>>,
    /// The file is known to have positions.
    has_positions: Cell<bool>,
}

impl From<OwnedFd> for File {
    /// Takes the descriptor over.
    fn from(fd: OwnedFd) -> Self {
        Self { fd: fd.into(), kind: Cell::new(None), has_positions: Cell::new(false) }
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        OwnedFd::from(file).into()
    }
}

impl From<File> for OwnedFd {
    /// Releases the descriptor from its loop, once no pool thread uses it.
    fn from(file: File) -> Self {
        file.fd.into_fd()
    }
}

impl AsRawFd for File {
    /// Usable for operations of the current loop: it releases the descriptor before it is closed.
    fn as_raw_fd(&self) -> RawFd {
        self.fd.lend().as_raw_fd()
    }
}

impl File {
    /// The descriptor, for use on the current loop.
    pub(super) fn on_loop(&self) -> RawFd {
        self.fd.on(&Local::current())
    }

    /// The offset that stands for the file's position: `None` for pipes, which are polled.
    pub(super) fn position(&self) -> io::Result<Option<u64>> {
        let is_file = self.kind()? == FileKind::Other;
        Ok(is_file.then_some(CURRENT_POSITION))
    }

    /// Whether a partial write blocks until the rest is written, also in the ring: a terminal's does.
    pub(super) fn blocks(&self) -> io::Result<bool> {
        Ok(self.kind()? == FileKind::Device && !is_nonblocking(self.as_raw_fd())?)
    }

    /// Checks an offset as pread(2) does: not the value that stands for the file's position, nor any
    /// offset of a pipe.
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

    fn file(&self) -> &Self {
        self
    }

    /// A read at the file's position into the room of `buf`.
    pub(crate) fn read_op(&self, buf: RecvBuf) -> Result<Op<Read>, (io::Error, RecvBuf)> {
        match self.position() {
            Ok(offset) => Ok(Op::new(Read { fd: self.on_loop(), buf, offset })),
            Err(error) => Err((error, buf)),
        }
    }

    fn read_from(
        &self,
        buf: Vec<u8>,
        offset: Option<u64>,
    ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> {
        self.read_buf(buf.into(), offset)
    }

    pub(super) async fn read_buf(
        &self,
        mut buf: RecvBuf,
        offset: Option<u64>,
    ) -> (io::Result<usize>, Vec<u8>) {
        let fd = self.on_loop();
        let is_bulk = offset.is_some() && buf.as_mut_ptr().1 >= BULK_READ_BYTES;
        let read = Read { fd, buf, offset };
        // The ring would copy cached data on this thread too, a turn of the loop later.
        let op = if is_bulk { Op::try_first(read) } else { Op::new(read) };
        let (result, buf) = op.await;
        (result, buf.into_vec())
    }

    /// Reads exactly `len` bytes at `offset`, and appends them to `buf`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file is shorter; those of pread(2). The buffer keeps
    /// the bytes read.
    ///
    /// # Cancel safety
    /// The buffer is lost.
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

    /// Reads at `offset` into several buffers in order, each up to its capacity; returns the total count.
    ///
    /// At most [`crate::limits::FILE_VECTOR_MAX`] buffers are filled. See preadv2(2); the ring's
    /// `READV`, Linux 5.1.
    ///
    /// # Errors
    /// Those of preadv(2), `ESPIPE` for a pipe, socket or terminal among them.
    ///
    /// # Cancel safety
    /// The buffers are lost.
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

    /// [`File::write_all`] for any value.
    pub(crate) async fn write_outgoing<B: Outgoing>(&self, bytes: B) -> (io::Result<()>, B) {
        match self.position() {
            Ok(None) if self.blocks().unwrap_or(false) => {
                let (buf, kept) = bytes.lend();
                let copy = buf.as_slice().to_vec();
                let (written, _) = self.write_beside(copy, io::Write::write_all).await;
                (written, B::restore(kept, buf))
            }
            Ok(offset) => self.write_rest(bytes, offset).await,
            Err(error) => (Err(error), bytes),
        }
    }

    /// Writes on a pool thread.
    pub(super) async fn write_beside<T: Send + 'static>(
        &self,
        bytes: Vec<u8>,
        write: fn(&mut std::fs::File, &[u8]) -> io::Result<T>,
    ) -> (io::Result<T>, Vec<u8>) {
        let mut own = match self.try_clone() {
            Ok(own) => own,
            Err(error) => return (Err(error), bytes),
        };
        let written = beside(move || Ok((write(&mut own, &bytes), bytes)));
        written.await.unwrap_or_else(|error| (Err(error), Vec::new()))
    }

    async fn write_buf(&self, buf: SendBuf, offset: Option<u64>) -> (io::Result<usize>, SendBuf) {
        let fd = self.on_loop();
        Op::new(Write { fd, buf, offset }).await
    }

    async fn write_to(&self, bytes: Vec<u8>, offset: Option<u64>) -> (io::Result<usize>, Vec<u8>) {
        let write = Write { fd: self.on_loop(), buf: bytes.into(), offset };
        let (result, buf) = Op::new(write).await;
        (result, buf.into_vec().unwrap_or_default())
    }

    async fn write_rest<B: Outgoing>(
        &self,
        bytes: B,
        mut offset: Option<u64>,
    ) -> (io::Result<()>, B) {
        let (mut buf, kept) = bytes.lend();
        let mut written = Ok(());
        while written.is_ok() && !buf.is_empty() {
            let (result, back) = self.write_buf(buf, offset).await;
            buf = back;
            match result {
                Ok(0) => written = Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    buf.advance(count);
                    offset = offset.map(|offset| after(offset, count));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => written = Err(error),
            }
        }
        (written, B::restore(kept, buf))
    }

    /// Writes several buffers as one at `offset`; returns the total count.
    ///
    /// At most [`crate::limits::FILE_VECTOR_MAX`] buffers are written. See pwritev2(2); the ring's
    /// `WRITEV`, Linux 5.1.
    ///
    /// # Errors
    /// Those of pwritev(2), `ESPIPE` for a pipe, socket or terminal among them.
    ///
    /// # Cancel safety
    /// The bytes may be written or not.
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

    /// Writes several buffers as one at the file's position, or at its end if it was opened to append;
    /// returns the total count. Not for pipes and terminals.
    ///
    /// Limits, errors and cancel safety as [`File::write_vectored_at`].
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

    /// Flushes data and metadata to the disk. Does not wait for writes in flight. See fsync(2); the
    /// ring's `FSYNC`, Linux 5.1.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.sync(false).await
    }

    /// Flushes the data to the disk, with the metadata needed to read it back.
    ///
    /// Errors as [`File::sync_all`].
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync(true).await
    }

    async fn sync(&self, data_only: bool) -> io::Result<()> {
        let fd = self.on_loop();
        Op::new(Fsync { fd, data_only }).await
    }

    /// Queries the metadata. See statx(2); the ring's `STATX`, Linux 5.6.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let itself = CString::default();
        let statx = Statx::new(self.on_loop(), itself, platform::AT_EMPTY_PATH);
        Op::new(statx).await.map(Metadata::from)
    }

    /// Sets the file's permissions. See fchmod(2).
    ///
    /// # Errors
    /// Those of fchmod(2), and `EMFILE`: a pool thread does it on a descriptor of its own.
    ///
    /// # Cancel safety
    /// It continues to its end.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let own = self.try_clone()?;
        beside(move || own.set_permissions(permissions)).await
    }

    /// A duplicate of the descriptor for `std`, which shares the position. See fcntl(2),
    /// `F_DUPFD_CLOEXEC`.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn try_clone(&self) -> io::Result<std::fs::File> {
        let fd = self.fd.as_fd().try_clone_to_owned()?;
        Ok(fd.into())
    }

    /// Truncates the file, or extends it with zeros, to `len` bytes. See ftruncate(2); the ring's
    /// `FTRUNCATE`, Linux 6.9.
    ///
    /// # Cancel safety
    /// It may have happened or not.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        let fd = self.on_loop();
        Op::new(Truncate { fd, len }).await
    }

    /// Reserves space for `len` bytes at `offset`; extends a shorter file. See fallocate(2); the
    /// ring's `FALLOCATE`, Linux 5.6.
    ///
    /// # Cancel safety
    /// It may have happened or not.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let fd = self.on_loop();
        Op::new(Allocate { fd, mode: 0, offset, len }).await
    }

    /// Closes the file and returns a delayed write error. Dropping the file closes it too. See
    /// close(2); the ring's `CLOSE`, Linux 5.6.
    ///
    /// # Errors
    /// Those of close(2); the file is closed in any case.
    pub async fn close(self) -> io::Result<()> {
        let fd = OwnedFd::from(self).into_raw_fd();
        Op::new(Close { fd }).await
    }
}

transfers!(File, Vec<u8>);

/// The offset after `count` bytes; the file's position moves by itself.
pub(super) fn after(offset: u64, count: usize) -> u64 {
    match offset {
        CURRENT_POSITION => offset,
        offset => offset + count as u64,
    }
}
