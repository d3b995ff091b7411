//! The two directions of a stream as two values.
//!
//! Owns: [`ReadHalf`], [`WriteHalf`]. Called by: `split()` and `into_split()` of streams.

use super::receive::Receive;
use super::socket::Socket;
use crate::buf::{Outgoing, RecvBuf};
use crate::executor::Op;
use crate::op::Recv;
use crate::sys::fd::AsRawFd;
use crate::sys::socket;
use std::io;
use std::net::Shutdown;
use std::ops::Deref;
use std::rc::Rc;

/// A borrowed or shared stream.
pub trait Whole: sealed::Whole {}

impl<S: OnSocket> Whole for &S {}
impl<S: OnSocket> Whole for Rc<S> {}

pub(super) use sealed::OnSocket;

mod sealed {
    use super::{Deref, Rc, Socket};

    /// A stream that has a socket.
    pub trait OnSocket {
        fn socket(&self) -> &Socket;
    }

    pub trait Whole: Deref<Target: OnSocket> {
        /// Whether dropping the writer shuts the stream down: not for a borrowed stream.
        const ENDS_AT_DROP: bool;
    }

    impl<S: OnSocket> Whole for &S {
        const ENDS_AT_DROP: bool = false;
    }

    impl<S: OnSocket> Whole for Rc<S> {
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

    /// Receives up to the capacity of `buf`, from its start; 0 is the end of the stream. Without
    /// capacity it returns 0 at once.
    pub async fn read(&mut self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        if buf.capacity() == 0 {
            return (Ok(0), buf);
        }
        self.0.socket().recv(buf).await
    }

    /// A receive into the room of `buf`.
    pub(crate) fn recv_op(&mut self, buf: RecvBuf) -> Op<Recv> {
        self.0.socket().recv_op(buf)
    }

    /// Receives by one multishot receive into the loop's buffers.
    pub fn receive(&mut self) -> Receive<'_> {
        Receive::new(self.0.socket())
    }
}

/// The sending direction of a stream. If it owns the stream, dropping it shuts the direction down.
#[derive(Debug)]
pub struct WriteHalf<S: Whole> {
    stream: S,
    ends: bool,
}

impl<S: Whole> WriteHalf<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, ends: S::ENDS_AT_DROP }
    }

    /// Sends some of `bytes`; returns the count.
    pub async fn write<B: Outgoing>(&mut self, bytes: B) -> (io::Result<usize>, B) {
        self.stream.socket().send(bytes).await
    }

    /// Sends all of `bytes`, as [`TcpStream::write_all`](super::TcpStream::write_all).
    pub fn write_all<B: Outgoing>(
        &mut self,
        bytes: B,
    ) -> impl Future<Output = (io::Result<()>, B)> {
        self.stream.socket().send_all(bytes)
    }

    /// Sends all of `bufs`, in order.
    pub async fn write_all_vectored(
        &mut self,
        bufs: Vec<Vec<u8>>,
    ) -> (io::Result<()>, Vec<Vec<u8>>) {
        self.stream.socket().send_all_vectored(bufs).await
    }

    /// Shuts the sending direction down: the peer reads EOF after the last byte.
    pub fn shutdown(&mut self) -> io::Result<()> {
        socket::shutdown(self.stream.socket().as_raw_fd(), Shutdown::Write)
    }
}

impl<S: Whole> Drop for WriteHalf<S> {
    fn drop(&mut self) {
        if self.ends {
            // A closed connection has no direction left to shut down.
            drop(self.shutdown());
        }
    }
}

impl<S: OnSocket> ReadHalf<Rc<S>> {
    /// Reunites the halves; returns them if they belong to different streams.
    pub fn reunite(self, mut writer: WriteHalf<Rc<S>>) -> Result<S, (Self, WriteHalf<Rc<S>>)> {
        if !Rc::ptr_eq(&self.0, &writer.stream) {
            return Err((self, writer));
        }
        let Self(stream) = self;
        writer.ends = false;
        drop(writer);
        match Rc::try_unwrap(stream) {
            Ok(stream) => Ok(stream),
            // The two halves hold the only references.
            Err(stream) => Err((Self(Rc::clone(&stream)), WriteHalf::new(stream))),
        }
    }
}
