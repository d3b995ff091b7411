//! A chat server: lines of one client go to all others.
//!
//! ```console
//! $ cargo run --release --example chat -- 127.0.0.1:7001
//! $ nc 127.0.0.1 7001
//! ```
//! Prints the port that it listens on. The first line that a client sends is its name. Each client
//! has two coroutines: one reads its lines, one writes the lines of others. Channels connect them
//! to the room.

use ringloop_coro::net::{TcpListener, TcpStream};
use ringloop_coro::spawn;
use ringloop_coro::sync::channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::Arc;

/// Lines queued for a client; a client that does not read is disconnected.
const LINES_MAX: usize = 256;

enum Event {
    Came(usize, String, Sender<Arc<str>>),
    Said(usize, String),
    Left(usize),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:0".to_owned());
    ringloop_coro::start(2, move || serve(&addr))??;
    Ok(())
}

fn serve(addr: &str) -> io::Result<()> {
    let listener = TcpListener::bind(addr)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    let (events, room) = unbounded();
    drop(spawn(move || talk(&room)));
    for (number, stream) in listener.incoming().enumerate() {
        let (stream, events) = (stream?, events.clone());
        drop(spawn(move || {
            // However it ended, the client has left.
            let _ = client(stream, number, &events);
            let _ = events.send(Event::Left(number));
        }));
    }
    Ok(())
}

/// Reads a client's lines.
fn client(stream: TcpStream, number: usize, events: &Sender<Event>) -> io::Result<()> {
    let (lines, to_write) = bounded(LINES_MAX);
    let theirs = stream.try_clone()?;
    let mut from_client = BufReader::new(stream).lines();
    let Some(name) = from_client.next().transpose()? else {
        return Ok(());
    };
    drop(spawn(move || write_lines(&theirs, &to_write)));
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    events.send(Event::Came(number, name, lines)).map_err(gone)?;
    for line in from_client {
        events.send(Event::Said(number, line?)).map_err(gone)?;
    }
    Ok(())
}

/// Writes lines to a client until it leaves or the room drops it.
fn write_lines(mut stream: &TcpStream, lines: &Receiver<Arc<str>>) -> io::Result<()> {
    for line in lines {
        stream.write_all(line.as_bytes())?;
    }
    stream.shutdown(std::net::Shutdown::Both)
}

/// The room: its clients and their lines.
fn talk(events: &Receiver<Event>) {
    let mut clients: HashMap<usize, (String, Sender<Arc<str>>)> = HashMap::new();
    for event in events {
        let (from, line) = match event {
            Event::Came(number, name, lines) => {
                let line = format!("* {name} is here\n");
                clients.insert(number, (name, lines));
                (number, line)
            }
            Event::Said(number, text) => match clients.get(&number) {
                Some((name, _)) => (number, format!("{name}: {text}\n")),
                None => continue,
            },
            Event::Left(number) => match clients.remove(&number) {
                Some((name, _)) => (number, format!("* {name} has left\n")),
                None => continue,
            },
        };
        let line: Arc<str> = line.into();
        clients.retain(|number, (_, lines)| {
            *number == from
                || !matches!(lines.try_send(Arc::clone(&line)), Err(TrySendError::Full(_)))
        });
    }
}
