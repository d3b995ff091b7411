//! Beside layer 4: streams as a byte source and sink: buffered reads, lines, frames, copying.
//!
//! Owns: [`AsyncRead`] and [`AsyncWrite`], which sockets, pipes and files have; [`BufReader`],
//! [`Framed`], [`copy`], [`copy_bidirectional`]. Called by: applications. It makes no operation of its
//! own: `net`, `fs` and `process` do, and know nothing of it.
//!
//! A buffer belongs to the operation while the kernel may use it, so reads and writes take it and
//! return it. [`BufReader`] and [`Framed`] own their buffers, and lend slices of them; their reads
//! are cancel safe. Everything that a peer can let grow has a maximum.
//!
//! ```
//! use ringloop::io::BufReader;
//! use ringloop::net::UnixStream;
//!
//! # ringloop::Runtime::new()?.block_on(async {
//! let (ours, peer) = UnixStream::pair()?;
//! peer.write_all("HELO\r\nQUIT\r\n").await.0?;
//! let mut lines = BufReader::new(ours).lines();
//! assert_eq!(lines.next_line().await?.as_deref(), Some("HELO"));
//! assert_eq!(lines.next_line().await?.as_deref(), Some("QUIT"));
//! drop(peer);
//! assert_eq!(lines.next_line().await?, None);
//! # std::io::Result::Ok(())
//! # })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffered;
mod copy;
mod copy_error;
mod framed;
mod sources;
mod traits;

pub use buffered::{BufReader, Lines};
pub use copy::{copy, copy_bidirectional};
pub use copy_error::{CopyError, Side};
pub use framed::{Decoder, Encoder, Framed, FramedWrite, LengthDelimited, LinesCodec};
pub use sources::Reading;
pub use traits::{AsyncRead, AsyncWrite, StartRead};
