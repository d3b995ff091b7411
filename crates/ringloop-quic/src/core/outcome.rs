//! Results of reads and writes of a stream.

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// This many bytes.
    Some(usize),
    /// Nothing now; `Event::Readable` follows.
    Blocked,
    /// This many bytes, then the end of the stream, which is reported once.
    End(usize),
}

/// Result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// This many bytes.
    Some(usize),
    /// None now; `Event::Writable` follows.
    Blocked,
}
