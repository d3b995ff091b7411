//! Open and close, metadata, and the names of files.

use ringloop::embed::sys::fd::{AsRawFd as _, IntoRawFd as _, RawFd};
use ringloop::embed::sys::platform;

use pyo3::prelude::*;
use ringloop::embed::op::{Close, HardLink, MakeDir, Rename, Statx, Symlink, Unlink};
use ringloop::embed::sys::file;
use ringloop::embed::sys::path::{self, HERE};
use ringloop::embed::{Local, Op, open_file};

use super::begin::{Loop, begin, cached, done, given, name};
use crate::error;
use crate::ffi::{Argument, IntoObject as _, Obj, new_tuple};
use crate::futures;

/// `_fs_open(path, flags, mode)`: descriptor, type and permissions, size.
pub fn open(
    loop_: Loop<'_, '_>,
    path: Argument<'_, '_>,
    flags: Argument<'_, '_>,
    mode: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (path, flags, mode) = (name(path)?, flags.extract()?, mode.extract()?);
    let opening = async move {
        let opened = open_file(path, flags, mode).await;
        given(opened.and_then(|fd| {
            let found = path::known_metadata(fd.as_raw_fd())?;
            Ok((fd.into_raw_fd(), i32::from(found.stx_mode), found.stx_size))
        }))
    };
    futures::start_owning(&loop_, cached(loop_, opening), close_lost)
        .map(futures::Started::into_either)
}

/// Closes the file of an `open` that was cancelled when it had just been opened.
fn close_lost(opened: Obj) {
    Python::attach(|py| {
        if let Ok((fd, _, _)) = opened.bind(py).extract::<(RawFd, i32, u64)>() {
            // Nothing was written through it, so no error is lost.
            drop(file::close(fd));
        }
    });
}

/// `_fs_close(fd)`.
pub fn close(loop_: Loop<'_, '_>, fd: Argument<'_, '_>) -> PyResult<Obj> {
    let fd = fd.extract()?;
    begin(loop_, async move {
        Local::current().release(fd);
        done(Op::new(Close { fd }).await)
    })
}

/// `_fs_stat(dir, path, flags)`: mode, ino, device (major, minor), nlink, uid, gid, size; the times of access,
/// modification and change as seconds and nanoseconds; block size, blocks, rdev (major, minor).
pub fn stat(
    loop_: Loop<'_, '_>,
    dir: Argument<'_, '_>,
    path: Argument<'_, '_>,
    flags: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (dir, path, flags) = (dir.extract()?, name(path)?, flags.extract()?);
    begin(loop_, async move {
        let found = Op::new(Statx::new(dir, path, flags)).await;
        let found = found.map_err(|error| error::from_io(&error))?;
        Python::attach(|py| shown(py, &found))
    })
}

fn shown(py: Python<'_>, found: &platform::statx) -> PyResult<Obj> {
    let times = [&found.stx_atime, &found.stx_mtime, &found.stx_ctime];
    let [atime, mtime, ctime] = times.map(|time| (time.tv_sec, i64::from(time.tv_nsec)));
    let unsigned = [
        u64::from(found.stx_mode),
        found.stx_ino,
        u64::from(found.stx_dev_major),
        u64::from(found.stx_dev_minor),
        u64::from(found.stx_nlink),
        u64::from(found.stx_uid),
        u64::from(found.stx_gid),
        found.stx_size,
    ];
    let sizes = [
        u64::from(found.stx_blksize),
        found.stx_blocks,
        u64::from(found.stx_rdev_major),
        u64::from(found.stx_rdev_minor),
    ];
    let mut parts = Vec::with_capacity(18);
    for number in unsigned {
        parts.push(number.into_object(py)?);
    }
    for number in [atime.0, atime.1, mtime.0, mtime.1, ctime.0, ctime.1] {
        parts.push(number.into_object(py)?);
    }
    for number in sizes {
        parts.push(number.into_object(py)?);
    }
    Ok(new_tuple(py, parts.into_iter())?.into())
}

/// `_fs_mkdir(path, mode)`.
pub fn mkdir(loop_: Loop<'_, '_>, path: Argument<'_, '_>, mode: Argument<'_, '_>) -> PyResult<Obj> {
    let (path, mode) = (name(path)?, mode.extract()?);
    begin(loop_, async move { done(Op::new(MakeDir { dir: HERE, path, mode }).await) })
}

/// `_fs_unlink(path, flags)`.
pub fn unlink(
    loop_: Loop<'_, '_>,
    path: Argument<'_, '_>,
    flags: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (path, flags) = (name(path)?, flags.extract()?);
    begin(loop_, async move { done(Op::new(Unlink { dir: HERE, path, flags }).await) })
}

/// `_fs_rename(source, destination)`.
pub fn rename(
    loop_: Loop<'_, '_>,
    source: Argument<'_, '_>,
    destination: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (from, to) = ((HERE, name(source)?), (HERE, name(destination)?));
    begin(loop_, async move { done(Op::new(Rename { from, to, flags: 0 }).await) })
}

/// `_fs_link(source, destination, flags)`.
pub fn link(
    loop_: Loop<'_, '_>,
    source: Argument<'_, '_>,
    destination: Argument<'_, '_>,
    flags: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (from, to) = ((HERE, name(source)?), (HERE, name(destination)?));
    let flags = flags.extract()?;
    begin(loop_, async move { done(Op::new(HardLink { from, to, flags }).await) })
}

/// `_fs_symlink(target, path)`.
pub fn symlink(
    loop_: Loop<'_, '_>,
    target: Argument<'_, '_>,
    path: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (target, path) = (name(target)?, name(path)?);
    begin(loop_, async move { done(Op::new(Symlink { target, dir: HERE, path }).await) })
}
