//! The traits of tokio for a polled stream.

use crate::net::{Polled, Stream};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

impl<S: Stream> AsyncRead for Polled<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = into.remaining();
        let read = self.get_mut().poll_read_with(cx, room, |bytes| into.put_slice(bytes));
        read.map_ok(drop)
    }
}

impl<S: Stream> AsyncBufRead for Polled<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_fill(cx)
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        self.get_mut().consume(count);
    }
}

impl<S: Stream> AsyncWrite for Polled<S> {
    super::writes!(poll_shutdown);

    fn is_write_vectored(&self) -> bool {
        true
    }
}
