//! Registered files and buffers: operations that cost the kernel less, the more of them there are.
//!
//! What it saves is a look-up of the file and of the buffer's pages in each operation: it shows with many
//! small operations, and with `O_DIRECT`. A copy out of the page cache costs far more than either.

use super::File;
use super::file::after;
use crate::executor::{Home, Local, Op};
use crate::limits::BULK_READ_BYTES;
use crate::op::{ReadFixed, RegisteredBuf, RegisteredFd, WriteFixed};
use crate::sys::storage::CURRENT_POSITION;
use std::io;

impl RegisteredBuf {
    /// A buffer for `capacity` bytes, registered with the ring of the running loop; one that is not, where
    /// there is no ring, no room in its table ([`crate::limits::REGISTERED_BUFFERS`]) or no more memory may
    /// be locked. It begins with a page, as `O_DIRECT` asks.
    ///
    /// Shape: at most 4 GiB less a byte.
    /// Cost: the memory is written once. The pages are looked up, about 0.1 µs each.
    /// Source: `io_uring_register(2)`, `IORING_REGISTER_BUFFERS_UPDATE`, Linux 5.13.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[track_caller]
    pub fn with_capacity(capacity: usize) -> Self {
        let mut buf = Self::unregistered(capacity);
        let local = Local::current();
        let slot = local.engine().driver_mut().register_buffer(buf.whole());
        buf.set_slot(slot);
        buf
    }
}

/// A file that the ring holds on to.
///
/// ```
/// # let runtime = ringloop::Runtime::new()?;
/// # runtime.block_on(async {
/// use ringloop::fs::{File, RegisteredBuf, RegisteredFile};
///
/// let file = RegisteredFile::new(File::open("Cargo.toml").await?);
/// let (count, buf) = file.read_at(RegisteredBuf::with_capacity(4096), 0).await;
/// assert_eq!(buf.len(), count?);
/// # Ok::<(), std::io::Error>(())
/// # })??;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[derive(Debug)]
pub struct RegisteredFile {
    // The slot is given back first.
    fd: RegisteredFd,
    /// Whose ring has it.
    home: Home,
    file: File,
}

impl RegisteredFile {
    /// Register `file` with the ring of the running loop. Where there is no ring, or no room in its table
    /// ([`crate::limits::REGISTERED_FILES`]), everything works without.
    ///
    /// Source: `io_uring_register(2)`, `IORING_REGISTER_FILES_UPDATE2`, Linux 5.13.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[track_caller]
    pub fn new(file: File) -> Self {
        let fd = file.on_loop();
        let local = Local::current();
        let slot = local.engine().driver_mut().register_file(fd);
        Self {
            fd: RegisteredFd::new(fd, slot),
            home: local.home(),
            file,
        }
    }

    /// Whether the ring has it.
    pub fn is_registered(&self) -> bool {
        self.fd.is_registered()
    }

    /// The file, for everything else.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Read up to the capacity of `buf`, from its start, at the file's own position; 0 is the end.
    ///
    /// Errors: those of read(2).
    /// Cancel safety: bytes that were read meanwhile are lost with the buffer, and the position has moved.
    /// Source: read(2); the ring's `READ_FIXED`, Linux 5.1.
    pub async fn read(&self, buf: RegisteredBuf) -> (io::Result<usize>, RegisteredBuf) {
        match self.file.position() {
            Ok(offset) => self.read_from(buf, offset).await,
            Err(error) => (Err(error), buf),
        }
    }

    /// Read up to the capacity of `buf`, from its start, at `offset` bytes from the file's start; 0 is the
    /// end. The position stays.
    ///
    /// Cost: as [`File::read_at`].
    /// Errors: those of pread(2).
    /// Cancel safety: the buffer is lost.
    /// Source: preadv2(2); the ring's `READ_FIXED`, Linux 5.1.
    pub async fn read_at(
        &self,
        buf: RegisteredBuf,
        offset: u64,
    ) -> (io::Result<usize>, RegisteredBuf) {
        match self.file.place(offset) {
            Ok(offset) => self.read_from(buf, Some(offset)).await,
            Err(error) => (Err(error), buf),
        }
    }

    async fn read_from(
        &self,
        buf: RegisteredBuf,
        offset: Option<u64>,
    ) -> (io::Result<usize>, RegisteredBuf) {
        let is_bulk = offset.is_some() && buf.capacity() >= BULK_READ_BYTES;
        let (file, offset) = self.here(offset);
        let read = ReadFixed { file, buf, offset };
        let op = if is_bulk {
            Op::eager(read)
        } else {
            Op::new(read)
        };
        let (result, buf) = op.await;
        (result, buf.unwrap_or_else(nothing))
    }

    /// Write some of the bytes that `buf` holds, at the file's own position, or at the end of one that was opened
    /// to append; returns how many.
    ///
    /// Cost: as [`File::write`]; a copy too, where it is a terminal or another device that blocks.
    /// Errors: those of write(2).
    /// Cancel safety: it may be written or not.
    /// Source: write(2); the ring's `WRITE_FIXED`, Linux 5.1.
    pub async fn write(&self, buf: RegisteredBuf) -> (io::Result<usize>, RegisteredBuf) {
        match self.file.position() {
            Ok(None) if self.file.blocks().unwrap_or(false) => {
                let (result, _) = self.file.write(buf.to_vec()).await;
                (result, buf)
            }
            Ok(offset) => self.write_to(buf, offset).await,
            Err(error) => (Err(error), buf),
        }
    }

    /// Write all the bytes that `buf` holds, as [`RegisteredFile::write`] writes some.
    ///
    /// Errors: those of write(2); some of it may be written.
    /// Cancel safety: some of it may be written.
    pub async fn write_all(&self, buf: RegisteredBuf) -> (io::Result<()>, RegisteredBuf) {
        match self.file.position() {
            Ok(None) if self.file.blocks().unwrap_or(false) => {
                let (result, _) = self.file.write_all(buf.to_vec()).await;
                (result, buf)
            }
            Ok(offset) => self.write_rest(buf, offset).await,
            Err(error) => (Err(error), buf),
        }
    }

    /// Write some of the bytes that `buf` holds, at `offset` bytes from the file's start; returns how many. The
    /// position stays.
    ///
    /// Errors: those of pwrite(2).
    /// Cancel safety: it may be written or not.
    /// Source: pwritev2(2); the ring's `WRITE_FIXED`, Linux 5.1.
    pub async fn write_at(
        &self,
        buf: RegisteredBuf,
        offset: u64,
    ) -> (io::Result<usize>, RegisteredBuf) {
        match self.file.place(offset) {
            Ok(offset) => self.write_to(buf, Some(offset)).await,
            Err(error) => (Err(error), buf),
        }
    }

    /// Write all the bytes that `buf` holds, at `offset` bytes from the file's start.
    ///
    /// Errors: those of pwrite(2); some of it may be written.
    /// Cancel safety: some of it may be written.
    pub async fn write_all_at(
        &self,
        buf: RegisteredBuf,
        offset: u64,
    ) -> (io::Result<()>, RegisteredBuf) {
        match self.file.place(offset) {
            Ok(offset) => self.write_rest(buf, Some(offset)).await,
            Err(error) => (Err(error), buf),
        }
    }

    async fn write_to(
        &self,
        buf: RegisteredBuf,
        offset: Option<u64>,
    ) -> (io::Result<usize>, RegisteredBuf) {
        let (file, offset) = self.here(offset);
        let (result, buf) = Op::new(WriteFixed { file, buf, offset }).await;
        (result, buf.unwrap_or_else(nothing))
    }

    async fn write_rest(
        &self,
        mut buf: RegisteredBuf,
        mut offset: Option<u64>,
    ) -> (io::Result<()>, RegisteredBuf) {
        let mut written = Ok(());
        while written.is_ok() && !buf.rest().is_empty() {
            let (result, back) = self.write_to(buf, offset).await;
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
        buf.rewind();
        (written, buf)
    }

    /// What names it on the running loop, and the offset for it; `None` is for what can be waited for. Another ring's
    /// table has another file in that slot, or none.
    fn here(&self, offset: Option<u64>) -> (RegisteredFd, u64) {
        let fd = self.file.on_loop();
        let file = if self.home.is(&Local::current()) {
            self.fd.clone()
        } else {
            RegisteredFd::new(fd, None)
        };
        match offset {
            Some(offset) => (file, offset),
            None => (file.waited_for(), CURRENT_POSITION),
        }
    }
}

/// In place of a buffer that went down with its driver.
fn nothing() -> RegisteredBuf {
    RegisteredBuf::unregistered(0)
}
