//! State shared by an endpoint's handles, connections and task.
//!
//! Owns: [`Shared`], the state of all of them, and [`Inner`], a connection as its handles see it.
//! Called by: `endpoint`, `connecting`, `connection`, `stream`, `driver`. Wakers are woken and
//! dropped only while the state is not borrowed.

use crate::config::ClientConfig;
use crate::core::{self, Event, Handle};
use crate::error::ConnectionError;
use crate::session::{self, Closing, Sessions, Wait, Waiters, Wake, wakes};
use crate::socket_drain::SocketDrain;
use crate::wakers::{STREAM_SLOT, Waitable, Waiting};
use crate::workers::Place;
use bytes::Bytes;
use ringloop::net::UdpSocket;
use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// State of a connection for its futures.
#[derive(Debug)]
pub(crate) struct Futures {
    /// The application has a handle.
    is_held: bool,
    waiters: Waiters<Wait, Waiting>,
}

pub(crate) type Session = session::Session<Futures>;

impl Futures {
    pub fn new() -> Self {
        Self { is_held: true, waiters: Waiters::default() }
    }

    /// A stream was dropped: returns its waiters, to be dropped once nothing is borrowed.
    pub fn forget(&mut self, waits: &[Wait]) -> Vec<Waiting> {
        let mut left = Vec::new();
        for wait in waits {
            self.waiters.take(wait, &mut left);
        }
        left
    }
}

pub(crate) struct Shared {
    state: RefCell<State>,
    pub task: RefCell<Option<Waker>>,
    pub on_failed: RefCell<Option<OnFailed>>,
}

/// What a waiter of an endpoint waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EndpointWait {
    /// A client.
    Incoming,
    /// No connections left.
    Idle,
}

pub(crate) struct State {
    pub sessions: Sessions<Futures>,
    pub incoming: VecDeque<core::Incoming>,
    pub waiters: Waiters<EndpointWait, Waiting>,
    pub socket: Rc<UdpSocket>,
    /// Kernel buffer size that sockets request, for each direction.
    pub socket_buffer: usize,
    /// A message that the core has built waits for the socket.
    pub has_unsent: bool,
    pub is_rebound: bool,
    pub client: Option<ClientConfig>,
    /// If it is one of several workers.
    pub place: Option<Place>,
    pub handle_count: usize,
    pub socket_drain: SocketDrain,
    /// Clients accepted by the application and not yet decided on: it may refuse them.
    pub undecided_count: usize,
    pub is_closed: bool,
}

/// Callback for clients whose handshake fails.
type OnFailed = Box<dyn FnMut(SocketAddr, &ConnectionError)>;

impl Shared {
    pub fn new(state: State) -> Self {
        Self { state: RefCell::new(state), task: RefCell::new(None), on_failed: RefCell::new(None) }
    }

    pub fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Reports failed handshakes while nothing is borrowed: the callback may call back.
    pub fn report_failures(&self) {
        let failures = std::mem::take(&mut self.state().sessions.failures);
        if failures.is_empty() {
            return;
        }
        let Some(mut on_failed) = self.on_failed.take() else {
            return;
        };
        for (address, end) in &failures {
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            if let Some(error) = end.error() {
                on_failed(address, error);
            }
        }
        // Unless the callback set another one.
        self.on_failed.borrow_mut().get_or_insert(on_failed);
    }

    /// The socket to use from now on; `None`: the endpoint is done.
    pub fn next_socket(&self) -> Option<Rc<UdpSocket>> {
        let mut state = self.state();
        state.is_rebound = false;
        // A message that the last socket did not take counts as packet loss.
        state.has_unsent = false;
        state.is_needed().then(|| Rc::clone(&state.socket))
    }

    /// Wakes the task: something may have to be sent.
    pub fn wake(&self) {
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }

    /// Waits until `look` returns a result; it is called again for each event of `wait`.
    pub async fn until<T>(
        &self,
        on: EndpointWait,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> T {
        self.wait_until(on, |shared| look(&mut shared.state())).await
    }
}

impl Waitable for Shared {
    type Key = EndpointWait;

    fn with_waiters<T>(&self, look: impl FnOnce(&mut Waiters<EndpointWait, Waiting>) -> T) -> T {
        look(&mut self.state().waiters)
    }
}

impl State {
    /// Nothing is left to send.
    pub fn is_idle(&self) -> bool {
        let core = &self.sessions.core;
        core.connection_count() == 0
            && !core.has_responses()
            && !self.has_unsent
            && self.socket_drain.is_over()
    }

    /// Accepts no more clients, and refuses waiting ones.
    pub fn refuse_all(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.socket_drain.begin();
        }
        for incoming in self.incoming.drain(..) {
            self.sessions.core.refuse(incoming);
        }
    }

    pub fn is_needed(&self) -> bool {
        self.handle_count > 0 || self.undecided_count > 0 || !self.is_idle()
    }

    /// Takes all events from the core, and the waiters to wake.
    pub fn dispatch(&mut self, woken: &mut Vec<Waiting>) {
        while let Some(event) = self.sessions.next_event() {
            match event {
                Event::Incoming(incoming) if self.is_closed => self.sessions.core.refuse(incoming),
                Event::Incoming(incoming) => {
                    self.incoming.push_back(incoming);
                    self.waiters.take(&EndpointWait::Incoming, woken);
                }
                Event::Drained(handle) => {
                    let is_held = |session: &mut Session| session.attached.is_held;
                    if !self.sessions.get(handle).is_some_and(is_held)
                        && let Some(mut session) = self.sessions.release(handle)
                    {
                        session.attached.waiters.take_all(woken);
                    }
                }
                event => {
                    let Some(session) = event.handle().and_then(|one| self.sessions.get(one))
                    else {
                        continue;
                    };
                    for wake in wakes(&event, session.early_rejected) {
                        match wake {
                            Wake::For(_, wait) => session.attached.waiters.take(&wait, woken),
                            Wake::All(_) => session.attached.waiters.take_all(woken),
                        }
                    }
                }
            }
        }
        if self.is_idle() {
            self.waiters.take(&EndpointWait::Idle, woken);
        }
    }

    /// Closes a connection at once with the application's code and reason.
    pub fn close(&mut self, handle: Handle, code: u64, reason: Bytes, woken: &mut Vec<Waiting>) {
        let closed = (code, reason);
        if self.sessions.close(Instant::now(), handle, closed, Closing::Now)
            && let Some(session) = self.sessions.get(handle)
        {
            session.attached.waiters.take_all(woken);
        }
    }
}

/// A connection, shared by all its handles. Invariants that keep both of its parts alive until it
/// is dropped:
/// 1. There is one per handle: it is created with the handle that the core just returned, through
///    `Sessions`.
/// 2. `Futures::is_held` is true from then on until it is dropped.
/// 3. Only `Sessions::release` removes a session and the core's connection. It is called for a
///    drained connection without handles, and by the drop here.
pub(crate) struct Inner {
    pub shared: Rc<Shared>,
    pub handle: Handle,
}

impl Inner {
    /// Inspects the connection; nothing is sent for it.
    pub fn with<T>(&self, look: impl FnOnce(&mut core::Connection<'_>, &mut Session) -> T) -> T {
        let mut state = self.shared.state();
        let both = state.sessions.both(self.handle);
        let (mut connection, session) = both.expect("a held connection is not released");
        look(&mut connection, session)
    }

    /// Operates on the connection; something may have to be sent.
    pub fn act<T>(&self, act: impl FnOnce(&mut core::Connection<'_>, &mut Session) -> T) -> T {
        let result = self.with(act);
        self.shared.wake();
        result
    }

    /// Waits until `look` returns a result; it is called again for each event of `wait`.
    pub async fn until<T>(
        &self,
        on: Wait,
        mut look: impl FnMut(&mut core::Connection<'_>, &mut Session) -> Option<T>,
    ) -> T {
        self.wait_until(on, |inner| inner.with(&mut look)).await
    }

    /// The same as a poll function, for the stream's only waiting future.
    pub fn poll_stream<T>(
        &self,
        cx: &Context<'_>,
        on: Wait,
        look: impl FnOnce(&mut core::Connection<'_>, &mut Session) -> Option<T>,
    ) -> Poll<T> {
        if let Some(result) = self.with(look) {
            return Poll::Ready(result);
        }
        self.register(cx, on, STREAM_SLOT);
        Poll::Pending
    }
}

impl Waitable for Inner {
    type Key = Wait;

    fn with_waiters<T>(&self, look: impl FnOnce(&mut Waiters<Wait, Waiting>) -> T) -> T {
        self.with(|_, session| look(&mut session.attached.waiters))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let mut woken = Vec::new();
        state.close(self.handle, 0, Bytes::new(), &mut woken);
        if let Some(session) = state.sessions.get(self.handle) {
            session.attached.is_held = false;
        }
        let session = state.sessions.release(self.handle);
        drop(state);
        drop((session, woken));
        self.shared.wake();
    }
}
