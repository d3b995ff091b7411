//! Files by path, with the names of `std::fs`.

use super::{Metadata, name};
use crate::executor::Op;
use crate::op::{HardLink, MakeDir, Rename, Statx, Symlink, Unlink};
use crate::sys::libc;
use crate::sys::path::HERE;
use std::io;
use std::path::Path;

/// Queries the metadata of a file; follows symbolic links. See statx(2); the ring's `STATX`, Linux
/// 5.6.
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let statx = Statx::new(HERE, name(path.as_ref())?, 0);
    Op::new(statx).await.map(Metadata::from)
}

/// Queries the metadata of a path; does not follow a symbolic link.
///
/// Errors as [`metadata`].
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let statx = Statx::new(HERE, name(path.as_ref())?, libc::AT_SYMLINK_NOFOLLOW);
    Op::new(statx).await.map(Metadata::from)
}

/// Whether the file exists; follows symbolic links.
///
/// # Errors
/// Those of stat(2) but [`io::ErrorKind::NotFound`], such as a directory that may not be searched.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    match metadata(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Renames a file or a directory; a file of the new name is replaced. See renameat2(2); the ring's
/// `RENAMEAT`, Linux 5.11.
///
/// # Cancel safety
/// It may have happened or not.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let rename =
        Rename { from: (HERE, name(from.as_ref())?), to: (HERE, name(to.as_ref())?), flags: 0 };
    Op::new(rename).await
}

/// Removes a file. See unlinkat(2); the ring's `UNLINKAT`, Linux 5.11.
///
/// # Cancel safety
/// It may have happened or not.
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    unlink(path.as_ref(), 0).await
}

/// Removes an empty directory.
///
/// # Errors
/// Those of rmdir(2). Cancel safety and source: as [`remove_file`].
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    unlink(path.as_ref(), libc::AT_REMOVEDIR).await
}

async fn unlink(path: &Path, flags: i32) -> io::Result<()> {
    let unlink = Unlink { dir: HERE, path: name(path)?, flags };
    Op::new(unlink).await
}

/// Creates a directory. See mkdirat(2); the ring's `MKDIRAT`, Linux 5.15.
///
/// # Cancel safety
/// It may have happened or not.
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let make_dir = MakeDir { dir: HERE, path: name(path.as_ref())?, mode: 0o777 };
    Op::new(make_dir).await
}

/// Creates a directory and its missing parents; an existing one is no error.
///
/// # Errors
/// Those of mkdir(2).
///
/// # Cancel safety
/// Some of them may exist.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    // From the innermost existing one: usually only the last is missing.
    let mut missing = Vec::new();
    for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        match create_dir(dir).await {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(dir),
            Err(error) => {
                if is_dir(dir).await {
                    break;
                }
                return Err(error);
            }
        }
    }
    for dir in missing.into_iter().rev() {
        match create_dir(dir).await {
            // Created by another process meanwhile.
            Err(_) if is_dir(dir).await => {}
            done => done?,
        }
    }
    Ok(())
}

async fn is_dir(path: &Path) -> bool {
    metadata(path).await.is_ok_and(|found| found.is_dir())
}

/// Creates a symbolic link at `link` to `target`. See symlinkat(2); the ring's `SYMLINKAT`, Linux
/// 5.15.
///
/// # Cancel safety
/// It may have happened or not.
pub async fn symlink(target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let symlink = Symlink { target: name(target.as_ref())?, dir: HERE, path: name(link.as_ref())? };
    Op::new(symlink).await
}

/// Creates the hard link `link` to `original`. See linkat(2); the ring's `LINKAT`, Linux 5.15.
///
/// # Cancel safety
/// It may have happened or not.
pub async fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let hard_link = HardLink {
        from: (HERE, name(original.as_ref())?),
        to: (HERE, name(link.as_ref())?),
        flags: 0,
    };
    Op::new(hard_link).await
}
