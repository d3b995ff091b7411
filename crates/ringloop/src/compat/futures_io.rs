//! The traits of futures-io for a polled stream.

use crate::net::{Polled, Stream};
use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

impl<S: Stream> AsyncRead for Polled<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_read(cx, into)
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
    super::writes!(poll_close);
}
