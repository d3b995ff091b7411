//! cat by links: the kernel reads, and writes what it has read, without returning in between.
//!
//! Look at: `then_write`. Both entries are submitted by one call and share one buffer; the second
//! begins when the first has filled it. The end of a file fills it in part, which ends the link:
//! the rest is written separately.
//!
//!     cargo run --release --example tier4_linked_cat -- Cargo.toml

use ringloop::Runtime;
use ringloop::embed::Link;
use ringloop::embed::op::Read;
use ringloop::fs::{CHUNK, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which file?")?;
    Ok(Runtime::new()?.block_on(cat(path))??)
}

async fn cat(path: String) -> io::Result<()> {
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let file = File::open(path).await?;
    let mut offset = 0;
    let mut buf = Vec::with_capacity(CHUNK);
    loop {
        let read = Read { fd: file.as_raw_fd(), buf: buf.into(), offset: Some(offset) };
        let (read, written, back) = Link::new(read).then_write(out.as_raw_fd(), None).await;
        let read = read?;
        if read == 0 {
            return Ok(());
        }
        offset += read as u64;
        let mut bytes = back.into_vec();
        let written = match written {
            Ok(count) => count,
            // The end of the file: the write has not begun.
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => 0,
            Err(error) => return Err(error),
        };
        if written < read {
            bytes.drain(..written);
            let (rest, back) = out.write_all(bytes).await;
            rest?;
            bytes = back;
        }
        buf = bytes;
    }
}
