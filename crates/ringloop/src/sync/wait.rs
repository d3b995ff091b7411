//! One wait for a state to change.
//!
//! Owns: [`Wait`], a place in a line that is part of the state. Called by: `watch`, `broadcast` and
//! `cancel`, whose changes wake the whole line.

use super::place::{Place, has_share};
use super::waiters::{Ticket, Waiters};
use crate::executor::{Local, waiting};
use std::task::{Context, Poll};

/// A wait in a line of the state in a cell; dropping it leaves the line.
pub(super) struct Wait<'a, S, P: Place> {
    state: &'a P::Cell<S>,
    ticket: Option<Ticket>,
    line: fn(&mut S) -> &mut Waiters,
}

impl<'a, S, P: Place> Wait<'a, S, P> {
    pub fn new(state: &'a P::Cell<S>, line: fn(&mut S) -> &mut Waiters) -> Self {
        Self { state, ticket: None, line }
    }

    /// Makes an attempt under the state's cell; enters the line if that has no result.
    pub fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: impl FnOnce(&mut S) -> Option<R>,
    ) -> Poll<R> {
        let (ticket, line) = (&mut self.ticket, self.line);
        let polled = P::with(self.state, |state| {
            if let Some(place) = *ticket {
                if !line(state).take_grant(place, cx.waker()) {
                    return Poll::Pending;
                }
                *ticket = None;
            } else if !has_share::<P>() {
                return Poll::Ready(None);
            }
            let result = attempt(state);
            if result.is_some() {
                return Poll::Ready(result);
            }
            *ticket = Some(line(state).push(cx.waker(), 1));
            Poll::Pending
        });
        match polled {
            Poll::Ready(Some(result)) => Poll::Ready(result),
            Poll::Ready(None) => Local::next_turn(cx),
            Poll::Pending => waiting("a channel"),
        }
    }
}

impl<S, P: Place> Drop for Wait<'_, S, P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let line = self.line;
            P::with(self.state, |state| line(state).leave(ticket));
        }
    }
}
