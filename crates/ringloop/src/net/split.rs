//! The two directions of a stream as two values.
//!
//! Owns: [`ReadHalf`], [`WriteHalf`]. Called by: `split()` and `into_split()` of streams. Never does: anything
//! that the whole stream could not; a stream's operations take `&self`.

use super::receive::Receive;
use super::socket::Socket;
use crate::buf::Outgoing;
use crate::sys::socket;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::rc::Rc;

/// A stream, borrowed or shared, that halves are made of.
pub trait Whole: sealed::Whole {}

impl<S: OnSocket> Whole for &S {}
impl<S: OnSocket> Whole for Rc<S> {}

pub(super) use sealed::OnSocket;

mod sealed {
    use super::{Rc, Socket};

    /// A stream by itself.
    pub trait OnSocket {
        fn socket(&self) -> &Socket;
    }

    pub trait Whole {
        fn socket(&self) -> &Socket;
        /// Whether the writer's end is the stream's: a borrowed stream goes on being somebody's.
        const ENDS_AT_DROP: bool;
    }

    impl<S: OnSocket> Whole for &S {
        fn socket(&self) -> &Socket {
            OnSocket::socket(*self)
        }
        const ENDS_AT_DROP: bool = false;
    }

    impl<S: OnSocket> Whole for Rc<S> {
        fn socket(&self) -> &Socket {
            OnSocket::socket(&**self)
        }
        const ENDS_AT_DROP: bool = true;
    }
}

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

impl<S: OnSocket> ReadHalf<Rc<S>> {
    /// Make the stream whole again; the halves come back where they are of two streams.
    pub fn reunite(self, mut writer: WriteHalf<Rc<S>>) -> Result<S, (Self, WriteHalf<Rc<S>>)> {
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
