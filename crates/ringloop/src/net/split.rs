//! The two directions of a stream as two values.
//!
//! Owns: [`ReadHalf`], [`WriteHalf`]. Called by: `split()` and `into_split()` of streams. Never does: anything
//! that the whole stream could not; a stream's operations take `&self`.

use super::receive::Receive;
use super::socket::Socket;
use super::{TcpStream, UnixStream};
use crate::buf::Outgoing;
use crate::sys::socket;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::rc::Rc;

/// A stream, borrowed or shared, that halves are made of.
pub trait Whole: sealed::Whole {}

mod sealed {
    use super::Socket;

    pub trait Whole {
        fn socket(&self) -> &Socket;
        /// Whether the writer's end is the stream's: a borrowed stream goes on being somebody's.
        const ENDS_AT_DROP: bool;
    }
}

macro_rules! whole {
    ($($stream:ident),*) => {$(
        impl sealed::Whole for &$stream {
            fn socket(&self) -> &Socket {
                &self.socket
            }
            const ENDS_AT_DROP: bool = false;
        }
        impl Whole for &$stream {}
        impl sealed::Whole for Rc<$stream> {
            fn socket(&self) -> &Socket {
                &self.socket
            }
            const ENDS_AT_DROP: bool = true;
        }
        impl Whole for Rc<$stream> {}
    )*};
}

whole!(TcpStream, UnixStream);

/// The receiving direction of a stream.
#[derive(Debug)]
pub struct ReadHalf<S: Whole>(S);

impl<S: Whole> ReadHalf<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(stream)
    }

    /// Receive up to the capacity of `buf`, from its start; 0 is the end of the stream.
    pub async fn read(&mut self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.0.socket().recv(buf).await
    }

    /// Receive bytes as they come, by one multishot receive.
    pub fn receive(&mut self) -> Receive<'_> {
        Receive::new(self.0.socket())
    }
}

/// The sending direction of a stream. Where it owns the stream, dropping it shuts the direction down.
#[derive(Debug)]
pub struct WriteHalf<S: Whole> {
    stream: S,
    ends: bool,
}

impl<S: Whole> WriteHalf<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            ends: S::ENDS_AT_DROP,
        }
    }

    /// Send some of `bytes`; returns how many.
    pub async fn write(&mut self, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.stream.socket().send(bytes).await
    }

    /// Send all of `bytes`: a vector, static ones, or what [`ReadHalf::receive`] yielded.
    pub fn write_all<B: Outgoing>(
        &mut self,
        bytes: B,
    ) -> impl Future<Output = (io::Result<()>, B)> {
        self.stream.socket().send_all(bytes)
    }

    /// Send all of `bufs`, in order.
    pub async fn write_all_vectored(
        &mut self,
        bufs: Vec<Vec<u8>>,
    ) -> (io::Result<()>, Vec<Vec<u8>>) {
        self.stream.socket().send_all_vectored(bufs).await
    }

    /// End the stream for the peer, which has read everything by then.
    pub fn shutdown(&mut self) -> io::Result<()> {
        socket::shutdown(self.stream.socket().as_raw_fd(), Shutdown::Write)
    }
}

impl<S: Whole> Drop for WriteHalf<S> {
    fn drop(&mut self) {
        if self.ends {
            // A connection that is over has no direction left to end.
            drop(self.shutdown());
        }
    }
}

macro_rules! reunite {
    ($($stream:ident),*) => {$(
        impl ReadHalf<Rc<$stream>> {
            /// Make the stream whole again; the halves come back where they are of two streams.
            pub fn reunite(
                self,
                mut writer: WriteHalf<Rc<$stream>>,
            ) -> Result<$stream, (Self, WriteHalf<Rc<$stream>>)> {
                if !Rc::ptr_eq(&self.0, &writer.stream) {
                    return Err((self, writer));
                }
                let Self(stream) = self;
                writer.ends = false;
                drop(writer);
                match Rc::try_unwrap(stream) {
                    Ok(stream) => Ok(stream),
                    // Two halves hold it, and no third can be made.
                    Err(stream) => Err((Self(Rc::clone(&stream)), WriteHalf::new(stream))),
                }
            }
        }
    )*};
}

reunite!(TcpStream, UnixStream);
