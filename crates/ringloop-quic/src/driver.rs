//! The task that drives an endpoint.
//!
//! Called by: `endpoint`, which spawns it. A turn runs when datagrams arrived, a deadline has
//! passed, or the application has written:
//!
//! ```text
//!   receive (batches, up to a budget) ─▶ timeouts ─▶ wake tasks ─▶ [they run] ─▶ transmit ─▶ one timer
//! ```
//! Woken tasks run before anything is sent, so that their answers share packets with the
//! acknowledgements.

use crate::receive::Receiver;
use crate::shared::Shared;
use crate::transmit::{Progress, Transmitter};
use crate::wakers::Waiting;
use ringloop::time::{Sleep, sleep_until};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The endpoint's task: one socket after another, until the endpoint is closed and idle.
pub(crate) async fn drive(shared: Rc<Shared>) {
    while let Some(socket) = shared.next_socket() {
        let mut driver = Driver {
            shared: &shared,
            receiver: Receiver::new(&socket),
            transmitter: Transmitter::new(&socket),
            timer: None,
            woken: Vec::new(),
            has_deferred: false,
        };
        poll_fn(|cx| driver.turn(cx)).await;
    }
}

struct Driver<'a> {
    shared: &'a Shared,
    receiver: Receiver<'a>,
    transmitter: Transmitter<'a>,
    timer: Option<(Instant, Sleep)>,
    woken: Vec<Waiting>,
    /// The last turn deferred sending to this one.
    has_deferred: bool,
}

impl Driver<'_> {
    /// Ready when the socket is to be replaced, or the endpoint is done.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.register(cx);
        let now = Instant::now();
        let mut guard = self.shared.state();
        let state = &mut *guard;
        if state.is_rebound || !state.is_needed() {
            return Poll::Ready(());
        }
        let (core, place) = (&mut state.sessions.core, state.place.as_ref());
        if let Some(place) = place {
            for datagram in place.handed(cx.waker()) {
                core.receive(now, datagram);
            }
        }
        let more_in = self.receiver.receive(cx, now, core, place);
        self.transmitter.hear(now, core);
        state.socket_drain.received(cx, &state.socket, more_in);
        state.sessions.core.handle_timeouts(now);
        state.dispatch(&mut self.woken);
        drop(guard);
        let has_woken = !self.woken.is_empty();
        self.woken.drain(..).for_each(Waiting::wake);
        self.shared.report_failures();
        if has_woken && !std::mem::replace(&mut self.has_deferred, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_deferred = false;
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let sent = self.transmitter.transmit(cx, now, &mut state.sessions.core);
        state.has_unsent = self.transmitter.is_waiting();
        // Sending ends connections: they may be drained now.
        state.dispatch(&mut self.woken);
        let deadline = state.sessions.core.next_timeout();
        let is_needed = state.is_needed();
        drop(guard);
        self.woken.drain(..).for_each(Waiting::wake);
        self.shared.report_failures();
        if !is_needed {
            return Poll::Ready(());
        }
        if more_in || sent == Progress::More {
            cx.waker().wake_by_ref();
        }
        self.sleep(cx, deadline);
        Poll::Pending
    }

    fn register(&self, cx: &Context<'_>) {
        let mut task = self.shared.task.borrow_mut();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            let old = task.replace(cx.waker().clone());
            drop(task);
            drop(old);
        }
    }

    /// One timer for all deadlines. A timer that fires too early is left alone: it costs one turn
    /// instead of two operations.
    fn sleep(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) {
        let Some(deadline) = deadline else {
            self.timer = None;
            return;
        };
        let is_soon_enough = |armed: &(Instant, Sleep)| armed.0 <= deadline;
        if !self.timer.as_ref().is_some_and(is_soon_enough) {
            self.timer = Some((deadline, sleep_until(deadline)));
        }
        if let Some((_, sleep)) = &mut self.timer
            && Pin::new(sleep).poll(cx).is_ready()
        {
            self.timer = None;
            cx.waker().wake_by_ref();
        }
    }
}
