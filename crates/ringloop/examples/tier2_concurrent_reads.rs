//! A hundred files, read at once.
//!
//! Look at: a hundred tasks are started before one is awaited. Their opens and reads are queued, and the ring
//! takes all of them by one system call; run it under `strace -c` to see how few there are.
//!
//!     cargo run --release --example tier2_concurrent_reads

use ringloop::{Runtime, fs};
use std::io::{self, Write};

const FILES: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("ringloop-reads-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    for number in 0..FILES {
        std::fs::write(directory.join(number.to_string()), vec![b'x'; 1024 + number])?;
    }
    let read = Runtime::new()?.block_on(read_all(directory.clone()));
    std::fs::remove_dir_all(directory)?;
    read?
}

async fn read_all(directory: std::path::PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let tasks: Vec<_> = (0..FILES)
        .map(|number| ringloop::spawn(fs::read(directory.join(number.to_string()))))
        .collect();
    let mut bytes = 0;
    for task in tasks {
        bytes += task.await??.len();
    }
    writeln!(io::stdout(), "{FILES} files, {bytes} bytes")?;
    Ok(())
}
