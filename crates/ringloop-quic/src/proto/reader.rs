//! Reads the numbers and byte strings that frames and transport parameters consist of.
//!
//! Called by: `reset_at`, `concluded`, `qlog`.

/// The bytes that remain to be read.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// RFC 9000 §16.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let first = *self.0.first()?;
        let size = 1usize << (first >> 6);
        let bytes = self.take(size)?;
        let rest = bytes[1..].iter();
        Some(rest.fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)))
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.0.get(..count)?;
        self.0 = &self.0[count..];
        Some(taken)
    }

    /// A byte string behind its length.
    pub(crate) fn take_counted(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.take(usize::try_from(count).ok()?)
    }
}
