//! A logger: many tasks write lines, one writes the file.
//!
//! Look at: lines logged during the last write go out by one vectored write, so the file costs one
//! system call per batch rather than per line. A bounded channel blocks loggers that are faster
//! than the disk.
//!
//!     cargo run --release --example tier3_logger -- /tmp/log

use ringloop::Runtime;
use ringloop::fs::OpenOptions;
use ringloop::sync::local;
use std::io::{self, Write};

const WAITING_MAX: usize = 256;
const WRITERS: usize = 10;
const LINES_EACH: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("to which file?")?;
    Runtime::new()?.block_on(run(path))?
}

async fn run(path: String) -> Result<(), Box<dyn std::error::Error>> {
    let (sender, lines) = local::mpsc::channel::<Vec<u8>>(WAITING_MAX);
    let logger = ringloop::spawn(log(path, lines));
    for writer in 0..WRITERS {
        let sender = sender.clone();
        ringloop::spawn(async move {
            for line in 0..LINES_EACH {
                let text = format!("writer {writer}, line {line}\n");
                if sender.send(text.into_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
    // The logger ends once all senders are dropped.
    drop(sender);
    let (lines, writes) = logger.await??;
    writeln!(io::stdout(), "{lines} lines, fewer writes: {}", writes < lines)?;
    Ok(())
}

/// Writes lines until all senders are dropped; returns the number of lines and of writes.
async fn log(
    path: String,
    mut lines: local::mpsc::Receiver<Vec<u8>>,
) -> io::Result<(usize, usize)> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).open(path).await?;
    let (mut line_count, mut write_count, mut offset) = (0, 0, 0);
    while let Some(first) = lines.recv().await {
        let mut batch = vec![first];
        while let Ok(line) = lines.try_recv() {
            batch.push(line);
        }
        line_count += batch.len();
        // A short write leaves a tail, which one more write finishes.
        let whole: usize = batch.iter().map(Vec::len).sum();
        let (written, batch) = file.write_vectored_at(batch, offset).await;
        let written = written?;
        write_count += 1;
        if written < whole {
            let tail = batch.concat().split_off(written);
            file.write_all_at(tail, offset + written as u64).await.0?;
            write_count += 1;
        }
        offset += whole as u64;
    }
    file.sync_data().await?;
    file.close().await?;
    Ok((line_count, write_count))
}
