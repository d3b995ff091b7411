//! Registered files and buffers, whose operations cost the kernel less.
//!
//! They save each operation the look-up of the file and of the buffer's pages: worth it for many small
//! operations and for `O_DIRECT`. A copy out of the page cache costs far more than either.

use super::File;
use super::file::after;
use super::transfers::transfers;
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

    /// Writes a copy on a pool thread.
    async fn write_beside<T: Send + 'static>(
        &self,
        buf: RegisteredBuf,
        write: fn(&mut std::fs::File, &[u8]) -> io::Result<T>,
    ) -> (io::Result<T>, RegisteredBuf) {
        (self.file.write_beside(buf.to_vec(), write).await.0, buf)
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

transfers!(RegisteredFile, RegisteredBuf);

/// Replaces a buffer that was dropped with its driver.
fn nothing() -> RegisteredBuf {
    RegisteredBuf::unregistered(0)
}
