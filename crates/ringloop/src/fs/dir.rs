//! The entries of a directory.
//!
//! Owns: [`ReadDir`], [`DirEntry`]. Called by: applications. The ring has no operation for
//! getdents64(2): a pool thread reads some entries at a time.

use super::beside::beside;
use super::{FileType, Metadata, symlink_metadata};
use crate::executor::{Blocking, spawn_blocking};
use crate::limits;
use crate::sys::platform;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Lists a directory. See `std::fs::read_dir`; getdents64(2), on a pool thread.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// let mut entries = ringloop::fs::read_dir("/etc").await?;
/// while let Some(entry) = entries.next().await {
///     println!("{}", entry?.path().display());
/// }
/// # Ok(()) }
/// ```
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref().to_owned();
    let directory = beside(move || std::fs::read_dir(path)).await?;
    Ok(ReadDir { found: VecDeque::new(), source: Source::Open(directory) })
}

/// The entries of a directory in the file system's order, without `.` and `..`.
///
/// At most [`limits::DIRECTORY_ENTRIES`] are buffered.
#[derive(Debug)]
#[must_use = "nothing is read until next() is awaited"]
pub struct ReadDir {
    found: VecDeque<io::Result<DirEntry>>,
    source: Source,
}

type Batch = (VecDeque<io::Result<DirEntry>>, Option<std::fs::ReadDir>);

// std's is large on Windows, and moved twice a batch.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Source {
    Open(std::fs::ReadDir),
    /// A pool thread reads.
    Reading(Blocking<Batch>),
    /// The end was reached.
    Over,
}

impl ReadDir {
    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// Those of getdents64(2); the next call goes on.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call returns the entry.
    pub async fn next(&mut self) -> Option<io::Result<DirEntry>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`ReadDir::next`] as a poll function.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<DirEntry>>> {
        loop {
            if let Some(entry) = self.found.pop_front() {
                return Poll::Ready(Some(entry));
            }
            match std::mem::replace(&mut self.source, Source::Over) {
                Source::Open(directory) => {
                    self.source = Source::Reading(spawn_blocking(move || batch(directory)));
                }
                Source::Reading(mut reading) => {
                    let polled = Pin::new(&mut reading).poll(cx);
                    if polled.is_pending() {
                        self.source = Source::Reading(reading);
                    }
                    match ready!(polled) {
                        Ok((found, Some(directory))) => {
                            self.found = found;
                            self.source = Source::Open(directory);
                        }
                        Ok((found, None)) => self.found = found,
                        Err(error) => return Poll::Ready(Some(Err(error.into()))),
                    }
                }
                Source::Over => return Poll::Ready(None),
            }
        }
    }
}

/// Some entries, and the directory if it has more.
fn batch(mut directory: std::fs::ReadDir) -> Batch {
    let mut found = VecDeque::with_capacity(limits::DIRECTORY_ENTRIES);
    while found.len() < limits::DIRECTORY_ENTRIES {
        match directory.next() {
            Some(entry) => found.push_back(entry.map(DirEntry::new)),
            None => return (found, None),
        }
    }
    (found, Some(directory))
}

/// An entry of a directory.
#[derive(Debug)]
pub struct DirEntry {
    entry: std::fs::DirEntry,
    /// As the directory tells it; some file systems keep it with the file alone.
    file_type: io::Result<FileType>,
}

impl DirEntry {
    /// On a pool thread: lstat(2) if the directory does not report the type.
    fn new(entry: std::fs::DirEntry) -> Self {
        let file_type = entry.file_type().map(FileType::from);
        Self { entry, file_type }
    }

    /// The file name.
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// The path: that of the directory, as passed to [`read_dir`], and the name.
    pub fn path(&self) -> PathBuf {
        self.entry.path()
    }

    /// Kind of the file when the directory was read; does not follow a symbolic link. No system call.
    ///
    /// # Errors
    /// Those of lstat(2), if the directory does not report the type.
    pub fn file_type(&self) -> io::Result<FileType> {
        match &self.file_type {
            Ok(file_type) => Ok(*file_type),
            Err(error) => Err(match error.raw_os_error() {
                Some(errno) => io::Error::from_raw_os_error(errno),
                None => error.kind().into(),
            }),
        }
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        platform::inode_of(&self.entry)
    }

    /// Queries the metadata; does not follow a symbolic link.
    ///
    /// Errors as [`symlink_metadata`].
    pub async fn metadata(&self) -> io::Result<Metadata> {
        symlink_metadata(self.path()).await
    }
}
