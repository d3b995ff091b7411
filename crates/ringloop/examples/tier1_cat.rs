//! cat: a file to standard output.
//!
//! Look at: a file is read like a socket, by the ring, without a thread. One buffer serves the
//! whole file; on epoll, which does not support files, reads that would wait for the disk go to
//! pool threads.
//!
//!     cargo run --release --example tier1_cat -- Cargo.toml

use ringloop::Runtime;
use ringloop::fs::{CHUNK, File};
use std::io;
use std::os::fd::AsFd;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which file?")?;
    Ok(Runtime::new()?.block_on(cat(path))??)
}

async fn cat(path: String) -> io::Result<()> {
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let file = File::open(path).await?;
    let mut buf = Vec::with_capacity(CHUNK);
    let mut offset = 0;
    loop {
        let (count, filled) = file.read_at(buf, offset).await;
        let count = count?;
        if count == 0 {
            return Ok(());
        }
        offset += count as u64;
        let (written, back) = out.write_all(filled).await;
        written?;
        buf = back;
    }
}
