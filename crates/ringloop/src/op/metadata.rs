//! Read a file's metadata: statx(2), the ring's `STATX` (5.6).
//!
//! Readiness form: on a pool thread.

use super::operation::{Completable, Ended, NO_FD, Need, Operation};
use crate::sys::fd::RawFd;
use crate::sys::path;
use crate::sys::platform;
use crate::sys::uring::abi::{self, Sqe};
use std::ffi::CString;
use std::io;

/// The metadata is in the request that comes back.
#[derive(Debug)]
pub struct Statx {
    dir: RawFd,
    flags: i32,
    parts: Box<Parts>,
}

struct Parts {
    path: CString,
    found: platform::statx,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = f.debug_struct("Parts");
        parts.field("path", &self.path).finish_non_exhaustive()
    }
}

impl Statx {
    /// Reads the metadata of `path`, relative to `dir` or to [`path::HERE`]; `flags` are `AT_*`. An
    /// empty path with `AT_EMPTY_PATH` is `dir` itself.
    pub fn new(dir: RawFd, path: CString, flags: i32) -> Self {
        let found = path::empty_metadata();
        let parts = Box::new(Parts { path, found });
        Self { dir, flags, parts }
    }

    /// The metadata; all zero before completion.
    pub fn found(&self) -> &platform::statx {
        &self.parts.found
    }
}

impl Operation for Statx {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_STATX;
        sqe.fd = self.dir;
        sqe.addr = self.parts.path.as_ptr() as u64;
        sqe.len = path::METADATA_MASK;
        sqe.off = (&raw mut self.parts.found) as u64;
        sqe.op_flags = self.flags as u32;
    }

    fn need(&self) -> Need {
        Need::Pool([self.dir, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        let Parts { path, found } = &mut *self.parts;
        path::metadata(self.dir, path, self.flags, found).map(|()| 0)
    }
}

impl Completable for Statx {
    type Output = io::Result<Box<platform::statx>>;

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.result?;
        match ended.request {
            Some(statx) => Ok(Box::new(statx.parts.found)),
            _ => Err(io::ErrorKind::Other.into()),
        }
    }
}
