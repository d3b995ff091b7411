//! A UDP server on the engine itself, to compare ways to receive: no futures, no tasks, no Python.
//!
//! `floor_datagram echo|count multishot|poll` prints the port of 127.0.0.1 it is bound to and
//! serves until killed; `RINGLOOP_DRIVER` chooses the driver. `echo` sends each datagram back;
//! `count` counts them, and replies with the count to one that begins with `?`. `multishot`
//! receives by the multishot operation (on the ring one completion per datagram, on epoll
//! recvmmsg(2) into the pool); `poll` waits for readiness by an operation and calls recvmmsg(2)
//! itself. `gro` as a third word enables `UDP_GRO`.

use ringloop::Options;
use ringloop::embed::Engine;
use ringloop::embed::op::{Poll, RecvMsgMulti, Request};
use ringloop::embed::sys::datagram::{self, Batch, Control, Message};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::{Event, Sink, Token};
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};

/// Most datagrams per recvmmsg(2).
const BATCH_MAX: usize = 32;

struct Server {
    fd: RawFd,
    echoes: bool,
    count: u64,
}

impl Server {
    fn take(&mut self, message: &Message<'_>) -> io::Result<()> {
        for bytes in message.datagrams() {
            let answer = self.count.to_string();
            let answer = match bytes {
                _ if self.echoes => bytes,
                [b'?', ..] => answer.as_bytes(),
                _ => {
                    self.count += 1;
                    continue;
                }
            };
            datagram::send_to(self.fd, answer, &message.source)?;
        }
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let says = |word: &str| words.iter().any(|one| one == word);
    let socket = UdpSocket::bind(("127.0.0.1", 0))?;
    socket.set_nonblocking(true)?;
    let fd = socket.as_raw_fd();
    let control = if says("gro") {
        datagram::set_gro(fd, true)?;
        Control::Wanted
    } else {
        Control::Unwanted
    };
    let mut engine = Engine::new(Options::from_env()?)?;
    engine.bind()?;
    let request = || {
        if says("multishot") {
            return Request::RecvMsgMulti(RecvMsgMulti::new(fd, control));
        }
        Request::Poll(Poll { fd, interest: Interest::READ, level: true })
    };
    writeln!(io::stdout(), "{}", socket.local_addr()?.port())?;
    let mut server = Server { fd, echoes: says("echo"), count: 0 };
    let mut reader =
        Reader { batch: Batch::new(BATCH_MAX, 64 * 1024).expect("no memory"), want: 1, control };
    let sink = || Sink::Handler(Token(0));
    engine.driver_mut().submit(request(), sink());
    loop {
        engine.park(None)?;
        while let Some(event) = engine.next_event() {
            if !event.completion.more {
                engine.driver_mut().submit(request(), sink());
            }
            received(&mut server, &mut reader, event)?;
        }
    }
}

/// Receives like the datagram transports of the Python loop.
struct Reader {
    batch: Batch,
    want: usize,
    control: Control,
}

fn received(server: &mut Server, reader: &mut Reader, event: Event) -> io::Result<()> {
    if let Some(buffer) = event.completion.buffer {
        if let Some(message) = Message::parse(&buffer) {
            server.take(&message)?;
        }
        return Ok(());
    }
    let Ok(count) = reader.batch.receive(server.fd, reader.control, reader.want) else {
        return Ok(());
    };
    if count == reader.want {
        reader.want = (count * 2).min(BATCH_MAX);
    } else if count * 2 <= reader.want {
        reader.want = (reader.want / 2).max(1);
    }
    reader.batch.received().try_for_each(|message| server.take(&message))
}
