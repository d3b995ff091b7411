//! Whole files: read, write.

use super::File;
use crate::buf::RecvBuf;
use std::io;
use std::path::Path;

/// The size of buffer that moves a large file fastest: it stays in a core's second-level cache, and an
/// operation's cost disappears in the copy.
pub const CHUNK: usize = 256 * 1024;

/// Room for a file that does not tell its length, before anything is known of it. One of /proc/sys must be read by one
/// call: its later bytes are not given.
const UNTOLD_LEN: usize = 16 * 1024;

/// Read a whole file, or what comes through a pipe with a name until its writers are gone.
///
/// Errors: those of open(2) and read(2).
/// Cost: one allocation of the file's length, and a copy out of the page cache.
/// Cancel safety: nothing is kept.
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = File::open(path).await?;
    let len = usize::try_from(file.metadata().await?.len()).unwrap_or(0);
    // What tells no length may have no offsets either.
    let position = if len == 0 { file.position()? } else { None };
    let room = match len {
        0 => UNTOLD_LEN,
        // One byte more: the read that fills the file sees the end as well.
        len => len.saturating_add(1),
    };
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(room)
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    loop {
        if bytes.len() == bytes.capacity() {
            // It grew meanwhile, or is longer than it told.
            bytes.reserve(CHUNK);
        }
        let offset = match len {
            0 => position,
            _ => Some(bytes.len() as u64),
        };
        let room = RecvBuf::append(bytes, usize::MAX);
        let (result, back) = file.read_buf(room, offset).await;
        bytes = back;
        match result {
            Ok(0) => return Ok(bytes),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Read a whole file of text.
///
/// Errors: as [`read`], and [`io::ErrorKind::InvalidData`] where it is not UTF-8.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = read(path).await?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Write a whole file, which is created, or cut to nothing first; or all of `bytes` to a pipe with a name.
///
/// Errors: those of open(2) and write(2); some of it may be written.
/// Cancel safety: some of it may be written.
pub async fn write(path: impl AsRef<Path>, bytes: Vec<u8>) -> io::Result<()> {
    let file = File::create(path).await?;
    file.write_all(bytes).await.0
}
