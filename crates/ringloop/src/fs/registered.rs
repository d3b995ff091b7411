//! Registered files and buffers, whose operations cost the kernel less.
//!
//! They save each operation the look-up of the file and of the buffer's pages: worth it for many small
//! operations and for `O_DIRECT`. A copy out of the page cache costs far more than either.

use super::File;
use super::file::after;
use crate::executor::{Local, Op, WeakLocal};
use crate::limits::BULK_READ_BYTES;
use crate::op::{ReadFixed, RegisteredBuf, RegisteredFd, WriteFixed};
use crate::sys::storage::CURRENT_POSITION;
use std::io;

impl RegisteredBuf {
    /// A buffer for `capacity` bytes, registered with the ring of the current loop if there is one, its
    /// table has room (`limits::REGISTERED_BUFFERS`) and more memory may be locked. It is aligned to a
    /// page, as `O_DIRECT` requires.
    ///
    /// At most 4 GiB less a byte. The memory is zeroed, and its pages are looked up, about 0.1 µs
    /// each. See `io_uring_register(2)`, `IORING_REGISTER_BUFFERS_UPDATE`, Linux 5.13.
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

/// A file registered with the ring.
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
    // Dropped first: the slot.
    fd: RegisteredFd,
    /// The loop whose ring has it.
    weak_local: WeakLocal,
    file: File,
}

impl RegisteredFile {
    /// Registers `file` with the ring of the current loop. Without a ring, or room in its table
    /// (`limits::REGISTERED_FILES`), it works unregistered. See `io_uring_register(2)`,
    /// `IORING_REGISTER_FILES_UPDATE2`, Linux 5.13.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[track_caller]
    pub fn new(file: File) -> Self {
        let fd = file.on_loop();
        let local = Local::current();
        let slot = local.engine().driver_mut().register_file(fd);
        Self { fd: RegisteredFd::new(fd, slot), weak_local: local.downgrade(), file }
    }

    /// Whether it is registered.
    pub fn is_registered(&self) -> bool {
        self.fd.is_registered()
    }

    /// The file, for all other calls.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reads up to the capacity of `buf`, at the file's position; 0 is the end. See read(2); the
    /// ring's `READ_FIXED`, Linux 5.1.
    ///
    /// # Cancel safety
    /// Bytes read by then are lost with the buffer, and the position has moved.
    pub async fn read(&self, buf: RegisteredBuf) -> (io::Result<usize>, RegisteredBuf) {
        match self.file.position() {
            Ok(offset) => self.read_from(buf, offset).await,
            Err(error) => (Err(error), buf),
        }
    }

    /// As [`RegisteredFile::read`], at `offset` from the file's start. The position stays.
    ///
    /// As [`File::read_at`]. See preadv2(2); the ring's `READ_FIXED`, Linux 5.1.
    ///
    /// # Cancel safety
    /// The buffer is lost.
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
        let op = if is_bulk { Op::try_first(read) } else { Op::new(read) };
        let (result, buf) = op.await;
        (result, buf.unwrap_or_else(nothing))
    }

    /// Writes some of the bytes of `buf` at the file's position, or at its end if it was opened to
    /// append; returns the count.
    ///
    /// As [`File::write`]; a copy too, where it is a terminal or another device that blocks. See
    /// write(2); the ring's `WRITE_FIXED`, Linux 5.1.
    ///
    /// # Cancel safety
    /// The bytes may be written or not.
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

    /// Writes all bytes of `buf`, as [`RegisteredFile::write`] writes some.
    ///
    /// # Errors
    /// Those of write(2); some of it may be written.
    ///
    /// # Cancel safety
    /// Some of the bytes may be written.
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

    /// Writes some of the bytes of `buf` at `offset` from the file's start; returns the count. The
    /// position stays. See pwritev2(2); the ring's `WRITE_FIXED`, Linux 5.1.
    ///
    /// # Cancel safety
    /// The bytes may be written or not.
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

    /// Writes all bytes of `buf` at `offset` from the file's start.
    ///
    /// # Errors
    /// Those of pwrite(2); some of it may be written.
    ///
    /// # Cancel safety
    /// Some of the bytes may be written.
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

    /// Its descriptor or slot on the current loop, and the offset: `None` for pollable files. The slot is
    /// valid on its own ring only.
    fn here(&self, offset: Option<u64>) -> (RegisteredFd, u64) {
        let fd = self.file.on_loop();
        let file = if Local::current().is_target_of(&self.weak_local) {
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

/// Replaces a buffer that was dropped with its driver.
fn nothing() -> RegisteredBuf {
    RegisteredBuf::unregistered(0)
}
