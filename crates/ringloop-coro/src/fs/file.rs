//! A file with std's position.
//!
//! Owns: [`File`], [`OpenOptions`]. Called by: coroutines.
//!
//! Byte path: from the kernel to the operation's own buffer and from there to the caller's slice,
//! and back.

use crate::limits;
use crate::shared_fd::SharedFd;
use crate::wait::block_on;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::Op;
use ringloop::embed::op::{self, Fsync, Truncate};
use ringloop::embed::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use ringloop::embed::sys::file::has_positions;
use ringloop::embed::sys::libc;
use ringloop::embed::sys::storage::CURRENT_POSITION;
use ringloop::fs::Metadata;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// An open file; `&File` reads, writes and seeks too. Clones share the position.
#[derive(Debug)]
pub struct File {
    file: Arc<SharedFd<std::fs::File>>,
}

/// How to open a file, with the options of `std::fs::OpenOptions`.
#[derive(Debug, Clone)]
pub struct OpenOptions(ringloop::fs::OpenOptions);

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        impl OpenOptions {
            /// No option is set.
            pub fn new() -> Self {
                Self(ringloop::fs::OpenOptions::new())
            }

            $($(#[$doc])*
            pub fn $name(&mut self, $name: $type) -> &mut Self {
                self.0.$name($name);
                self
            })*

            /// Opens the file.
            ///
            /// # Errors
            /// Those of open(2), and `InvalidInput` for options that contradict each other.
            pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
                let file = block_on(self.0.open(path))?;
                Ok(std::fs::File::from(OwnedFd::from(file)).into())
            }
        }
    };
}

options! {
    /// Allows reads.
    read: bool,
    /// Allows writes.
    write: bool,
    /// Appends each write.
    append: bool,
    /// Truncates the file.
    truncate: bool,
    /// Creates the file if it does not exist.
    create: bool,
    /// Creates the file; fails if it exists.
    create_new: bool,
    /// Permissions of a new file, before the umask.
    mode: u32,
    /// More flags of open(2).
    custom_flags: i32,
}

impl File {
    /// Opens a file for reading.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path)
    }

    /// Creates a file for writing, or truncates it.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file for reading and writing; fails if it exists.
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(path)
    }

    /// The options for opening a file.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Another handle of the same descriptor; never fails.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: Arc::clone(&self.file) })
    }

    /// Reads some bytes at `offset`; the position stays.
    ///
    /// # Errors
    /// Those of pread(2), among them `ESPIPE` for a pipe, socket or terminal.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_from(self.checked(offset)?, into)
    }

    /// Checks an offset: not the one that stands for the position, nor any in a pipe.
    fn checked(&self, offset: u64) -> io::Result<u64> {
        if offset == CURRENT_POSITION {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if has_positions(self.as_raw_fd())? {
            Ok(offset)
        } else {
            Err(io::Error::from_raw_os_error(libc::ESPIPE))
        }
    }

    fn read_from(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(limits::FILE_BYTES_MAX);
        // A cancelled coroutine does not wait for the disk: the operation owns its buffer.
        let read = op::Read {
            fd: self.file.on_loop(),
            buf: RecvBuf::append(Vec::with_capacity(len), len),
            offset: Some(offset),
        };
        let (result, buf) = block_on(Op::new(read));
        let count = result?;
        into[..count].copy_from_slice(&buf.into_vec()[..count]);
        Ok(count)
    }

    /// Writes some bytes at `offset`; the position stays.
    ///
    /// # Errors
    /// Those of pwrite(2), among them `ESPIPE` for a pipe, socket or terminal.
    pub fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.write_to(self.checked(offset)?, from)
    }

    fn write_to(&self, offset: u64, from: &[u8]) -> io::Result<usize> {
        let len = from.len().min(limits::FILE_BYTES_MAX);
        let write = op::Write {
            fd: self.file.on_loop(),
            buf: SendBuf::from(from[..len].to_vec()),
            offset: Some(offset),
        };
        block_on(Op::new(write)).0
    }

    /// Writes data and metadata to the disk.
    pub fn sync_all(&self) -> io::Result<()> {
        self.sync(false)
    }

    /// Writes data to the disk, with the metadata needed to read it back.
    pub fn sync_data(&self) -> io::Result<()> {
        self.sync(true)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        let fd = self.file.on_loop();
        block_on(Op::new(Fsync { fd, data_only }))
    }

    /// Truncates the file, or extends it with zeros, to `len` bytes.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let fd = self.file.on_loop();
        block_on(Op::new(Truncate { fd, len }))
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let own = ringloop::fs::File::from(self.as_fd().try_clone_to_owned()?);
        block_on(own.metadata())
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        Self { file: Arc::new(SharedFd::new(file)) }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self.file).as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        (**self.file).as_raw_fd()
    }
}

macro_rules! io {
    ($($type:ty),*) => {$(
        impl Read for $type {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.read_from(CURRENT_POSITION, into)
            }
        }

        impl Write for $type {
            fn write(&mut self, from: &[u8]) -> io::Result<usize> {
                self.write_to(CURRENT_POSITION, from)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Seek for $type {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                // The kernel only sets a number: it does not block.
                let mut file: &std::fs::File = &self.file;
                file.seek(to)
            }
        }
    )*};
}

io!(File, &File);
