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

use crate::core::Core;
use crate::limits::{REFUSED_PAUSE, SEGMENTS_MAX};
use crate::receive::Receiver;
use crate::sender::{Progress, Sender};
use crate::shared::Shared;
use crate::wakers::Waiting;
use ringloop::embed::Local;
use ringloop::embed::sys::fd::AsRawFd;
use ringloop::net::UdpSocket;
use ringloop::time::{Sleep, sleep, sleep_until};
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
            socket: &socket,
            sender: Sender::new(socket.as_raw_fd(), SEGMENTS_MAX, true),
            writable: None,
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
    socket: &'a UdpSocket,
    sender: Sender,
    /// While the socket is full.
    writable: Option<Pin<Box<dyn Future<Output = ()> + 'a>>>,
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
        self.sender.read_errors(now, core);
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
        let sent = self.transmit(cx, now, &mut state.sessions.core);
        state.has_unsent = self.sender.is_waiting();
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
            // The timers and the other sockets of the loop come first.
            Local::current().end_turn();
            cx.waker().wake_by_ref();
        }
        self.sleep(cx, deadline);
        Poll::Pending
    }

    /// Sends what may be sent now; the task is woken once a full socket is writable.
    fn transmit(&mut self, cx: &mut Context<'_>, now: Instant, core: &mut Core) -> Progress {
        if let Some(writable) = &mut self.writable
            && writable.as_mut().poll(cx).is_pending()
        {
            return Progress::Full;
        }
        self.writable = None;
        let progress = self.sender.transmit(now, core);
        if progress == Progress::Full {
            let socket = self.socket;
            let mut writable = Box::pin(async move {
                if socket.writable().await.is_err() {
                    // The kernel cannot watch it now: retry.
                    sleep(REFUSED_PAUSE).await;
                }
            });
            if writable.as_mut().poll(cx).is_ready() {
                return Progress::More;
            }
            self.writable = Some(writable);
        }
        progress
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
