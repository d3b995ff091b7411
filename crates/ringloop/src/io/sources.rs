//! The sources and sinks: which operations the traits of this folder are, type by type.
//!
//! Called by: the other files of this folder, by the traits.

use super::copy_error::{CopyError, Side};
use super::traits::{AsyncRead, AsyncWrite, StartRead};
use crate::buf::{Outgoing, RecvBuf};
use crate::executor::Op;
use crate::fs::File;
use crate::net::{ReadHalf, Receive, TcpStream, UnixStream, Whole, WriteHalf};
use crate::op::{Read, Recv};
use crate::process::{PipeReader, PipeWriter};
use std::future::{Ready, ready};
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A read of a socket, a pipe or a file, with its buffer; dropping it cancels the read.
#[derive(Debug)]
#[must_use = "a read does nothing until it is awaited"]
pub struct Reading(ReadState);

#[derive(Debug)]
enum ReadState {
    Socket(Op<Recv>),
    File(Op<Read>),
    Failed(Option<(io::Error, Vec<u8>)>),
}

impl From<Op<Recv>> for Reading {
    fn from(op: Op<Recv>) -> Self {
        Self(ReadState::Socket(op))
    }
}

impl From<Op<Read>> for Reading {
    fn from(op: Op<Read>) -> Self {
        Self(ReadState::File(op))
    }
}

impl From<Result<Op<Read>, (io::Error, RecvBuf)>> for Reading {
    fn from(op: Result<Op<Read>, (io::Error, RecvBuf)>) -> Self {
        op.map_or_else(
            |(error, buf)| Self(ReadState::Failed(Some((error, buf.into_vec())))),
            Self::from,
        )
    }
}

impl Future for Reading {
    type Output = (io::Result<usize>, Vec<u8>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = match &mut self.0 {
            ReadState::Socket(op) => Pin::new(op).poll(cx),
            ReadState::File(op) => Pin::new(op).poll(cx),
            ReadState::Failed(failed) => {
                let (error, buf) = failed.take().expect("a read was polled after it was over");
                return Poll::Ready((Err(error), buf));
            }
        };
        polled.map(|(result, buf)| (result, buf.into_vec()))
    }
}

/// Sources by the operation that reads from them, and the method of streams that receives for a copy.
macro_rules! sources {
    ($([$($generic:tt)*] $type:ty, $op:ident $(, $receive:ident)?;)*) => {$(
        impl$($generic)* StartRead for $type {
            type Reading = Reading;

            fn start_read(&mut self, buf: Vec<u8>, limit: usize) -> Reading {
                self.$op(RecvBuf::append(buf, limit)).into()
            }
        }

        impl$($generic)* AsyncRead for $type {
            async fn read_more(&mut self, buf: Vec<u8>, limit: usize) -> (io::Result<usize>, Vec<u8>) {
                self.start_read(buf, limit).await
            }

            $(fn copy_to<W: AsyncWrite>(
                &mut self,
                to: &mut W,
            ) -> impl Future<Output = Result<u64, CopyError>> {
                pass_on(self.$receive(), to)
            })?
        }
    )*};
}

sources! {
    [] TcpStream, recv_op, receive;
    [] &TcpStream, recv_op, receive;
    [] UnixStream, recv_op, receive;
    [] &UnixStream, recv_op, receive;
    [<S: Whole>] ReadHalf<S>, recv_op, receive;
    [] PipeReader, read_op;
    [] &PipeReader, read_op;
    [] File, read_op;
    [] &File, read_op;
}

/// Sends what arrives out of the loop's own buffers.
async fn pass_on<W: AsyncWrite>(mut from: Receive<'_>, to: &mut W) -> Result<u64, CopyError> {
    let mut copied = 0;
    while let Some(received) = from.next().await {
        let received = received.map_err(|error| CopyError::new(Side::Read, copied, error))?;
        let len = received.len() as u64;
        let (sent, _) = to.write_all(received).await;
        sent.map_err(|error| CopyError::new(Side::Write, copied, error))?;
        copied += len;
    }
    Ok(copied)
}

impl AsyncRead for &[u8] {
    fn read_more(
        &mut self,
        buf: Vec<u8>,
        limit: usize,
    ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> {
        self.start_read(buf, limit)
    }
}

impl StartRead for &[u8] {
    type Reading = Ready<(io::Result<usize>, Vec<u8>)>;

    fn start_read(&mut self, mut buf: Vec<u8>, limit: usize) -> Self::Reading {
        let count = self.len().min(limit).min(buf.capacity() - buf.len());
        let (now, later) = self.split_at(count);
        buf.extend_from_slice(now);
        *self = later;
        ready((Ok(count), buf))
    }
}

/// Sinks by their own `write_all`, and the expression that ends them.
macro_rules! sinks {
    ($([$($generic:tt)*] $type:ty, $write:path, |$sink:ident| $end:expr;)*) => {$(
        impl$($generic)* AsyncWrite for $type {
            fn write_all<B: Outgoing>(
                &mut self,
                bytes: B,
            ) -> impl Future<Output = (io::Result<()>, B)> {
                $write(self, bytes)
            }

            fn shut_down(&mut self) -> impl Future<Output = io::Result<()>> {
                let $sink = self;
                ready($end)
            }
        }
    )*};
}

sinks! {
    [] TcpStream, TcpStream::write_all, |sink| ended(sink.shutdown(Shutdown::Write));
    [] &TcpStream, TcpStream::write_all, |sink| ended(sink.shutdown(Shutdown::Write));
    [] UnixStream, UnixStream::write_all, |sink| ended(sink.shutdown(Shutdown::Write));
    [] &UnixStream, UnixStream::write_all, |sink| ended(sink.shutdown(Shutdown::Write));
    [<S: Whole>] WriteHalf<S>, WriteHalf::write_all, |sink| ended(sink.shutdown());
    [] PipeWriter, PipeWriter::write_all, |_sink| Ok(());
    [] &PipeWriter, PipeWriter::write_all, |_sink| Ok(());
    [] File, File::write_outgoing, |_sink| Ok(());
    [] &File, File::write_outgoing, |_sink| Ok(());
}

/// A connection that the peer has reset has no direction left to end.
fn ended(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| match error.kind() {
        io::ErrorKind::NotConnected => Ok(()),
        _ => Err(error),
    })
}

impl AsyncWrite for Vec<u8> {
    async fn write_all<B: Outgoing>(&mut self, bytes: B) -> (io::Result<()>, B) {
        let (buf, kept) = bytes.lend();
        self.extend_from_slice(buf.as_slice());
        (Ok(()), B::restore(kept, buf))
    }

    fn shut_down(&mut self) -> impl Future<Output = io::Result<()>> {
        ready(Ok(()))
    }
}
