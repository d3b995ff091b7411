//! Metadata of a file by statx(2), with the names of `std::fs::Metadata`.

use crate::sys::platform;
use std::fs::Permissions;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileType(u32);

impl From<std::fs::FileType> for FileType {
    fn from(found: std::fs::FileType) -> Self {
        let [is_fifo, is_socket, is_block_device, is_char_device] = platform::special_kinds(found);
        let kinds = [
            (found.is_file(), platform::S_IFREG),
            (found.is_dir(), platform::S_IFDIR),
            (found.is_symlink(), platform::S_IFLNK),
            (is_fifo, platform::S_IFIFO),
            (is_socket, platform::S_IFSOCK),
            (is_block_device, platform::S_IFBLK),
            (is_char_device, platform::S_IFCHR),
        ];
        Self(kinds.iter().find(|kind| kind.0).map_or(0, |kind| kind.1))
    }
}

impl FileType {
    /// A regular file.
    pub fn is_file(self) -> bool {
        self.0 == platform::S_IFREG
    }

    /// A directory.
    pub fn is_dir(self) -> bool {
        self.0 == platform::S_IFDIR
    }

    /// A symbolic link; seen only by [`super::symlink_metadata`].
    pub fn is_symlink(self) -> bool {
        self.0 == platform::S_IFLNK
    }

    /// A named pipe (FIFO).
    pub fn is_fifo(self) -> bool {
        self.0 == platform::S_IFIFO
    }

    /// A Unix socket.
    pub fn is_socket(self) -> bool {
        self.0 == platform::S_IFSOCK
    }

    /// A block device.
    pub fn is_block_device(self) -> bool {
        self.0 == platform::S_IFBLK
    }

    /// A character device.
    pub fn is_char_device(self) -> bool {
        self.0 == platform::S_IFCHR
    }
}

/// Metadata of a file.
#[derive(Clone)]
pub struct Metadata(Box<platform::statx>);

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metadata")
            .field("file_type", &self.file_type())
            .field("len", &self.len())
            .field("mode", &format_args!("{:o}", self.mode()))
            .finish_non_exhaustive()
    }
}

impl From<Box<platform::statx>> for Metadata {
    fn from(found: Box<platform::statx>) -> Self {
        Self(found)
    }
}

impl Metadata {
    /// Kind of the file.
    pub fn file_type(&self) -> FileType {
        FileType(u32::from(self.0.stx_mode) & platform::S_IFMT)
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// The file's length in bytes.
    pub fn len(&self) -> u64 {
        self.0.stx_size
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Kind and permissions, as in stat(2).
    pub fn mode(&self) -> u32 {
        u32::from(self.0.stx_mode)
    }

    /// Its permissions, for [`super::set_permissions`].
    pub fn permissions(&self) -> Permissions {
        platform::permissions_of(self.mode())
    }

    /// Its owner.
    pub fn uid(&self) -> u32 {
        self.0.stx_uid
    }

    /// Its group.
    pub fn gid(&self) -> u32 {
        self.0.stx_gid
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.0.stx_ino
    }

    /// Number of hard links.
    pub fn nlink(&self) -> u32 {
        self.0.stx_nlink
    }

    /// Allocated size, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.stx_blocks
    }

    /// Time of the last modification.
    pub fn modified(&self) -> SystemTime {
        time(&self.0.stx_mtime)
    }

    /// Time of the last access, as far as the mount records it.
    pub fn accessed(&self) -> SystemTime {
        time(&self.0.stx_atime)
    }

    /// Time of creation; `None` if the file system does not record it.
    pub fn created(&self) -> Option<SystemTime> {
        (self.0.stx_mask & platform::STATX_BTIME != 0).then(|| time(&self.0.stx_btime))
    }
}

/// The nanoseconds are added to the seconds, also before 1970.
fn time(stamp: &platform::statx_timestamp) -> SystemTime {
    let seconds = Duration::from_secs(stamp.tv_sec.unsigned_abs());
    let nanoseconds = Duration::from_nanos(u64::from(stamp.tv_nsec));
    if stamp.tv_sec < 0 {
        UNIX_EPOCH - seconds + nanoseconds
    } else {
        UNIX_EPOCH + seconds + nanoseconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_before_1970_counts_its_nanoseconds_forward() {
        let mut stamp = crate::sys::path::empty_metadata().stx_mtime;
        stamp.tv_sec = -2;
        stamp.tv_nsec = 500_000_000;
        let before = UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(time(&stamp), before);
    }
}
