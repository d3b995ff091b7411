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
//! | `datagram`  | `sock_recvfrom`, `sock_recvfrom_into`, `sock_sendto`, and         |
//! |             | `sock_recvmsg`, `sock_sendmsg`, which asyncio does not have       |
//! | `operation` | waiting, and what the families share                              |

mod accept;
mod connect;
mod datagram;
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
        method!(Target, c"_begin_recv", receive::recv, c"_begin_recv(sock, n)\n--\n\nReceive, or return the operation that waits for bytes."),
        method!(Target, c"_begin_recv_into", receive::recv_into, c"_begin_recv_into(sock, buf)\n--\n\nReceive into `buf`, or return the operation that waits for bytes."),
        method!(Target, c"_begin_sendall", send::sendall, c"_begin_sendall(sock, data)\n--\n\nSend, or return the operation that waits for room."),
        method!(Target, c"_begin_connect", connect::connect, c"_begin_connect(sock, address)\n--\n\nConnect, or return the operation that waits for the peer."),
        method!(Target, c"_begin_accept", accept::accept, c"_begin_accept(sock)\n--\n\nAccept, or return the operation that waits for a connection."),
        method!(Target, c"_begin_recvfrom", datagram::recvfrom, c"_begin_recvfrom(sock, bufsize)\n--\n\nReceive a datagram, or return the operation that waits for one."),
        method!(Target, c"_begin_recvfrom_into", datagram::recvfrom_into, c"_begin_recvfrom_into(sock, buf, nbytes)\n--\n\nReceive a datagram into `buf`, or return the operation that waits for one."),
        method!(Target, c"_begin_sendto", datagram::sendto, c"_begin_sendto(sock, data, address)\n--\n\nSend a datagram, or return the operation that waits for room."),
        method!(Target, c"_begin_recvmsg", datagram::recvmsg, c"_begin_recvmsg(sock, bufsize, ancbufsize, flags)\n--\n\nReceive a message with its control data, or return the operation that waits for one."),
        method!(Target, c"_begin_sendmsg", datagram::sendmsg, c"_begin_sendmsg(sock, buffers, ancdata, flags, address)\n--\n\nSend a message with control data, or return the operation that waits for room."),
    ];
    install_methods::<LoopCore>(&py.get_type::<LoopCore>(), methods)
}
