//! Files by their names: open, look at, rename, remove, create.
//!
//! Owns: nothing. Called by: the readiness form of the operations on paths, on a pool thread. Each
//! of these may wait for a disk or a server.
//!
//! Paths are relative to a directory's descriptor, or to the working directory with [`HERE`].
//!
//! # Invariants
//! - **N1** A name handed to the kernel is a live `CStr`, for the call.
//! - **N2** A non-negative return of `openat` is a fresh descriptor that nothing else owns.
//! - **N3** All-zero bytes are a valid `statx`: it holds only integers.

use super::check;
use super::platform;
use crate::sys::fd::{FromRawFd, OwnedFd, RawFd};
use crate::sys::libc;
use std::ffi::CStr;
use std::io;

/// Instead of a directory's descriptor: the working directory (`AT_FDCWD`).
pub const HERE: RawFd = libc::AT_FDCWD;

/// What statx(2) is asked for: the fields of stat(2), and the time of birth.
pub const METADATA_MASK: u32 = platform::STATX_BASIC_STATS | platform::STATX_BTIME;

/// Opens a file; `mode` is for a new one. See openat(2).
pub fn open(dir: RawFd, path: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: N1.
    let fd = check(unsafe { libc::openat(dir, path.as_ptr(), flags, mode) })?;
    // SAFETY: N2.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens an existing file, if that needs no disk and no server. See openat2(2), `RESOLVE_CACHED`.
///
/// # Errors
/// `EAGAIN` if it might wait, `ENOSYS` before Linux 5.6, `EINVAL` before 5.12; those of openat2(2).
pub fn open_cached(dir: RawFd, path: &CStr, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: N1.
    let fd = check(unsafe { platform::openat_cached(dir, path.as_ptr(), flags) })?;
    // SAFETY: N2.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// An empty buffer for [`metadata`].
pub fn empty_metadata() -> platform::statx {
    // SAFETY: N3.
    unsafe { std::mem::zeroed() }
}

/// Reads a file's metadata; an empty path and `AT_EMPTY_PATH` mean `dir` itself. See statx(2).
pub fn metadata(dir: RawFd, path: &CStr, flags: i32, into: &mut platform::statx) -> io::Result<()> {
    // SAFETY: N1; the structure is live for the call.
    check(unsafe { platform::statx(dir, path.as_ptr(), flags, METADATA_MASK, into) })?;
    Ok(())
}

/// Reads an open file's metadata as far as the kernel has it, without asking a server.
///
/// # Errors
/// Those of statx(2).
pub fn known_metadata(fd: RawFd) -> io::Result<platform::statx> {
    let mut found = empty_metadata();
    let flags = platform::AT_EMPTY_PATH | platform::AT_STATX_DONT_SYNC;
    metadata(fd, c"", flags, &mut found)?;
    Ok(found)
}

/// Renames a file; `flags` are `RENAME_*`. See renameat2(2).
pub fn rename(from: (RawFd, &CStr), to: (RawFd, &CStr), flags: u32) -> io::Result<()> {
    let (from_at, to_at) = (from.1.as_ptr(), to.1.as_ptr());
    // SAFETY: N1.
    check(unsafe { platform::renameat2(from.0, from_at, to.0, to_at, flags) })?;
    Ok(())
}

/// Removes a name, or with `AT_REMOVEDIR` an empty directory. See unlinkat(2).
pub fn unlink(dir: RawFd, path: &CStr, flags: i32) -> io::Result<()> {
    // SAFETY: N1.
    check(unsafe { libc::unlinkat(dir, path.as_ptr(), flags) })?;
    Ok(())
}

/// Creates a directory. See mkdirat(2).
pub fn make_dir(dir: RawFd, path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: N1.
    check(unsafe { libc::mkdirat(dir, path.as_ptr(), mode as libc::mode_t) })?;
    Ok(())
}

/// Creates a symbolic link to `target`. See symlinkat(2).
pub fn symlink(target: &CStr, dir: RawFd, path: &CStr) -> io::Result<()> {
    // SAFETY: N1.
    check(unsafe { libc::symlinkat(target.as_ptr(), dir, path.as_ptr()) })?;
    Ok(())
}

/// Creates a hard link. See linkat(2).
pub fn hard_link(from: (RawFd, &CStr), to: (RawFd, &CStr), flags: i32) -> io::Result<()> {
    let (from_at, to_at) = (from.1.as_ptr(), to.1.as_ptr());
    // SAFETY: N1.
    check(unsafe { libc::linkat(from.0, from_at, to.0, to_at, flags) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fd::AsRawFd;
    use std::ffi::CString;

    fn name(text: &str) -> CString {
        CString::new(text).unwrap()
    }

    /// A directory that is removed with its contents.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(test: &str) -> (Self, OwnedFd) {
            let path = std::env::temp_dir().join(format!("ringloop-{}-{test}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            let dir = std::fs::File::open(&path).unwrap();
            (Self(path), dir.into())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn n1_names_are_relative_to_the_directory_given() {
        let (scratch, dir) = Scratch::new("n1");
        let dir = dir.as_raw_fd();
        make_dir(dir, &name("inner"), 0o700).unwrap();
        let create = libc::O_CREAT | libc::O_WRONLY;
        open(dir, &name("inner/file"), create, 0o600).unwrap();
        symlink(&name("inner/file"), dir, &name("soft")).unwrap();
        hard_link((dir, &name("soft")), (dir, &name("hard")), 0).unwrap();
        rename((dir, &name("hard")), (dir, &name("moved")), 0).unwrap();
        assert!(scratch.0.join("moved").is_symlink());
        let taken = rename((dir, &name("moved")), (dir, &name("soft")), libc::RENAME_NOREPLACE);
        assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EEXIST));
        unlink(dir, &name("inner/file"), 0).unwrap();
        unlink(dir, &name("inner"), libc::AT_REMOVEDIR).unwrap();
        assert!(!scratch.0.join("inner").exists());
    }

    #[test]
    fn n2_an_opened_file_is_owned_and_closed_on_exec_where_asked() {
        let (_scratch, dir) = Scratch::new("n2");
        let flags = libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC;
        let file = open(dir.as_raw_fd(), &name("file"), flags, 0o600).unwrap();
        // SAFETY: no pointer is passed.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) };
        assert!(flags & libc::FD_CLOEXEC != 0);
        let missing = open(dir.as_raw_fd(), &name("none"), libc::O_RDONLY, 0);
        assert_eq!(missing.unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn n3_empty_metadata_is_filled_by_the_kernel() {
        let mut found = empty_metadata();
        assert_eq!((found.stx_mask, found.stx_mode), (0, 0));
        metadata(HERE, &name("/proc/self/exe"), 0, &mut found).unwrap();
        assert!(found.stx_size > 0 && u32::from(found.stx_mode) & libc::S_IFREG != 0);
    }
}
