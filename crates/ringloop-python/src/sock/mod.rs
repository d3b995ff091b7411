//! `sock_recv` and its kin: asyncio's operations on the application's own sockets.
//!
//! Owns: the remaining work of one such operation ([`Operation`]), and its poll. Called by
//! `ringloop.Loop` (`_begin_*`, then `ringloop._sock.finish`) and the turn (`completed`). No
//! receive or accept is submitted to the engine: completing after its task was cancelled, it would
//! have taken bytes of the next receive. The engine only reports readiness, and the coroutine that
//! returns the result makes the system call.
//!
//! Byte path: `Loop.sock_recv` → `receive::Receive` → recv(2) into the `bytes` that the caller gets.
//!
//! | file        | the family                                                        |
//! |-------------|-------------------------------------------------------------------|
//! | `receive`   | `sock_recv`, `sock_recv_into`                                     |
//! | `send`      | `sock_sendall`                                                    |
//! | `connect`   | `sock_connect`, `sock_accept`                                     |
//! | `method`    | `sock_recvfrom`, `sock_recvfrom_into`, `sock_sendto`, and         |
//! |             | `sock_recvmsg`, `sock_sendmsg`, which asyncio lacks               |
//! | `operation` | waiting, and common parts                                         |

mod connect;
mod method;
mod operation;
mod receive;
mod send;

use pyo3::prelude::*;

use crate::event_loop::LoopCore;
use crate::ffi::{Class, Payload, install_methods, method};

use operation::Operation;

/// Creates the type and puts the methods on the loop.
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
        method!(Target, _begin_accept(sock) => connect::accept, "Accept, or return the operation that waits for a connection."),
        method!(Target, _begin_call(sock, name, arguments, sends) => method::call, "Call a method of the socket, or return the operation that waits for it."),
    ];
    install_methods::<LoopCore>(&py.get_type::<LoopCore>(), methods)
}
