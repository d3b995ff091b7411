//! Registered files and buffers: operations that cost the kernel less, the more of them there are.
//!
//! What it saves is a look-up of the file and of the buffer's pages in each operation: it shows with many
//! small operations, and with `O_DIRECT`. A copy out of the page cache costs far more than either.

use super::File;
use super::file::place;
use crate::executor::{Home, Local, Op};
use crate::op::{ReadFixed, RegisteredBuf, RegisteredFd, WriteFixed};
use std::io;

impl RegisteredBuf {
    /// A buffer for `capacity` bytes, registered with the ring of the running loop; one that is not, where
    /// there is no ring, no room in its table ([`crate::limits::REGISTERED_BUFFERS`]) or no more memory may
    /// be locked.
    ///
    /// Cost: the memory is written once. The pages are looked up, about 0.1 µs each.
    /// Source: `io_uring_register(2)`, `IORING_REGISTER_BUFFERS_UPDATE`, Linux 5.13.
    ///
    /// # Panics
    /// Outside of a runtime.
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

    /// Read up to the capacity of `buf`, from its start, at `offset` bytes from the file's start; 0 is the
    /// end.
    ///
    /// Errors: those of pread(2).
    /// Cancel safety: the buffer is lost.
    /// Source: preadv2(2); the ring's `READ_FIXED`, Linux 5.1.
    pub async fn read_at(
        &self,
        buf: RegisteredBuf,
        offset: u64,
    ) -> (io::Result<usize>, RegisteredBuf) {
        if let Err(error) = place(offset) {
            return (Err(error), buf);
        }
        let file = self.here();
        let (result, buf) = Op::new(ReadFixed { file, buf, offset }).await;
        (result, buf.unwrap_or_else(nothing))
    }

    /// Write some of the bytes that `buf` holds, at `offset` bytes from the file's start; returns how many.
    ///
    /// Errors: those of pwrite(2).
    /// Cancel safety: it may be written or not.
    /// Source: pwritev2(2); the ring's `WRITE_FIXED`, Linux 5.1.
    pub async fn write_at(
        &self,
        buf: RegisteredBuf,
        offset: u64,
    ) -> (io::Result<usize>, RegisteredBuf) {
        if let Err(error) = place(offset) {
            return (Err(error), buf);
        }
        let file = self.here();
        let (result, buf) = Op::new(WriteFixed { file, buf, offset }).await;
        (result, buf.unwrap_or_else(nothing))
    }

    /// What names it on the running loop: another ring's table has another file in that slot, or none.
    fn here(&self) -> RegisteredFd {
        let fd = self.file.on_loop();
        if self.home.is(&Local::current()) {
            self.fd.clone()
        } else {
            RegisteredFd::new(fd, None)
        }
    }
}

/// In place of a buffer that went down with its driver.
fn nothing() -> RegisteredBuf {
    RegisteredBuf::unregistered(0)
}
