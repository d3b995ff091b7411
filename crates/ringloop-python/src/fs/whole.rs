//! Whole files: open, read or write, and close by one method.

use ringloop::embed::sys::fd::{AsRawFd, IntoRawFd as _, OwnedFd, RawFd};
use ringloop::embed::sys::libc;
use ringloop::embed::sys::platform;
use std::io;

use pyo3::prelude::*;
use ringloop::buf::SendBuf;
use ringloop::embed::op::Close;
use ringloop::embed::sys::{file, path};
use ringloop::embed::{Local, Op, open_file};

use super::begin::{Loop, begin, cached, done, name};
use super::data::{fill, write_all, write_and_sync};
use crate::error;
use crate::ffi::{self, Argument, Obj, Room};
use crate::limits;

/// Closes the descriptor on drop, once no operation names it.
struct Opened(Option<OwnedFd>);

impl Opened {
    fn fd(&self) -> RawFd {
        self.0.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Closes it, and says what became of delayed writes.
    async fn close(mut self) -> io::Result<()> {
        let Some(fd) = self.0.take() else { return Ok(()) };
        Local::current().release(fd.as_raw_fd());
        Op::new(Close { fd: fd.into_raw_fd() }).await
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let Some(fd) = self.0.take() else { return };
        match Local::try_current() {
            Some(local) => local.close(fd),
            None => drop(fd),
        }
    }
}

/// The position of a file by what reads and writes it: its start, or its own.
fn position_of(fd: RawFd) -> io::Result<i64> {
    Ok(match file::kind(fd)? {
        file::FileKind::Other if file::has_positions(fd)? => 0,
        file::FileKind::Other => -1,
        _ => -2,
    })
}

/// `_fs_read_file(path)`.
pub fn read(loop_: Loop<'_, '_>, path: Argument<'_, '_>) -> PyResult<Obj> {
    let path = name(path)?;
    let operation = async move {
        let told = |error: io::Error| error::from_io(&error);
        let opened = Opened(Some(open_file(path, libc::O_RDONLY, 0).await.map_err(told)?));
        let found = path::known_metadata(opened.fd()).map_err(told)?;
        let is_regular = u32::from(found.stx_mode) & platform::S_IFMT == platform::S_IFREG;
        let len = if is_regular { usize::try_from(found.stx_size).unwrap_or(0) } else { 0 };
        let position = if len > 0 { 0 } else { position_of(opened.fd()).map_err(told)? };
        // One byte more: the read of the last byte also finds the end.
        let first = if len > 0 { len.saturating_add(1) } else { limits::UNTOLD_FILE_BYTES };
        let mut room = Python::attach(|py| Room::new(py, first))?;
        loop {
            let before = room.len();
            let at = if position < 0 { position } else { before as i64 };
            fill(opened.fd(), &mut room, at).await.map_err(told)?;
            if room.len() == before || (position >= 0 && room.left() > 0) {
                break;
            }
            if room.left() == 0 {
                let more = room.len().max(limits::UNTOLD_FILE_BYTES);
                Python::attach(|py| room.grow(py, more))?;
            }
        }
        // Nothing was written through it, so closing has nothing to report.
        drop(opened);
        Python::attach(|py| room.finish(py))
    };
    begin(loop_, cached(loop_, operation))
}

/// `_fs_write_file(path, data, flags, mode, sync)`.
pub fn write(
    loop_: Loop<'_, '_>,
    path: Argument<'_, '_>,
    data: Argument<'_, '_>,
    flags: Argument<'_, '_>,
    mode: Argument<'_, '_>,
    sync: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (path, buf, sync) = (name(path)?, ffi::take_over_anywhere(data)?, sync.is_truthy()?);
    let (flags, mode) = (flags.extract()?, mode.extract()?);
    begin(loop_, async move {
        let opened = Opened(Some(match open_file(path, flags, mode).await {
            Ok(fd) => fd,
            Err(error) => return done(Err(error)),
        }));
        let written = put(opened.fd(), buf, flags, sync).await;
        let closed = opened.close().await;
        done(written.and(closed))
    })
}

async fn put(fd: RawFd, buf: SendBuf, flags: i32, sync: bool) -> io::Result<()> {
    let own = position_of(fd)?;
    // Appending, the file's end is the kernel's to find.
    let position = if own == 0 && flags & libc::O_APPEND != 0 { -1 } else { own };
    if sync && position != -2 {
        return write_and_sync(fd, buf, position, false).await;
    }
    write_all(fd, buf, position).await
}
