//! Files in `std::fs`'s shape, whose calls park the coroutine.
//!
//! Owns: [`File`], [`OpenOptions`] and the functions by path. Called by: coroutines. No call waits
//! for a disk on a worker's thread.
//!
//! On the ring every call is an operation. On epoll a read takes what is in the page cache at once,
//! and everything else runs on the blocking pool. Data goes through a buffer of the operation's own
//! (up to [`crate::limits::FILE_BYTES_MAX`]): a cancelled coroutine unwinds at once, and whether
//! its call has happened is not known. For directory listings and permissions,
//! [`offload`](crate::offload) std's calls.
//!
//! ```
//! use ringloop_coro::fs;
//! use std::io::{Read, Seek, SeekFrom, Write};
//!
//! ringloop_coro::start(1, || -> std::io::Result<()> {
//!     let path = std::env::temp_dir().join(format!("coro-doc-{}", std::process::id()));
//!     let mut file = fs::File::create_new(&path)?;
//!     file.write_all(b"hello")?;
//!     file.seek(SeekFrom::Start(1))?;
//!     let mut rest = String::new();
//!     file.read_to_string(&mut rest)?;
//!     assert_eq!(rest, "ello");
//!     fs::remove_file(&path)
//! })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod path;

pub use file::{File, OpenOptions};
pub use path::{
    copy, create_dir, create_dir_all, hard_link, metadata, read, read_to_string, remove_dir,
    remove_file, rename, symlink, symlink_metadata, write,
};
pub use ringloop::fs::Metadata;
