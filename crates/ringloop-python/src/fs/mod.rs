//! Operations on files for `ringloop.fs`: methods `_fs_*` of the loop.
//!
//! Owns: nothing; descriptors are Python's numbers. Called by: `ringloop.fs._ring`, in a coroutine of
//! the running loop. A method returns its result, if the operation has completed at once, or an asyncio
//! future. Errors have errno and no file name; the caller adds it. A position of -1 is the
//! file's own (devices), -2 that of a descriptor to be polled (pipes, sockets).
//!
//! Byte path: `_fs_read` → `data::read` → preadv2(2) with `RWF_NOWAIT`, or the ring's `READ`, into the `bytes` that
//! the caller gets.
//!
//! | file    | the family                                   |
//! |---------|----------------------------------------------|
//! | `begin` | what all of them do                          |
//! | `data`  | read, write, synchronise                     |
//! | `whole` | whole files                                  |
//! | `names` | open and close, metadata, the names of files |

mod begin;
mod data;
mod names;
mod whole;

use pyo3::prelude::*;

use crate::event_loop::LoopCore;
use crate::ffi::{Class, install_methods, method};

/// Puts the methods on the loop.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    type Target = Class<LoopCore>;
    let py = module.py();
    let methods = vec![
        method!(Target, _fs_open(path, flags, mode) => names::open, "Open a file; its descriptor, mode and size."),
        method!(Target, _fs_close(fd) => names::close, "Close a descriptor of _fs_open."),
        method!(Target, _fs_stat(dir_fd, path, flags) => names::stat, "statx(2) as a tuple of integers."),
        method!(Target, _fs_mkdir(path, mode) => names::mkdir, "Make a directory."),
        method!(Target, _fs_unlink(path, flags) => names::unlink, "Remove a name."),
        method!(Target, _fs_rename(source, destination) => names::rename, "Rename a file."),
        method!(Target, _fs_link(source, destination, flags) => names::link, "Make a hard link."),
        method!(Target, _fs_symlink(target, path) => names::symlink, "Make a symbolic link."),
        method!(Target, _fs_read(fd, size, position) => data::read, "Read up to `size` bytes."),
        method!(Target, _fs_write(fd, data, position) => data::write, "Write all of `data`; how many bytes."),
        method!(Target, _fs_sync(fd, datasync) => data::sync, "Wait until the file is on disk."),
        method!(Target, _fs_write_sync(fd, data, position, datasync) => data::write_sync, "Write and synchronise, as one link."),
        method!(Target, _fs_truncate(fd, size) => data::truncate, "Set a file's size."),
        method!(Target, _fs_read_file(path) => whole::read, "The bytes of a file."),
        method!(Target, _fs_write_file(path, data, flags, mode, sync) => whole::write, "Open, write, synchronise if asked, and close."),
    ];
    install_methods::<LoopCore>(&py.get_type::<LoopCore>(), methods)
}
