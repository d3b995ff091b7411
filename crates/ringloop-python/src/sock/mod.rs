//! `sock_recv` and its kin: asyncio's operations on sockets that stay the user's.
//!
//! Owns: what one such operation still has to do ([`Operation`]), and its poll. Called by
//! `ringloop.Loop` (`_begin_*`, then `ringloop._sock.finish`) and the turn (`completed`).
//! Never does: submit a receive or an accept to the engine. A receive on the ring that completes after
//! its task was cancelled would have taken bytes that the next receive was to get; so the engine only
//! says that the socket is ready, and the system call is made by the coroutine that returns its result.
//!
//! Byte path: `Loop.sock_recv` → `receive::Receive` → recv(2) into the `bytes` that the caller gets.
//!
//! | file        | the family                                                        |
//! |-------------|-------------------------------------------------------------------|
//! | `receive`   | `sock_recv`, `sock_recv_into`                                     |
//! | `send`      | `sock_sendall`                                                    |
//! | `connect`   | `sock_connect`                                                    |
//! | `accept`    | `sock_accept`                                                     |
//! | `method`    | `sock_recvfrom`, `sock_recvfrom_into`, `sock_sendto`, and         |
//! |             | `sock_recvmsg`, `sock_sendmsg`, which asyncio does not have       |
//! | `operation` | waiting, and what the families share                              |

mod accept;
mod connect;
mod method;
mod operation;
mod receive;
mod send;

use pyo3::prelude::*;

use crate::event_loop::LoopCore;
use crate::ffi::{Class, Payload, install_methods, method};

use operation::Operation;

/// Make the type and put the methods on the loop.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    type Target = Class<LoopCore>;
    let py = module.py();
    let operation = Operation::native().create(py, &py.get_type::<PyAny>())?;
    module.add("SocketOperation", operation)?;
    let methods = vec![
        method!(Target, _begin_recv(sock, n) => receive::recv, "Receive, or return the operation that waits for bytes."),
        method!(Target, _begin_recv_into(sock, buf) => receive::recv_into, "Receive into `buf`, or return the operation that waits for bytes."),
        method!(Target, _begin_sendall(sock, data) => send::sendall, "Send, or return the operation that waits for room."),
        method!(Target, _begin_connect(sock, address) => connect::connect, "Connect, or return the operation that waits for the peer."),
        method!(Target, _begin_accept(sock) => accept::accept, "Accept, or return the operation that waits for a connection."),
        method!(Target, _begin_call(sock, name, arguments, sends) => method::call, "Call a method of the socket, or return the operation that waits for it."),
    ];
    install_methods::<LoopCore>(&py.get_type::<LoopCore>(), methods)
}
