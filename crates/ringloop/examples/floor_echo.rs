//! A TCP echo server on the engine itself: no futures, no tasks, no Python.
//!
//! It uses the same operations as a transport of the Python loop, so the difference between the two
//! is the cost of Python: one send in flight per connection; short messages by multishot receive,
//! copied out of the pool; after two full pool buffers in a row, receives into the connection's own
//! memory, which is then sent as it is. The benchmarks compare it with a C server on epoll
//! (`benches/floor/epoll_echo.c`).
//!
//! It prints the port of 127.0.0.1 it listens on and serves until killed; `RINGLOOP_DRIVER` chooses the
//! driver: `RINGLOOP_DRIVER=epoll cargo run --release --example floor_echo`.
//!
//! An embedder owns the loop: it submits requests with its own tokens and takes the completions one
//! by one. A token here is a connection's index in a table, and which of its operations it was.

use ringloop::Options;
use ringloop::buf::SendBuf;
use ringloop::embed::Engine;
use ringloop::embed::limits::POOL_BUFFER_BYTES;
use ringloop::embed::op::{Accept, Close, Recv, RecvMulti, Request, Send};
use ringloop::embed::sys::socket;
use ringloop::embed::{Completion, Event, Key, Sink, Token};
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsRawFd, RawFd};

/// Full pool buffers in a row after which a connection is a bulk one.
const FULL_BUFFERS_MAX: u32 = 2;
/// Receive size of a bulk connection.
const BULK_BYTES: usize = 256 * 1024;

/// Which operation of a connection completed; the low bits of a token.
#[derive(Clone, Copy)]
enum Part {
    Accept = 0,
    Receive = 1,
    Send = 2,
    Close = 3,
}

/// How a connection receives.
#[derive(PartialEq)]
enum State {
    /// By a multishot receive; the number of full pool buffers in a row.
    Interactive { full_buffers: u32 },
    /// Into its own memory, once the multishot receive is cancelled.
    Bulk,
    /// Ended: the stream has ended or failed.
    Ended,
}

/// A connection is closed once its stream and both of its operations have ended.
struct Connection {
    fd: RawFd,
    is_receiving: bool,
    is_sending: bool,
    state: State,
    /// Bytes received while a send was in flight.
    queued: Vec<u8>,
    /// Memory of the last send, for reuse.
    spare: Vec<u8>,
}

struct Server {
    engine: Engine,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
}

fn main() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    socket::listen(listener.as_raw_fd(), libc::SOMAXCONN)?;
    socket::set_nonblocking(listener.as_raw_fd(), true)?;
    let mut engine = Engine::new(Options::from_env()?)?;
    engine.bind()?;
    let mut server = Server { engine, connections: Vec::new(), free: Vec::new() };
    let fd = listener.as_raw_fd();
    server.submit(Request::Accept(Accept { fd, multi: true }), 0, Part::Accept);
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    loop {
        server.engine.park(None)?;
        while let Some(event) = server.engine.next_event() {
            server.react(event)?;
        }
    }
}

impl Server {
    fn submit(&mut self, request: Request, index: usize, part: Part) {
        let token = Token((index as u64) << 2 | part as u64);
        self.engine.driver_mut().submit(request, Sink::Handler(token));
    }

    fn react(&mut self, event: Event) -> io::Result<()> {
        let index = (event.token.0 >> 2) as usize;
        match event.token.0 & 3 {
            part if part == Part::Accept as u64 => self.accepted(&event.completion)?,
            part if part == Part::Receive as u64 => {
                self.received(index, event.key, event.completion);
            }
            part if part == Part::Send as u64 => self.sent(index, event.completion),
            _ => {}
        }
        Ok(())
    }

    fn accepted(&mut self, completion: &Completion) -> io::Result<()> {
        let fd = completion.result()? as RawFd;
        socket::set_nodelay(fd, true)?;
        let connection = Connection {
            fd,
            is_receiving: true,
            is_sending: false,
            state: State::Interactive { full_buffers: 0 },
            queued: Vec::new(),
            spare: Vec::new(),
        };
        let index = self.free.pop().unwrap_or(self.connections.len());
        if index == self.connections.len() {
            self.connections.push(Some(connection));
        } else {
            self.connections[index] = Some(connection);
        }
        self.submit(Request::RecvMulti(RecvMulti::new(fd)), index, Part::Receive);
        Ok(())
    }

    fn received(&mut self, index: usize, key: Key, completion: Completion) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        connection.is_receiving = completion.more;
        if let Some(bytes) = completion.buffer {
            connection.queued.extend_from_slice(&bytes);
            let is_full = bytes.len() == POOL_BUFFER_BYTES as usize;
            if let State::Interactive { full_buffers } = &mut connection.state {
                *full_buffers = if is_full { *full_buffers + 1 } else { 0 };
                if *full_buffers == FULL_BUFFERS_MAX {
                    connection.state = State::Bulk;
                    self.engine.driver_mut().cancel(key);
                }
            }
        } else if completion.result > 0 {
            // A bulk receive: nothing was queued when it was submitted.
            if let Some(Request::Recv(recv)) = completion.request {
                connection.queued = recv.buf.into_vec();
            }
        } else if completion.result != -libc::ECANCELED {
            connection.state = State::Ended;
            // The peer is gone: end a send that still waits for it. An error here means it is gone
            // already.
            drop(socket::shutdown(connection.fd, Shutdown::Both));
            connection.queued.clear();
        }
        self.go_on(index);
    }

    fn sent(&mut self, index: usize, completion: Completion) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        connection.is_sending = false;
        let count = completion.result.max(0) as usize;
        if let Some(Request::Send(Send { fd, mut buf })) = completion.request {
            buf.advance(count);
            if count > 0 && !buf.is_empty() {
                connection.is_sending = true;
                self.submit(Request::Send(Send { fd, buf }), index, Part::Send);
                return;
            }
            connection.spare = buf.into_vec().unwrap_or_default();
        }
        self.go_on(index);
    }

    /// Sends what is queued, receives more, or closes a connection that has ended.
    fn go_on(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let fd = connection.fd;
        if connection.is_sending {
            return;
        }
        if !connection.queued.is_empty() {
            let mut spare = std::mem::take(&mut connection.spare);
            spare.clear();
            let buf = SendBuf::from(std::mem::replace(&mut connection.queued, spare));
            connection.is_sending = true;
            self.submit(Request::Send(Send { fd, buf }), index, Part::Send);
        } else if connection.is_receiving {
            // Its completion continues.
        } else if connection.state == State::Ended {
            self.connections[index] = None;
            self.free.push(index);
            self.submit(Request::Close(Close { fd }), index, Part::Close);
        } else {
            connection.is_receiving = true;
            let mut memory = std::mem::take(&mut connection.spare);
            memory.clear();
            memory.reserve(BULK_BYTES);
            let buf = memory.into();
            self.submit(Request::Recv(Recv { fd, buf }), index, Part::Receive);
        }
    }
}
