//! Sequences as `futures_core::Stream`, with the feature `futures-core`.
//!
//! Only [`Receive`] ends.

use super::{Datagram, Datagrams, Incoming, Readiness, Receive};
use crate::executor::Received;
use crate::sys::fd::OwnedFd;
use crate::sys::interest::Interest;
use futures_core::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

impl<S: From<OwnedFd>> Stream for Incoming<'_, S> {
    type Item = io::Result<S>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Incoming::poll_next(self.get_mut(), cx).map(Some)
    }
}

impl Stream for Receive<'_> {
    type Item = io::Result<Received>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Receive::poll_next(self.get_mut(), cx)
    }
}

impl Stream for Datagrams<'_> {
    type Item = io::Result<Datagram>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Datagrams::poll_next(self.get_mut(), cx).map(Some)
    }
}

impl Stream for Readiness<'_> {
    type Item = io::Result<Interest>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Readiness::poll_next(self.get_mut(), cx).map(Some)
    }
}
