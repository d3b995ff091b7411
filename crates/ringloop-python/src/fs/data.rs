//! Read, write and synchronise.

use ringloop::embed::sys::fd::RawFd;
use ringloop::embed::sys::libc;
use std::io;

use pyo3::prelude::*;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::op::{Fsync, Read, Truncate, Write};
use ringloop::embed::sys::storage::CURRENT_POSITION;
use ringloop::embed::{Link, Op};
use ringloop::time::yield_now;

use super::begin::{Loop, begin, cached, done, given};
use crate::error;
use crate::ffi::{self, Argument, Obj, Room};
use crate::limits;

/// The position that stands for "where the descriptor is", and for that of one to be polled.
const OWN_POSITION: i64 = -1;
const POLLED: i64 = -2;

/// What the operations take for a position.
fn offset_of(position: i64) -> Option<u64> {
    match position {
        POLLED => None,
        OWN_POSITION => Some(CURRENT_POSITION),
        position => Some(position.unsigned_abs()),
    }
}

/// The position `count` bytes on.
fn after(position: i64, count: usize) -> i64 {
    if position < 0 { position } else { position.saturating_add_unsigned(count as u64) }
}

/// `_fs_read(fd, size, position)`: stops at the end of the file, and a device or pipe after one read.
pub fn read(
    loop_: Loop<'_, '_>,
    fd: Argument<'_, '_>,
    size: Argument<'_, '_>,
    position: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (fd, size, position) =
        (fd.extract::<RawFd>()?, size.extract::<usize>()?, position.extract()?);
    let mut room = Room::new(loop_.py(), size)?;
    let operation = async move {
        fill(fd, &mut room, position).await.map_err(|error| error::from_io(&error))?;
        Python::attach(|py| room.finish(py))
    };
    begin(loop_, cached(loop_, operation))
}

/// Fills a room from a file, up to its end.
pub(super) async fn fill(fd: RawFd, room: &mut Room, position: i64) -> io::Result<()> {
    let start = room.len();
    for piece in 1.. {
        if room.left() == 0 {
            break;
        }
        let loan = room.lend(limits::FILE_PIECE_BYTES);
        let offset = offset_of(after(position, room.len() - start));
        // Cached bytes are there at once; the ring would copy them on this thread too.
        let (result, loan) = Op::try_first(Read { fd, buf: loan, offset }).await;
        let count = taken(room, result, loan)?;
        if count == Some(0) || (count.is_some() && position < 0) {
            break;
        }
        if piece % limits::FILE_PIECES_PER_TURN == 0 {
            // A large file in the cache must not stop the loop.
            yield_now().await;
        }
    }
    Ok(())
}

/// Takes the memory back; `None`: a signal came first.
fn taken(room: &mut Room, result: io::Result<usize>, loan: RecvBuf) -> io::Result<Option<usize>> {
    room.take_back(loan);
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

/// `_fs_write(fd, data, position)`: stops at an error, which the next call meets if something was written.
pub fn write(
    loop_: Loop<'_, '_>,
    fd: Argument<'_, '_>,
    data: Argument<'_, '_>,
    position: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (fd, position) = (fd.extract()?, position.extract()?);
    let buf = ffi::take_over_anywhere(data)?;
    begin(loop_, async move {
        let len = buf.len();
        let (left_len, result) = write_until(fd, buf, position).await;
        given(if left_len < len { Ok(len - left_len) } else { result.map(|()| len) })
    })
}

/// Writes all of a buffer.
pub(super) async fn write_all(fd: RawFd, buf: SendBuf, position: i64) -> io::Result<()> {
    write_until(fd, buf, position).await.1
}

/// Writes a buffer up to its end or an error; the count of bytes that are left, and the error.
async fn write_until(fd: RawFd, mut buf: SendBuf, mut position: i64) -> (usize, io::Result<()>) {
    while !buf.is_empty() {
        let offset = offset_of(position);
        let (result, back) = Op::new(Write { fd, buf, offset }).await;
        buf = back;
        match result {
            Ok(0) => return (buf.len(), Err(io::Error::from_raw_os_error(libc::EIO))),
            Ok(count) => {
                buf.advance(count);
                position = after(position, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (buf.len(), Err(error)),
        }
    }
    (0, Ok(()))
}

/// `_fs_sync(fd, datasync)`.
pub fn sync(
    loop_: Loop<'_, '_>,
    fd: Argument<'_, '_>,
    datasync: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (fd, data_only) = (fd.extract()?, datasync.is_truthy()?);
    begin(loop_, async move { done(Op::new(Fsync { fd, data_only }).await) })
}

/// `_fs_write_sync(fd, data, position, datasync)`: as `_fs_write`; all was written and synchronised if the count says so.
pub fn write_sync(
    loop_: Loop<'_, '_>,
    fd: Argument<'_, '_>,
    data: Argument<'_, '_>,
    position: Argument<'_, '_>,
    datasync: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (fd, position, data_only) = (fd.extract()?, position.extract()?, datasync.is_truthy()?);
    let buf = ffi::take_over_anywhere(data)?;
    begin(loop_, async move {
        let len = buf.len();
        let (left_len, result) = write_until_synced(fd, buf, position, data_only).await;
        let is_part = (1..len).contains(&left_len);
        given(if is_part { Ok(len - left_len) } else { result.map(|()| len) })
    })
}

/// Writes and synchronises all of a buffer.
pub(super) async fn write_and_sync(
    fd: RawFd,
    buf: SendBuf,
    position: i64,
    data_only: bool,
) -> io::Result<()> {
    write_until_synced(fd, buf, position, data_only).await.1
}

/// Writes and synchronises: on the ring one link, of which the kernel runs both parts. The count of bytes that are not
/// written, and the error.
async fn write_until_synced(
    fd: RawFd,
    buf: SendBuf,
    position: i64,
    data_only: bool,
) -> (usize, io::Result<()>) {
    let offset = offset_of(position);
    let sync = Fsync { fd, data_only };
    let ((written, mut buf), synced) = Link::new(Write { fd, buf, offset }).then(sync).await;
    let written = match written {
        Ok(count) if count == buf.len() => return (0, synced),
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        Err(error) => return (buf.len(), Err(error)),
    };
    // A short write has ended the link.
    buf.advance(written);
    match write_until(fd, buf, after(position, written)).await {
        (0, Ok(())) => (0, Op::new(Fsync { fd, data_only }).await),
        left => left,
    }
}

/// `_fs_truncate(fd, size)`.
pub fn truncate(
    loop_: Loop<'_, '_>,
    fd: Argument<'_, '_>,
    size: Argument<'_, '_>,
) -> PyResult<Obj> {
    let (fd, len) = (fd.extract()?, size.extract()?);
    begin(loop_, async move { done(Op::new(Truncate { fd, len }).await) })
}
