//! Files by path, over the engine's futures.
//!
//! Owns: the functions that [`fs`](super) exports, other than `File`. Called by: coroutines.

use crate::wait::block_on;
use ringloop::fs::{self, Metadata};
use std::io;
use std::path::Path;

macro_rules! by_path {
    ($($(#[$doc:meta])* $name:ident($($path:ident),+) -> $output:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name($($path: impl AsRef<Path>),+) -> io::Result<$output> {
            block_on(fs::$name($($path),+))
        }
    )*};
}

by_path! {
    /// Reads a whole file.
    read(path) -> Vec<u8>;
    /// Reads a whole file as text.
    read_to_string(path) -> String;
    /// Copies a file's contents; returns the number of bytes.
    copy(from, to) -> u64;
    /// The metadata of a file; follows symbolic links.
    metadata(path) -> Metadata;
    /// The metadata of a file; does not follow symbolic links.
    symlink_metadata(path) -> Metadata;
    /// Renames a file; a file of the new name is replaced.
    rename(from, to) -> ();
    /// Removes a file.
    remove_file(path) -> ();
    /// Removes an empty directory.
    remove_dir(path) -> ();
    /// Creates a directory.
    create_dir(path) -> ();
    /// Creates a directory and its missing parents.
    create_dir_all(path) -> ();
    /// Creates a symbolic link at `link` to `target`.
    symlink(target, link) -> ();
    /// Creates a hard link.
    hard_link(original, link) -> ();
}

/// Writes a file; its former contents are replaced.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    block_on(fs::write(path, bytes.as_ref().to_vec()))
}
