//! Reading and writing whole files.

use super::File;
use crate::buf::RecvBuf;
use std::io;
use std::path::Path;

/// Buffer size that copies a large file fastest: it fits a core's second-level cache, and the cost of
/// an operation is small beside the copy.
pub const CHUNK: usize = 256 * 1024;

/// Initial buffer for files that report size 0 (procfs). Files of /proc/sys must be read by one call.
const UNTOLD_LEN: usize = 16 * 1024;

/// Reads a whole file, or a named pipe until its writers have closed it.
///
/// One allocation of the file's length.
///
/// # Errors
/// Those of open(2) and read(2).
///
/// # Cancel safety
/// The bytes are lost.
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = File::open(path).await?;
    let len = usize::try_from(file.metadata().await?.len()).unwrap_or(0);
    // A file that reports no length may have no offsets either.
    let position = if len == 0 { file.position()? } else { None };
    let room = match len {
        0 => UNTOLD_LEN,
        // One byte more: the read of the last byte also sees the end.
        len => len.saturating_add(1),
    };
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(room).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    loop {
        if bytes.len() == bytes.capacity() {
            // It has grown, or is longer than reported.
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

/// Reads a whole file as text.
///
/// # Errors
/// As [`read`], and [`io::ErrorKind::InvalidData`] where it is not UTF-8.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = read(path).await?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Writes a whole file, created or truncated first, or all of `bytes` to a named pipe.
///
/// # Errors
/// Those of open(2) and write(2); some of it may be written.
///
/// # Cancel safety
/// Some of the bytes may be written.
pub async fn write(path: impl AsRef<Path>, bytes: Vec<u8>) -> io::Result<()> {
    let file = File::create(path).await?;
    file.write_all(bytes).await.0
}
