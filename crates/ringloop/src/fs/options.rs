//! How to open a file, with the names of `std::fs::OpenOptions`.

use super::{File, name};
use crate::executor::{Local, Op};
use crate::op::Open;
use crate::sys::fd::{AsRawFd, OwnedFd};
use crate::sys::libc;
use crate::sys::path::{self, HERE};
use crate::sys::platform;
use std::ffi::CString;
use std::io;
use std::path::Path;

/// Flags with which a file cannot be opened from the cache alone.
const CHANGES: i32 = libc::O_CREAT | libc::O_TRUNC | (platform::O_TMPFILE & !libc::O_DIRECTORY);

/// Opens a file, close-on-exec: at once where that needs no disk, else by an operation.
///
/// `flags` and `mode` are those of open(2), relative paths are of the working directory.
///
/// # Errors
/// Those of open(2).
///
/// # Cancel safety
/// A file opened by then is closed; a created one exists.
pub async fn open_file(path: CString, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_CLOEXEC;
    // Looked at first: opening a FIFO waits for its other end, and opening a device may do anything.
    if flags & CHANGES == 0
        && Local::spend_budget()
        && let Ok(seen) = path::open_cached(HERE, &path, platform::O_PATH | libc::O_CLOEXEC)
        && is_plain(&seen)
        && let Ok(fd) = path::open_cached(HERE, &path, flags)
    {
        return Ok(fd);
    }
    Op::new(Open { dir: HERE, path, flags, mode }).await
}

/// Whether it is a regular file or a directory.
fn is_plain(fd: &OwnedFd) -> bool {
    path::known_metadata(fd.as_raw_fd()).is_ok_and(|found| {
        matches!(
            u32::from(found.stx_mode) & platform::S_IFMT,
            platform::S_IFREG | platform::S_IFDIR
        )
    })
}

/// How to open a file.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// let log = ringloop::fs::OpenOptions::new().append(true).create(true).open("log").await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
// The options are std's, and independent of one another.
#[allow(clippy::struct_excessive_bools)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
    custom_flags: i32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// No option is set; an access mode is required.
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            custom_flags: 0,
        }
    }

    /// Opens for reading.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// Opens for writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Appends each write.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// Truncates the file; needs write access.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Creates the file if it does not exist; needs write or append access.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Creates the file; fails if it exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Permissions of a new file, before the umask; 0o666 by default.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// More flags of open(2), such as `O_DIRECT` or `O_TMPFILE`, without the access mode.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.custom_flags = flags;
        self
    }

    /// Opens a file, close-on-exec. See openat(2); the ring's `OPENAT`, Linux 5.6.
    ///
    /// Opening a FIFO waits for its other end, and occupies a thread meanwhile: on epoll one of the
    /// loop's [`crate::limits::BLOCKING_THREADS`], on the ring one of the kernel's four per CPU. While
    /// all are occupied, other file operations wait. With `O_NONBLOCK`
    /// ([`OpenOptions::custom_flags`]) it does not wait.
    ///
    /// # Errors
    /// Those of open(2); `EINVAL` for options that make no sense together.
    ///
    /// # Cancel safety
    /// A file opened by then is closed; a created one exists.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let fd = open_file(name(path.as_ref())?, self.flags()?, self.mode).await?;
        Ok(File::from(fd))
    }

    fn flags(&self) -> io::Result<i32> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => libc::O_RDONLY,
            (false, true, false) => libc::O_WRONLY,
            (true, true, false) => libc::O_RDWR,
            (false, _, true) => libc::O_WRONLY | libc::O_APPEND,
            (true, _, true) => libc::O_RDWR | libc::O_APPEND,
            (false, false, false) => return Err(invalid()),
        };
        let writes = self.write || self.append;
        let changes = self.truncate || self.create || self.create_new;
        if (changes && !writes) || (self.truncate && self.append && !self.create_new) {
            return Err(invalid());
        }
        let creation = match (self.create, self.truncate, self.create_new) {
            (false, false, false) => 0,
            (true, false, false) => libc::O_CREAT,
            (false, true, false) => libc::O_TRUNC,
            (true, true, false) => libc::O_CREAT | libc::O_TRUNC,
            (_, _, true) => libc::O_CREAT | libc::O_EXCL,
        };
        let custom = self.custom_flags & !libc::O_ACCMODE;
        Ok(access | creation | custom)
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// Errors and cancel safety as [`OpenOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for writing; creates or truncates it.
    ///
    /// Errors and cancel safety as [`OpenOptions::open`].
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.open(path).await
    }
}
