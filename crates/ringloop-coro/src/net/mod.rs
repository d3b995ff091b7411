//! Sockets in `std::net`'s shape, whose calls park the coroutine.
//!
//! Owns: TCP ([`TcpListener`], [`TcpStream`]), UDP ([`UdpSocket`]), Unix ([`UnixListener`],
//! [`UnixStream`], [`UnixDatagram`]), name look-up ([`ToSocketAddrs`]). Called by: coroutines. No
//! call blocks a thread.
//!
//! Names, arguments and results are those of `std::net` and `std::os::unix::net`, except where the
//! documentation says otherwise.
//!
//! * Every socket is `Send` and `Sync`: it may be accepted by one coroutine and used by others, on
//!   any worker, also by several at once. It is closed when the last clone is dropped.
//! * A call that would block parks. It ends early when its coroutine is cancelled, with
//!   `WouldBlock` at its time limit (as std on Linux), or at once after `set_nonblocking(true)`.
//! * A read or write that is cancelled returns what it has moved by then, if anything, and its
//!   coroutine unwinds at the next wait; no byte is lost. (A destructor's read may lose bytes if it
//!   is cut short.) A connection that a cancelled accept has taken is closed. The futures for
//!   `select!` (methods that end in `_async`, `readable`, `writable`) go by readiness, and take
//!   nothing if they lose.
//! * Calls that never block (options, addresses, `shutdown`) work anywhere; calls that park panic
//!   outside of a coroutine.
//!
//! ```
//! use ringloop_coro::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! ringloop_coro::start(1, || -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let addr = listener.local_addr()?;
//!     let server = ringloop_coro::spawn(move || -> std::io::Result<()> {
//!         let (mut stream, _) = listener.accept()?;
//!         let mut word = [0; 5];
//!         stream.read_exact(&mut word)?;
//!         stream.write_all(&word)
//!     });
//!     let mut stream = TcpStream::connect(addr)?;
//!     stream.write_all(b"hello")?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer)?;
//!     assert_eq!(answer, "hello");
//!     server.join()?
//! })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `socket` | how a read or write waits; what all sockets share |
//! | `borrowed` | operations on the caller's memory |
//! | `macros` | methods and traits that several types share with std's |
//! | `tcp`, `udp`, `unix` | the names and options of each kind |
//! | `lookup` | names of hosts, without blocking |

mod borrowed;
mod lookup;
mod macros;
mod socket;
mod tcp;
mod udp;
mod unix;

pub use lookup::ToSocketAddrs;
pub use std::net::Shutdown;
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixIncoming, UnixListener, UnixStream};
