//! Files in `std::fs`'s shape, whose calls park the coroutine and no thread.
//!
//! Owns: [`File`], [`OpenOptions`] and the functions by path. Called by: coroutines. Never does: wait for a disk on
//! the thread of a worker.
//!
//! On the ring every call is an operation of the kernel's; on epoll a read takes what is in memory at once, and all else
//! goes to the loop's pool threads. Data goes through a buffer of the operation's own ([`crate::limits::FILE_BYTES_MAX`]), so a
//! cancelled coroutine leaves nothing of its stack behind; whether its call has happened is not known.
//! What is not here (directories as sequences, permissions) is std's, by [`offload`](crate::offload).
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

mod buffers;
mod file;
mod path;

pub use file::{File, OpenOptions};
pub use path::{
    copy, create_dir, create_dir_all, hard_link, metadata, read, read_to_string, remove_dir,
    remove_file, rename, symlink, symlink_metadata, write,
};
pub use ringloop::fs::Metadata;
