//! Interned names that the extension looks up in Python, created when the module is initialised.
//!
//! Interning on first use could fail at any point; here it fails the import. Called through
//! [`intern!`]; a name that is not in the list does not compile.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

macro_rules! names {
    ($($name:literal)*) => {
        const NAMES: [&str; [$($name),*].len()] = [$($name),*];
    };
}

// Sorted.
names! {
    "%r: %s" "%r: SSL handshake took %.1f ms" "BaseEventLoop" "BufferedProtocol" "CancelledError"
    "CertificateError" "Connect call failed %s" "DatagramTransport" "DatagramTransportBase"
    "Exception in callback %s" "Exception in callback of %r" "Exception in callback of %s"
    "Executing %s took %.3f seconds" "FALLBACK" "Future" "Handle"
    "Handshake(alpn=%r, cipher_suite=%r, key_exchange=%r, is_resumed=%r)" "MemberDescriptorType"
    "MemoryBIO" "RINGLOOP_TLS" "ReadTransport" "SSLError" "SSLObject" "SSLProtocol" "SSLSocket"
    "SSLSyscallError" "SSLWantReadError" "ShownSocket" "TRY_NATIVE" "Task" "TimerHandle" "Transport"
    "TransportSocket" "WritePipeTransportBase" "WriteTransport" "_FlowControlMixin" "_SendfileMode"
    "_ThreadSafeHandle" "__basicsize__" "__dict__" "__file__" "__index__" "__kwdefaults__"
    "__module__" "__name__" "__slots__" "_asyncio" "_attach" "_call_connection_lost"
    "_check_callback" "_check_handshake_timeout" "_check_shutdown_timeout" "_check_thread"
    "_close_lower" "_current_handle" "_deliver_held" "_detach" "_do_read" "_drain" "_ensure_fd_no_transport"
    "_extra" "_force_close" "_get_running_loop" "_format_callback_source" "_format_handle" "_msg_callback" "_read_ready"
    "_resolve" "_resume" "_run" "_send" "_socket" "_ssl"
    "_sslobj" "_start_polling" "_start_reading" "_start_reading_soon" "_transports" "_wake_waiter" "_write_ready" "abort" "accept" "alpn"
    "alpn_protocol" "asyncio" "asyncio.base_events" "asyncio.constants" "asyncio.events"
    "asyncio.format_helpers" "asyncio.futures" "asyncio.log" "asyncio.protocols" "asyncio.sslproto"
    "asyncio.tasks" "asyncio.transports" "asyncio.trsock" "auto" "buffer_updated" "call_at"
    "call_exception_handler" "call_later" "call_soon" "call_soon_threadsafe" "cancel" "cancelled"
    "cipher" "cipher_suite" "close" "close_clients" "compression" "connect" "connect_ex" "connection_id"
    "connection_lost" "connection_made" "context" "create_future" "create_task" "current_task"
    "data" "data_received" "datagram" "datagram_received" "debug" "decrypted" "do_handshake" "done"
    "early_data_accepted" "embed_v1" "encode" "encoded" "end_sendfile" "end_stream" "environ" "eof_received" "error_code"
    "error_received" "exc_info" "exception" "expire" "extract_stack" "failed" "family" "filename"
    "fileno" "flush" "frame_type" "functools" "get" "get_buffer" "get_debug" "get_extra_info" "get_loop" "getpeercert"
    "getpeername" "getsockname" "gettimeout" "handle" "headers" "idna" "if_nametoindex" "info"
    "is_closed" "is_closing" "is_resumed" "key_exchange" "keylog_filename" "list_of_data" "logger"
    "loop" "message" "modules" "nothing" "os" "pause_reading" "pause_writing" "peercert" "peername"
    "pending" "pipe" "private_bytes" "proto" "protocol" "public_bytes" "read" "reason_phrase" "recv"
    "recv_into" "recvfrom" "recvfrom_into" "recvmsg" "reset" "resume" "resume_reading" "resume_writing" "run"
    "ringloop._native" "ringloop._native.h3" "ringloop._native.quic"
    "ringloop._native.webtransport" "ringloop._sock" "ringloop._writes"
    "ringloop.h3.errors" "ringloop.quic._keywords" "ringloop.quic._material" "ringloop.quic.errors"
    "send" "sendmsg" "sendto" "server_hostname" "server_side" "session_resumed" "set_exception"
    "set_result" "setblocking" "shutdown" "slow_callback_duration" "socket" "sockname"
    "source" "source_traceback" "ssl" "ssl_object" "sslcontext" "start" "step_type" "stop"
    "stream_id" "sys" "task_wakeup" "time" "tobytes" "transport" "type" "types" "uid" "unblocked"
    "unclosed transport %r" "unexpected_of" "unwrap" "wake_waiter" "warn" "warning" "warnings" "webtransport"
    "wrap_bio" "write" "write_eof"
    "_log" "_send_other" "asgi" "body" "client" "complete" "extensions" "http.request" "http.response.body" "http.response.start" "method" "more_body" "path" "query_string" "raw_path" "root_path" "state" "status" "trailers" "unquote" "urllib.parse"
    "Coroutine" "__anext__" "readline" "IncompleteReadError" "LimitOverrunError" "StreamReader" "StreamReaderProtocol"
    "StreamWriter" "__base__" "__context__" "__doc__" "_asyncio_future_blocking" "_core" "args"
    "asyncio.exceptions" "asyncio.streams" "collections.abc" "consumed" "drain" "extend" "partial"
    "readexactly" "readuntil" "register" "_data_received" "_feed_data" "writelines" "result"
    "add_done_callback" "ensure_future"
}

static INTERNED: PyOnceLock<[Py<PyString>; NAMES.len()]> = PyOnceLock::new();

/// Interns all names; before the rest of the module is initialised.
pub fn initialise(py: Python<'_>) -> PyResult<()> {
    let mut made = Vec::with_capacity(NAMES.len());
    for name in NAMES {
        made.push(interned_str(py, name)?);
    }
    if let Ok(names) = made.try_into() {
        // Already set if the module is imported again: the same objects.
        let _ = INTERNED.set(py, names);
    }
    Ok(())
}

fn interned_str(py: Python<'_>, name: &str) -> PyResult<Py<PyString>> {
    let mut pointer = PyString::from_bytes(py, name.as_bytes())?.into_ptr();
    // SAFETY: the reference is ours; it is replaced by one to the interned string.
    unsafe { ffi::PyUnicode_InternInPlace(&raw mut pointer) };
    // SAFETY: the reference is ours, to a string.
    let interned = unsafe { Bound::from_owned_ptr(py, pointer) };
    Ok(interned.cast_into::<PyString>()?.unbind())
}

/// The interned name at `index`.
#[inline]
pub fn interned(py: Python<'_>, index: usize) -> &Bound<'_, PyString> {
    match INTERNED.get(py) {
        Some(names) => names[index].bind(py),
        None => unreachable!("the module is initialised before anything of it is called"),
    }
}

/// Index of `name` in the list; evaluated at compile time.
pub const fn index_of(name: &str) -> usize {
    let mut index = 0;
    while index < NAMES.len() {
        if is_same(NAMES[index].as_bytes(), name.as_bytes()) {
            return index;
        }
        index += 1;
    }
    panic!("add the name to NAMES in ffi/names.rs")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut index = 0;
    while index < a.len() {
        if a[index] != b[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// An interned `str`, as `PyO3`'s macro of that name yields it, that is always there.
macro_rules! intern {
    ($py:expr, $name:expr) => {{
        const INDEX: usize = $crate::ffi::index_of($name);
        $crate::ffi::interned($py, INDEX)
    }};
}

pub(crate) use intern;
