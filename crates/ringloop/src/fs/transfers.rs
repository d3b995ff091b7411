//! Reads and writes of a file, plain or registered, each stated once.
//!
//! Called by: `file`, `registered`, which import what the macro names, and have the operations:
//! `read_from`, `write_to`, `write_rest`, and `write_beside` for a device that blocks.

/// Reads into and writes from a `$buf`.
macro_rules! transfers {
    ($type:ident, $buf:ty) => {
        impl $type {
            /// Reads up to the capacity of `buf`, at the file's position; 0 is the end.
            ///
            /// As `read_at` on the ring; on epoll always a pool thread's. See read(2); the ring's
            /// `READ` and `READ_FIXED`.
            ///
            /// # Cancel safety
            /// Bytes read by then are lost with the buffer, and the position has moved.
            pub async fn read(&self, buf: $buf) -> (io::Result<usize>, $buf) {
                match self.file().position() {
                    Ok(offset) => self.read_from(buf, offset).await,
                    Err(error) => (Err(error), buf),
                }
            }

            /// As [`Self::read`], at `offset` from the file's start. The position stays.
            ///
            /// Cached reads from `limits::BULK_READ_BYTES` on are made at once. On epoll a pool
            /// thread reads uncached data, and more than `limits::CACHED_READ_BYTES`. See
            /// preadv2(2).
            ///
            /// # Errors
            /// Those of pread(2), `ESPIPE` for a pipe, socket or terminal among them.
            ///
            /// # Cancel safety
            /// The buffer is lost.
            pub async fn read_at(&self, buf: $buf, offset: u64) -> (io::Result<usize>, $buf) {
                match self.file().place(offset) {
                    Ok(offset) => self.read_from(buf, Some(offset)).await,
                    Err(error) => (Err(error), buf),
                }
            }

            /// Writes some of `bytes` at the file's position, or at its end if it was opened to
            /// append; returns the count.
            ///
            /// A terminal or another blocking device takes a pool thread and a duplicate of the
            /// descriptor meanwhile. See write(2); the ring's `WRITE` and `WRITE_FIXED`.
            ///
            /// # Cancel safety
            /// The bytes may be written or not.
            pub async fn write(&self, bytes: $buf) -> (io::Result<usize>, $buf) {
                match self.file().position() {
                    Ok(None) if self.file().blocks().unwrap_or(false) => {
                        self.write_beside(bytes, io::Write::write).await
                    }
                    Ok(offset) => self.write_to(bytes, offset).await,
                    Err(error) => (Err(error), bytes),
                }
            }

            /// Writes all of `bytes`, as [`Self::write`] writes some.
            ///
            /// # Errors
            /// Those of write(2); some of it may be written.
            ///
            /// # Cancel safety
            /// Some of the bytes may be written.
            pub async fn write_all(&self, bytes: $buf) -> (io::Result<()>, $buf) {
                match self.file().position() {
                    Ok(None) if self.file().blocks().unwrap_or(false) => {
                        self.write_beside(bytes, io::Write::write_all).await
                    }
                    Ok(offset) => self.write_rest(bytes, offset).await,
                    Err(error) => (Err(error), bytes),
                }
            }

            /// Writes some of `bytes` at `offset` from the file's start; returns the count. The
            /// position stays. See pwritev2(2).
            ///
            /// # Errors
            /// Those of pwrite(2), `ESPIPE` for a pipe, socket or terminal among them.
            ///
            /// # Cancel safety
            /// The bytes may be written or not.
            pub async fn write_at(&self, bytes: $buf, offset: u64) -> (io::Result<usize>, $buf) {
                match self.file().place(offset) {
                    Ok(offset) => self.write_to(bytes, Some(offset)).await,
                    Err(error) => (Err(error), bytes),
                }
            }

            /// Writes all of `bytes` at `offset` from the file's start.
            ///
            /// # Errors
            /// Those of pwrite(2); some of it may be written.
            ///
            /// # Cancel safety
            /// Some of the bytes may be written.
            pub async fn write_all_at(&self, bytes: $buf, offset: u64) -> (io::Result<()>, $buf) {
                match self.file().place(offset) {
                    Ok(offset) => self.write_rest(bytes, Some(offset)).await,
                    Err(error) => (Err(error), bytes),
                }
            }
        }
    };
}
pub(super) use transfers;
