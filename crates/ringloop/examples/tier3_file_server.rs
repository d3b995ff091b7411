//! A server of files: a client sends a name and a line feed, and gets the file.
//!
//! Look at: `splice` moves the file into the socket through a pipe, without copying a byte into
//! this process. Names with a slash are refused: only files of the directory itself are served.
//!
//!     cargo run --release --example tier3_file_server -- .      # prints its port, then:
//!     echo Cargo.toml | nc 127.0.0.1 PORT

use ringloop::Runtime;
use ringloop::fs::{File, Pipe, splice};
use ringloop::net::{TcpListener, TcpStream};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const NAME_BYTES_MAX: usize = 255;
const PIPE_BYTES: usize = 256 * 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("which directory?")?;
    Ok(Runtime::new()?.block_on(serve(directory.into()))??)
}

async fn serve(directory: PathBuf) -> io::Result<()> {
    let directory: Rc<Path> = directory.into();
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    loop {
        let stream = listener.accept().await?;
        let directory = Rc::clone(&directory);
        ringloop::spawn(async move {
            if let Err(error) = answer(&stream, &directory).await {
                let line = format!("error: {error}\n");
                drop(stream.write_all(line.into_bytes()).await);
            }
        });
    }
}

async fn answer(stream: &TcpStream, directory: &Path) -> io::Result<()> {
    let name = name(stream).await?;
    if name.contains('/') || name.starts_with('.') {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let file = File::open(directory.join(name)).await?;
    let pipe = Pipe::new(PIPE_BYTES)?;
    let mut offset = 0;
    loop {
        let mut left = splice(&file, Some(offset), &pipe.writer(), None, pipe.capacity()).await?;
        if left == 0 {
            return Ok(());
        }
        offset += left as u64;
        while left > 0 {
            left -= splice(&pipe.reader(), None, stream, None, left).await?;
        }
    }
}

/// The client's request line.
async fn name(stream: &TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    while line.len() <= NAME_BYTES_MAX {
        let (count, bytes) = stream.read(Vec::with_capacity(NAME_BYTES_MAX)).await;
        line.extend_from_slice(&bytes);
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            line.truncate(end);
            return String::from_utf8(line).map_err(io::Error::other);
        }
        if count? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Err(io::ErrorKind::InvalidInput.into())
}
