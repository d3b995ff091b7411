//! The stream transport: a connected socket and its protocol.
//!
//! Owns: the state of one connection, in [`state`]; [`read`] and [`write`] work on their parts of it,
//! and what it has in common with other transports is `transport`'s. This file says how the loop and
//! `transport` drive a stream. Called by: the turn (completions, flush), user code ([`methods`]),
//! servers ([`listener`]). All waiting is done by the engine.
//!
//! Byte path in: `event_loop::turn` → [`read`] → `protocol.data_received`.
//! Byte path out: `transport.write` → [`write`] → one send per turn, submitted by the enter that
//! waits.
//!
//! The behaviour matches `asyncio.selector_events._SelectorSocketTransport` exactly.

mod buffered;
mod create;
mod failure;
mod listener;
mod methods;
pub(crate) mod native;
mod read;
pub(crate) mod sendfile;
mod state;
mod write;

use std::ffi::CStr;

use pyo3::prelude::*;
use ringloop::embed::{Event, Key};

use crate::event_loop::{Completes, Flush, handlers};
use crate::ffi::{self, Argument, Obj, Payload, intern, payload};
use crate::transport::base::{self, Endpoint};
use crate::transport::socket::{self, LoopSocket, SocketTransport};

use listener::Listener;
pub(crate) use state::NativeReceiver;
use state::{Role, Stream, Stream_};

impl Payload for Stream {
    const NAME: &'static CStr = c"ringloop._native.SocketTransport";
    const DOC: &'static CStr = c"A stream transport; see asyncio.Transport.";
    const DICT: bool = true;
    payload!(Stream; define methods::define;
        visit base, socket, server, empty_waiter, flow;
        clear base, server, empty_waiter; finalize base::finalize);
}

impl Completes for Stream {
    #[inline]
    fn completed(this: Stream_<'_, '_>, event: Event) -> PyResult<()> {
        this.called_by_loop(|| {
            let done = match handlers::role(event.token) {
                role if role == Role::Read as u8 => {
                    let is_last = !event.completion.more;
                    let handled = read::completed(this, event);
                    if is_last {
                        handled.and(failure::report(this)).and(read::settle(this))
                    } else {
                        handled
                    }
                }
                role if role == Role::Write as u8 => {
                    failure::note(this, write::completed(this, event))
                }
                _ => failure::note(this, write::writable(this, event)),
            };
            base::or_end(this, done)
        })
    }

    fn flush(this: Stream_<'_, '_>, why: Flush) -> PyResult<()> {
        match why {
            Flush::TurnEnds => this.called_by_loop(|| {
                let settled = read::settle_pause(this);
                base::or_end(this, settled.and(write::flush(this)))
            }),
            Flush::Now => write::send_gathered(this),
        }
    }

    fn abandoned(this: Stream_<'_, '_>) {
        this.read.forget();
        // A child's copy of the queue belongs to the parent.
        if let Ok(core) = this.base.core(this.py())
            && !core.get().engine.is_of_another_process()
        {
            write::send_last(this);
        }
        this.write.forget();
        socket::abandoned(this);
    }
}

impl Endpoint for Stream {
    const KIND: &'static str = "socket";
    socket::socket_endpoint!();

    fn lost(this: Stream_<'_, '_>) -> PyResult<()> {
        let interrupted = sendfile::lost(this);
        let closed = socket::close_if_lost(this);
        interrupted.and(closed).and(detach(this))
    }

    fn close_unclosed(this: Stream_<'_, '_>) -> PyResult<()> {
        socket::close_unclosed(this).and(detach(this))
    }

    fn is_closing(this: Stream_<'_, '_>) -> PyResult<bool> {
        // If nothing is received any more, only a send detects that the peer has gone; and one in
        // flight may have.
        if this.read.is_paused() || this.read.is_over() || write::has_queued_behind(this) {
            write::send_gathered(this)?;
        }
        Ok(this.base.is_closing())
    }

    fn set_protocol(this: Stream_<'_, '_>, protocol: Argument<'_, '_>) -> PyResult<()> {
        // The old protocol handles what follows.
        if !this.base.is_elsewhere() {
            write::send_gathered(this)?;
        }
        create::set_protocol(this, &protocol)
    }

    fn last_context(this: Stream_<'_, '_>) -> PyResult<Obj> {
        let py = this.py();
        match this.base.context.get(py) {
            Some(own) if !cfg!(Py_3_15) && this.called_by_loop.get() => ffi::context_copy(py, &own),
            _ => create::context_for(this),
        }
    }
}

impl SocketTransport for Stream {
    fn socket(&self) -> &LoopSocket {
        &self.socket
    }

    fn operations(&self) -> [Option<Key>; 2] {
        [self.read.key(), self.write.key()]
    }

    /// It is paused, or the peer has sent EOF and the protocol keeps the connection open.
    fn is_idle(&self) -> bool {
        (self.read.is_over() || self.read.is_held_back()) && self.write.is_empty()
    }

    fn start_reading(this: Stream_<'_, '_>) -> PyResult<()> {
        read::start(this)
    }

    fn stop_reading(this: Stream_<'_, '_>) -> PyResult<()> {
        read::stop(this)
    }

    fn discard(this: Stream_<'_, '_>) -> PyResult<()> {
        write::discard(this)
    }

    fn send_gathered(this: Stream_<'_, '_>) -> PyResult<()> {
        write::send_gathered(this)
    }
}

fn detach(this: Stream_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    match this.server.take() {
        Some(server) => {
            create::call_server(server.bind(py), intern!(py, "_detach"), &this.object())
        }
        None => Ok(()),
    }
}

pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    base::warn_function(py)?;
    // asyncio's transports have this base too, and `loop.sendfile` requires it.
    let base =
        py.import(intern!(py, "asyncio.transports"))?.getattr(intern!(py, "_FlowControlMixin"))?;
    let stream = Stream::native().create(py, base.cast()?)?;
    let listener = Listener::native().create(py, &py.get_type::<PyAny>())?;
    module.add("SocketTransport", stream)?;
    module.add("Listener", listener)?;
    module.add_function(wrap_pyfunction!(base::wake_waiter, module)?)?;
    module.add_function(wrap_pyfunction!(create::make_socket_transport, module)?)?;
    module.add_function(wrap_pyfunction!(listener::remove_socket_file, module)?)?;
    module.add_function(wrap_pyfunction!(listener::make_listener, module)?)
}
