//! The entries of a directory.
//!
//! Owns: [`ReadDir`], [`DirEntry`]. Called by: Rust programs. Never does: read on the loop's thread; the ring
//! has no operation for getdents64(2), so a pool thread reads some entries at a time.

use super::beside::beside;
use super::{FileType, Metadata, symlink_metadata};
use crate::executor::{Blocking, spawn_blocking};
use crate::limits;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// List a directory.
///
/// Errors: those of opendir(3).
/// Source: `std::fs::read_dir`; getdents64(2), on a pool thread.
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
    Ok(ReadDir {
        found: VecDeque::new(),
        source: Source::Open(directory),
    })
}

/// The entries of a directory in the file system's order, without `.` and `..`.
///
/// Bounded: [`limits::DIRECTORY_ENTRIES`] wait here at most.
#[derive(Debug)]
#[must_use = "nothing is read until the next entry is asked for"]
pub struct ReadDir {
    found: VecDeque<io::Result<DirEntry>>,
    source: Source,
}

type Batch = (VecDeque<io::Result<DirEntry>>, Option<std::fs::ReadDir>);

#[derive(Debug)]
enum Source {
    Open(std::fs::ReadDir),
    /// With a pool thread.
    Reading(Blocking<Batch>),
    /// At its end.
    Over,
}

impl ReadDir {
    /// Take the next entry; `None` at the end.
    ///
    /// Errors: those of getdents64(2); the next call goes on.
    /// Cancel safety: safe; what was read meanwhile is the next call's.
    pub async fn next(&mut self) -> Option<io::Result<DirEntry>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`ReadDir::next`] as a poll function, for streams of one's own.
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

/// Some entries, and the directory where it has more.
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

/// One name in a directory.
#[derive(Debug)]
pub struct DirEntry {
    entry: std::fs::DirEntry,
    /// As the directory tells it; some file systems keep it with the file alone.
    file_type: io::Result<FileType>,
}

impl DirEntry {
    /// On a pool thread: where the directory does not tell the type, the file is asked.
    fn new(entry: std::fs::DirEntry) -> Self {
        let file_type = entry.file_type().map(FileType::from);
        Self { entry, file_type }
    }

    /// The name alone.
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// The name behind that of the directory, as [`read_dir`] was given it.
    pub fn path(&self) -> PathBuf {
        self.entry.path()
    }

    /// What kind of file it was when the directory was read; a symbolic link is not followed. No system call.
    ///
    /// Errors: those of lstat(2), where the directory does not tell.
    pub fn file_type(&self) -> io::Result<FileType> {
        match &self.file_type {
            Ok(file_type) => Ok(*file_type),
            Err(error) => Err(match error.raw_os_error() {
                Some(errno) => io::Error::from_raw_os_error(errno),
                None => error.kind().into(),
            }),
        }
    }

    /// The file's number on its file system.
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }

    /// Look at it; a symbolic link is not followed.
    ///
    /// Errors and source: as [`symlink_metadata`].
    pub async fn metadata(&self) -> io::Result<Metadata> {
        symlink_metadata(self.path()).await
    }
}
