//! Files for their owner alone, for those above that keep secrets in files.
//!
//! Owns: nothing. Called by: QUIC's stores and key logs, which open files where a wait for the disk is theirs
//! to choose.
//!
//! On Windows a new file has the access that its directory hands on, which in a user's profile is the user's
//! alone: modes say nothing there, and [`is_open_to_all`] is never true.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};

/// Mode bit: everybody may create, remove and replace files there.
#[cfg(unix)]
const WRITTEN_BY_OTHERS: u32 = 0o002;

/// Creates a file that only its owner reads.
///
/// # Errors
/// `AlreadyExists`; those of open(2).
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    options.open(path)
}

/// Creates a directory and those above it, for its owner.
///
/// # Errors
/// Those of mkdir(2).
pub fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(0o700);
    builder.create(path)
}

/// True if everybody may write there, as to `/tmp`.
#[cfg(unix)]
pub fn is_open_to_all(found: &Metadata) -> bool {
    found.permissions().mode() & WRITTEN_BY_OTHERS != 0
}

/// False: modes do not tell.
#[cfg(windows)]
pub fn is_open_to_all(_found: &Metadata) -> bool {
    false
}

/// Opens a file to append to, creating it if necessary. A pipe without a reader is an error, and a full one
/// another at each write: nothing here blocks on one.
///
/// # Errors
/// Those of open(2).
pub fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    options.custom_flags(libc::O_NONBLOCK);
    options.open(path)
}
