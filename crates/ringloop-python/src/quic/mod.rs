//! QUIC for Python: `ringloop._native.quic`.
//!
//! Owns: the endpoint with or without a socket ([`endpoint`]), operations on connections and
//! streams ([`connection`], [`stream`]), configurations ([`config`]) and events ([`events`]).
//! Called by: `ringloop.quic`. Starts no threads: the protocol runs in the calling thread, usually
//! the loop's, which watches the socket by `add_reader`.
//!
//! Byte path, in: recvmmsg(2) → GRO batches, split → the protocol's core → `Stream.read` joins
//! received bytes into one `bytes`. Out: `Stream.write` → the core (one copy) → packets sealed in
//! one buffer → sendmsg(2).
//!
//! | file         | contents                                                                      |
//! |--------------|----------------------------------------------------------------------------------|
//! | `shared`     | state shared by an endpoint and its connections, and the lock order           |
//! | `route`      | a connection as its objects refer to it                                       |
//! | `state`      | the sessions of connections, their streams' queues, admission                 |
//! | `dispatch`   | routes the core's events to waiters and event queues                          |
//! | `queued`     | written bytes without room in the send window                                 |
//! | `event_queue` | aioquic's events, queued until they are taken                                |
//! | `pings`      | pings and their acknowledgements                                              |
//! | `datagrams`  | a connection's datagrams, taken and sent                                      |
//! | `waiters`, `waiter` | the waiters of connections, and the awaitable                          |
//! | `ready`      | a completed awaitable                                                         |
//! | `loop_`      | the loop that drives an endpoint: one reader, one timer, one flush per pass   |
//! | `socket`     | GRO and GSO batches from and to the kernel                                    |
//! | `http`       | HTTP/3 on a connection, without Python                                         |
//! | `memory`     | a client's sessions and tokens of a server                                    |
//! | `event_connection` | connections for the interfaces of aioquic and its kin                   |
//! | `endpoint`, `connection`, `handshake`, `stream`, `events`, `config`, `stats` | the classes   |
//! | `traces`     | logs of connections, in memory                                                |
//! | `authority`  | a private CA                                                                  |
//! | `material`   | forms of certificates, keys and authorities                                   |
//! | `address`, `clock`, `keywords`, `numbers`, `keylog`, `errors`, `exception` | conversions     |
//!
//! With the interpreter lock held, nothing here waits for a lock whose holder may wait for the
//! interpreter: see `shared`.

mod address;
mod authority;
mod clock;
mod config;
mod connection;
mod datagrams;
mod dispatch;
mod endpoint;
pub mod errors;
mod event_connection;
mod event_queue;
mod events;
pub mod exception;
mod handshake;
pub mod http;
mod keylog;
mod keywords;
mod loop_;
mod material;
mod memory;
pub mod numbers;
mod pings;
mod queued;
mod ready;
mod route;
mod shared;
mod socket;
mod state;
mod stats;
mod stream;
mod traces;
mod waiter;
mod waiters;

pub use connection::{Connection, direction};
pub use endpoint::Endpoint;
pub use route::Route;
pub use state::State;
pub use waiter::Waiter;

use ringloop::embed::sys::fd::RawFd;
use ringloop::embed::sys::platform;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::ffi::{Fallible, Raise as _, intern};

/// The names and versions of what the protocol and its cryptography are built on.
#[pyfunction]
fn engine_versions() -> Fallible<&'static str> {
    Fallible(env!("RINGLOOP_QUIC_ENGINE"))
}

/// The name of a protocol error code, with its reason, or else with its meaning in a handshake.
#[pyfunction]
fn explained(code: u64, said: &str) -> Fallible<String> {
    Fallible(ringloop_quic::codes::explained(code, said))
}

/// Make the kernel deliver each datagram to the worker that its connection id names. `count` sockets share the address
/// by `SO_REUSEPORT`, in the order in which they were bound. One call sets all of them.
#[pyfunction]
fn steer(fd: RawFd, count: usize) -> PyResult<()> {
    let known = u32::try_from(count).ok().filter(|count| (1..=256).contains(count));
    let count = known
        .ok_or_else(|| PyValueError::raise(format!("count is {count}: give 1 to 256 workers")))?;
    let steps = ringloop_quic::steering_program(count).map(|step| platform::sock_filter {
        code: step.code,
        jt: step.jump_true,
        jf: step.jump_false,
        k: step.value,
    });
    Ok(ringloop::embed::sys::socket::set_reuse_port_program(fd, &steps)?)
}

/// Adds the submodule.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let quic = PyModule::new(py, "ringloop._native.quic")?;
    quic.add_class::<endpoint::Endpoint>()?;
    quic.add_class::<connection::Connection>()?;
    quic.add_class::<event_connection::EventConnection>()?;
    quic.add_class::<handshake::Handshake>()?;
    quic.add_class::<stream::Stream>()?;
    quic.add_class::<waiter::Waiter>()?;
    quic.add_class::<ready::Ready>()?;
    quic.add_class::<stats::Stats>()?;
    quic.add_class::<config::ClientConfig>()?;
    quic.add_class::<config::ServerConfig>()?;
    quic.add_function(wrap_pyfunction!(engine_versions, &quic)?)?;
    quic.add_function(wrap_pyfunction!(explained, &quic)?)?;
    quic.add_class::<memory::Memory>()?;
    quic.add_class::<memory::SessionTicket>()?;
    quic.add_class::<traces::Traces>()?;
    quic.add_function(wrap_pyfunction!(steer, &quic)?)?;
    quic.add_function(wrap_pyfunction!(authority::sign_certificate, &quic)?)?;
    events::add(&quic)?;
    quic.gil_used(false)?;
    module.add("quic", &quic)?;
    // So that `from ringloop._native.quic import …` works: there is no file of that name.
    py.import(intern!(py, "sys"))?
        .getattr(intern!(py, "modules"))?
        .set_item(intern!(py, "ringloop._native.quic"), quic)
}
