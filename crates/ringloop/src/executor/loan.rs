//! A buffer of the pool on loan to a task, and the loan while the bytes in it are sent.
//!
//! Owns: [`Loan`], [`Lent`]. Called by: `received`, whose bytes they send. Never does: I/O, or copy.
//!
//! # Invariants
//! 1. The bytes of a lent buffer neither move nor change, and nobody gets the buffer, until the `SendBuf` of them is
//!    dropped: it holds the loan by count, and a lease is never written to.

use super::Home;
use crate::buf::SendBuf;
use crate::driver::Lease;
use std::ops::Range;
use std::rc::Rc;

/// A buffer of the pool, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Loan {
    home: Home,
    /// There until then.
    lease: Option<Lease>,
}

/// A loan that an operation sends from; the loop counts them ([`crate::limits::LENT_BUFFERS`]).
#[derive(Debug)]
pub(crate) struct Lent {
    loan: Loan,
    /// Where the bytes lie that are sent.
    range: Range<usize>,
    _counted: Counted,
}

/// One of the loop's lent buffers, for as long as it is there.
#[derive(Debug)]
struct Counted(Home);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.uncount_lent();
    }
}

impl Loan {
    #[inline]
    pub fn new(home: Home, lease: Lease) -> Self {
        Self {
            home,
            lease: Some(lease),
        }
    }

    fn bytes(&self) -> &[u8] {
        self.lease.as_ref().map_or(&[], Lease::bytes)
    }

    /// Send `range` of it from where it lies. The loan is to be had again ([`Lent::end`]) once the buffer is dropped.
    pub fn lend(self, range: Range<usize>) -> (SendBuf, Rc<Lent>) {
        self.home.count_lent();
        let lent = Rc::new(Lent {
            _counted: Counted(self.home.clone()),
            loan: self,
            range,
        });
        let bytes = &lent.loan.bytes()[lent.range.clone()];
        let (ptr, len) = (bytes.as_ptr(), bytes.len());
        let owner = Rc::into_raw(Rc::clone(&lent)).cast_mut().cast();
        // SAFETY: invariant 1; the count that `owner` is keeps the loan, on the loop's own thread.
        let buf = unsafe { SendBuf::from_raw(ptr, len, owner, release) };
        (buf, lent)
    }
}

impl Drop for Loan {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.home.give_back(lease);
        }
    }
}

unsafe fn release(owner: *mut ()) {
    // SAFETY: `owner` came from `Rc::into_raw` in `lend`, on this thread, and is released once.
    drop(unsafe { Rc::from_raw(owner.cast_const().cast::<Lent>()) });
}

impl Lent {
    /// The buffer again and where the bytes lie, when nothing is sent from it any more; `None` while an operation has it.
    pub(super) fn end(self: Rc<Self>) -> Option<(Lease, Range<usize>)> {
        let mut lent = Rc::into_inner(self)?;
        Some((lent.loan.lease.take()?, lent.range))
    }
}
