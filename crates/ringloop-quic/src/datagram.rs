//! Datagrams of a connection: unreliable, unordered, whole (RFC 9221).
//!
//! Owns: what happens if there is no room ([`Policy`]). Called by: applications. Datagrams are
//! queued only in the connection's two bounded buffers.

use crate::connection::Connection;
use crate::core::{self, DatagramRefusal};
use crate::error::DatagramError;
use crate::session::Wait;
use crate::shared::Session;
use crate::wakers::WaitSlot;
use bytes::Bytes;
use ringloop::time::timeout;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

/// What to do with a datagram while `Transport::datagram_send_buffer` is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Wait for room.
    #[default]
    Wait,
    /// Wait this long, then fail with [`DatagramError::Expired`]; a datagram queued but not sent
    /// in that time is dropped and counted ([`crate::stats::Stats::datagrams_expired`]).
    WaitFor(Duration),
    /// Drop the oldest queued ones.
    DropOldest,
    /// Drop this one.
    DropNew,
}

impl Connection {
    /// Sends a datagram without copying it; whether it was accepted (`false` only with `DropNew`).
    ///
    /// # Errors
    /// [`DatagramError`].
    ///
    /// # Cancel safety
    /// Cancel safe: the datagram was not accepted.
    pub async fn send_datagram(&self, bytes: Bytes, policy: Policy) -> Result<bool, DatagramError> {
        match policy {
            Policy::DropOldest => {
                self.try_send(bytes, true, None).map_or_else(refused, |()| Ok(true))
            }
            Policy::DropNew => {
                self.try_send(bytes, false, None).map_or_else(refused, |()| Ok(true))
            }
            Policy::Wait => self.send_waiting(bytes, None).await.map(|()| true),
            Policy::WaitFor(limit) => {
                // An overflowing limit is none.
                let deadline = Instant::now().checked_add(limit);
                match timeout(limit, self.send_waiting(bytes, deadline)).await {
                    Ok(sent) => sent.map(|()| true),
                    Err(_) => Err(DatagramError::Expired),
                }
            }
        }
    }

    /// Sends a datagram now; `false` if there is no room.
    pub fn try_send_datagram(&self, bytes: Bytes) -> Result<bool, DatagramError> {
        self.try_send(bytes, false, None).map_or_else(refused, |()| Ok(true))
    }

    fn try_send(
        &self,
        bytes: Bytes,
        drops_oldest: bool,
        deadline: Option<Instant>,
    ) -> Result<(), DatagramRefusal> {
        self.inner.act(|connection, session| match session.error() {
            Some(error) => Err(DatagramRefusal::Error(error.clone().into())),
            None => connection.send_datagram_until(bytes, drops_oldest, deadline),
        })
    }

    async fn send_waiting(
        &self,
        bytes: Bytes,
        deadline: Option<Instant>,
    ) -> Result<(), DatagramError> {
        let mut bytes = Some(bytes);
        let mut slot = WaitSlot::new(&*self.inner, Wait::DatagramOut);
        poll_fn(|cx| {
            let Some(next) = bytes.take() else {
                return Poll::Ready(Ok(()));
            };
            match self.try_send(next, false, deadline) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(DatagramRefusal::Blocked(back)) => {
                    bytes = Some(back);
                    slot.poll(cx, |_| None)
                }
                Err(DatagramRefusal::Error(error)) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Receives the next datagram.
    ///
    /// Up to `Transport::datagram_receive_buffer` bytes are queued; beyond that, the oldest are
    /// dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn recv_datagram(&self) -> Result<Bytes, DatagramError> {
        let mut taken = None;
        self.receive(1, |datagram| taken = Some(datagram)).await?;
        Ok(taken.unwrap_or_default())
    }

    /// Appends received datagrams to `into`, at most `count_max`; waits for the first. Returns
    /// their number.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn recv_datagrams(
        &self,
        count_max: usize,
        into: &mut Vec<Bytes>,
    ) -> Result<usize, DatagramError> {
        self.receive(count_max, |datagram| into.push(datagram)).await
    }

    async fn receive(
        &self,
        count_max: usize,
        mut take: impl FnMut(Bytes),
    ) -> Result<usize, DatagramError> {
        let received = |connection: &mut core::Connection<'_>, session: &mut Session| {
            let mut count = 0;
            while count < count_max
                && let Some(datagram) = connection.receive_datagram()
            {
                take(datagram);
                count += 1;
            }
            if count > 0 || count_max == 0 {
                return Some(Ok(count));
            }
            session.error().map(|error| Err(error.clone().into()))
        };
        self.inner.until(Wait::DatagramIn, received).await
    }

    /// The longest datagram that may be sent now; changes with the path. `None`: the peer accepts
    /// none.
    pub fn max_datagram_len(&self) -> Option<usize> {
        self.inner.with(|connection, _| connection.max_datagram_len())
    }

    /// Bytes of datagrams that may be sent now without blocking.
    pub fn datagram_room(&self) -> usize {
        self.inner.with(|connection, _| connection.datagram_room())
    }
}

fn refused(refusal: DatagramRefusal) -> Result<bool, DatagramError> {
    match refusal {
        DatagramRefusal::Blocked(_) => Ok(false),
        DatagramRefusal::Error(error) => Err(error),
    }
}
