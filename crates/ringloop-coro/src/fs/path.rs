//! Files by their names: the engine's futures, waited for.

use crate::block_on;
use ringloop::fs::{self, Metadata};
use std::io;
use std::path::Path;

/// Read a file whole.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    block_on(fs::read(path))
}

/// Read a file whole, as text.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    block_on(fs::read_to_string(path))
}

/// Make a file of these bytes; one that exists is replaced.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    block_on(fs::write(path, bytes.as_ref().to_vec()))
}

/// Copy a file's contents; returns how many bytes.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    block_on(fs::copy(from, to))
}

/// Look at a file; a symbolic link is followed.
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    block_on(fs::metadata(path))
}

/// Look at a file; a symbolic link is looked at itself.
pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    block_on(fs::symlink_metadata(path))
}

/// Give a file another name; one of that name is replaced.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    block_on(fs::rename(from, to))
}

/// Remove a file.
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    block_on(fs::remove_file(path))
}

/// Remove an empty directory.
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    block_on(fs::remove_dir(path))
}

/// Make a directory.
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    block_on(fs::create_dir(path))
}

/// Make a directory and those above it that are missing.
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    block_on(fs::create_dir_all(path))
}

/// Make a symbolic link at `link` to `target`.
pub fn symlink(target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    block_on(fs::symlink(target, link))
}

/// Give a file a second name.
pub fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    block_on(fs::hard_link(original, link))
}
