//! A copy that failed.
//!
//! Owns: [`CopyError`]. Called by: the sources that copy, `copy`.

use std::fmt;
use std::io;

/// What failed in a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Reading from the source.
    Read,
    /// Writing to the sink.
    Write,
}

/// A copy that failed: where, and after how many bytes.
///
/// Converts into its [`io::Error`], which keeps its errno.
#[derive(Debug)]
pub struct CopyError {
    /// What failed.
    pub side: Side,
    /// Of [`copy_bidirectional`](super::copy_bidirectional): whether the failed direction is that from the second stream to the
    /// first.
    pub is_backward: bool,
    /// Bytes written before, in that direction.
    pub copied: u64,
    /// The failure.
    pub error: io::Error,
}

impl CopyError {
    pub(super) fn new(side: Side, copied: u64, error: io::Error) -> Self {
        Self { side, is_backward: false, copied, error }
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (side, stream) = match (self.side, self.is_backward) {
            (Side::Read, false) => ("reading from", "first"),
            (Side::Write, false) => ("writing to", "second"),
            (Side::Read, true) => ("reading from", "second"),
            (Side::Write, true) => ("writing to", "first"),
        };
        write!(f, "{side} the {stream} stream after {} bytes: {}", self.copied, self.error)
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<CopyError> for io::Error {
    fn from(failed: CopyError) -> Self {
        failed.error
    }
}
