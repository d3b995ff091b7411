//! tee: standard input to standard output and to a file.
//!
//! Look at: both writes run at the same time, each with its own buffer, which the kernel owns until
//! the write has ended.
//!
//!     echo hello | cargo run --release --example tier2_tee -- /tmp/copy

use ringloop::Runtime;
use ringloop::fs::{CHUNK, File};
use ringloop::future::join;
use std::io;
use std::os::fd::AsFd;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("to which file?")?;
    Ok(Runtime::new()?.block_on(tee(path))??)
}

async fn tee(path: String) -> io::Result<()> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let copy = File::create(path).await?;
    let mut buf = Vec::with_capacity(CHUNK);
    let mut second = Vec::new();
    loop {
        let (count, filled) = input.read(buf).await;
        if count? == 0 {
            return copy.close().await;
        }
        second.clear();
        second.extend_from_slice(&filled);
        let ((shown, first), (kept, back)) =
            join(out.write_all(filled), copy.write_all(second)).await;
        shown?;
        kept?;
        (buf, second) = (first, back);
    }
}
