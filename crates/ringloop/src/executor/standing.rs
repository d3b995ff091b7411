//! An operation that one owner makes again and again, one at a time.
//!
//! Owns: [`Standing`]. Called by: `net::Receive` and `net::SendAll`, for the messages of a busy stream. Never does: have
//! two in flight.
//!
//! [`Flight`](super::Flight) is the same for once. What a message costs there is mostly to come and go: a slot of the table
//! is taken and freed, a request moved in and out, a waker cloned and dropped, by each operation. Here they stay.

use super::{Home, Local};
use crate::driver::Key;
use crate::op::Renewed;
use std::io;
use std::marker::PhantomData;
use std::task::{Poll, Waker, ready};

/// An operation in flight, or the place for the next one. Dropping it cancels the operation. It does not keep its loop
/// alive: what has one may outlive that.
#[derive(Debug)]
pub(crate) struct Standing<K> {
    place: Option<(Home, Key)>,
    is_in_flight: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K> Default for Standing<K> {
    fn default() -> Self {
        Self {
            place: None,
            is_in_flight: false,
            kind: PhantomData,
        }
    }
}

impl<K: Renewed> Standing<K> {
    /// Which slot of the driver's table it keeps.
    #[cfg(test)]
    pub fn slot(&self) -> Option<u32> {
        self.place.as_ref().map(|(_, key)| key.user_data() as u32)
    }

    /// Whether its result has yet to be taken.
    #[inline]
    pub fn is_in_flight(&self) -> bool {
        self.is_in_flight
    }

    /// Begin the operation that `make` makes on `local`; none is in flight. `make` is called once, and must not call
    /// back.
    #[inline(always)]
    pub fn begin(&mut self, local: &Local, waker: &Waker, mut make: impl FnMut() -> K) {
        debug_assert!(!self.is_in_flight);
        if let Some((home, key)) = &mut self.place
            && home.is(local)
            && let Some(next) = local.engine().driver_mut().renew(*key, waker, &mut make)
        {
            *key = next;
            self.is_in_flight = true;
            return;
        }
        let kind = make();
        self.settle(local, kind, waker);
    }

    /// Take a place on `local`.
    #[cold]
    fn settle(&mut self, local: &Local, kind: K, waker: &Waker) {
        self.leave();
        let request = kind.into_request();
        let key = local.engine().driver_mut().submit_standing(request, waker);
        self.place = Some((local.home(), key));
        self.is_in_flight = true;
    }

    /// What `end` makes of the result of the operation in flight, and of its memory. Where the driver was torn down the
    /// result is `ECANCELED`, and the memory gone.
    #[inline(always)]
    pub fn poll<R>(
        &mut self,
        waker: &Waker,
        end: impl FnOnce(io::Result<usize>, K::Memory) -> R,
    ) -> Poll<R>
    where
        K::Memory: Default,
    {
        let taken = match &self.place {
            Some((home, key)) => match home.local() {
                Some(local) => {
                    let mut engine = local.engine();
                    ready!(engine.driver_mut().take_standing::<K>(*key, waker))
                }
                None => None,
            },
            None => None,
        };
        self.is_in_flight = false;
        let Some((result, memory)) = taken else {
            self.place = None;
            let cancelled = io::Error::from_raw_os_error(libc::ECANCELED);
            return Poll::Ready(end(Err(cancelled), K::Memory::default()));
        };
        let result = match usize::try_from(result) {
            Ok(count) => Ok(count),
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        };
        Poll::Ready(end(result, memory))
    }
}

impl<K> Standing<K> {
    /// Give the place up, and what is in flight.
    fn leave(&mut self) {
        self.is_in_flight = false;
        if let Some((home, key)) = self.place.take()
            && let Some(local) = home.local()
        {
            local.forget(key);
        }
    }
}

impl<K> Drop for Standing<K> {
    fn drop(&mut self) {
        self.leave();
    }
}
