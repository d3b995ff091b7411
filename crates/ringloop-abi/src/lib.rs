//! The C interface between ringloop's wheel and other extension modules: types alone, no code.
//!
//! `ringloop._native` offers a [`Table`] in a capsule called [`CAPSULE`]; an extension finds it with
//! `PyCapsule_Import` when it is imported. Rust extensions use the crate `ringloop-pyo3`, which wraps
//! the table in safe functions; anything else that speaks C may use the table itself.
//!
//! # Contract
//! 1. **Versions.** [`Head::version`] changes when the meaning of an entry does, and then the capsule's
//!    name does too. Within a version entries are only appended: an extension that was built with `n` bytes
//!    works with every table of at least [`Head::size`] = `n` bytes.
//! 2. **Futures.** The receiver of a [`Future`] owns it: it calls `poll` until that returns [`READY`], and
//!    `drop` exactly once, whether it was ready or not; never one within the other. It may be moved, its data
//!    may not. All calls are made on the thread of the loop that runs.
//! 3. **Wakers.** The [`HostWaker`] that `poll` gets is lent for that call; `waker_clone` makes an owned
//!    one, which any thread may use and drops once. Only pointers from the table or from `poll` are passed
//!    to it.
//! 4. **Memory.** What a [`Memory`] names is neither moved, freed nor used by its giver until
//!    [`Owner::release`] is called, which happens exactly once, on the loop's thread, when the kernel has
//!    done with it: also long after the operation's future was dropped. It must not call back.
//! 5. **Outputs.** `poll` fills an [`Output`] when it returns [`READY`] and not otherwise. Its object
//!    is owned by the caller.
//! 6. **Python.** Every function is called by an attached thread, but for those of wakers. Where the result
//!    is a Python object, null means that an exception is set.
//! 7. **Unwinding.** No call unwinds: each side turns its own panics into errors.

use std::ffi::{CStr, c_char, c_void};

/// The capsule's name, which says where it is.
pub const CAPSULE: &CStr = c"ringloop._native.embed_v1";

/// The version of the table that these types describe.
pub const VERSION: u32 = 1;

/// Result of a `poll`: the waker is woken later.
pub const PENDING: i32 = 0;

/// Result of a `poll`: the output is there.
pub const READY: i32 = 1;

/// [`Output::error`] of an error without a number; `text` has its words.
pub const OTHER_ERROR: i32 = -1;

/// Length of the words of an error; longer ones are cut.
pub const TEXT_BYTES: usize = 120;

/// A direction for [`Table::readiness`]: a read would not block.
pub const READABLE: u32 = 1;

/// A direction for [`Table::readiness`]: a write would not block.
pub const WRITABLE: u32 = 2;

/// A waker of ringloop's.
#[repr(C)]
pub struct HostWaker {
    _private: [u8; 0],
}

/// A TCP connection of ringloop's; of one thread.
#[repr(C)]
pub struct Tcp {
    _private: [u8; 0],
}

/// A Python object, of the interpreter that both sides run in.
pub type PyObject = c_void;

/// A future of either side.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Future {
    /// Its state; null where a function could not make one.
    pub data: *mut c_void,
    /// Polls it: [`PENDING`] or [`READY`].
    pub poll: unsafe extern "C" fn(*mut c_void, *const HostWaker, *mut Output) -> i32,
    /// Drops it; cancels what is in flight.
    pub drop: unsafe extern "C" fn(*mut c_void),
}

/// What a future yields.
#[repr(C)]
#[derive(Debug)]
pub struct Output {
    /// A Python object or a handle, if that is what it yields.
    pub object: *mut c_void,
    /// Bytes, or directions, if that is what it yields.
    pub count: usize,
    /// 0, an errno, or [`OTHER_ERROR`].
    pub error: i32,
    /// Length of the error's words, in UTF-8.
    pub text_len: u32,
    /// The words.
    pub text: [u8; TEXT_BYTES],
}

impl Output {
    /// Success, with nothing to say.
    pub const EMPTY: Self = Self {
        object: std::ptr::null_mut(),
        count: 0,
        error: 0,
        text_len: 0,
        text: [0; TEXT_BYTES],
    };
}

/// A waker of the extension's: of a combinator that polls its parts with wakers of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForeignWaker {
    /// Its state.
    pub data: *mut c_void,
    /// Wakes, from any thread.
    pub wake: unsafe extern "C" fn(*mut c_void),
    /// Drops it, on any thread.
    pub drop: unsafe extern "C" fn(*mut c_void),
}

/// First field of what owns a [`Memory`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Gives the memory back; gets the pointer that the memory came with.
    pub release: unsafe extern "C" fn(*mut Owner),
}

/// Bytes that an operation reads from or writes to, until it releases their owner.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The first byte.
    pub ptr: *mut u8,
    /// How many there are.
    pub len: usize,
    /// What keeps them.
    pub owner: *mut Owner,
}

/// How the table of every version begins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// [`VERSION`].
    pub version: u32,
    /// Bytes of the whole table.
    pub size: u32,
    /// The wheel's version, for messages.
    pub release: *const c_char,
}

/// What an extension may call.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// Which table it is.
    pub head: Head,

    /// Another reference to a waker.
    pub waker_clone: unsafe extern "C" fn(*const HostWaker) -> *const HostWaker,
    /// Wakes; the reference stays.
    pub waker_wake: unsafe extern "C" fn(*const HostWaker),
    /// Drops a reference that is owned.
    pub waker_drop: unsafe extern "C" fn(*const HostWaker),
    /// A waker that wakes the extension's, which it takes over.
    pub waker_of: unsafe extern "C" fn(ForeignWaker) -> *const HostWaker,

    /// Starts a future that yields a Python object on the loop that runs in this thread, and takes it
    /// over; returns its awaitable. It is polled once at once, later polls run in a copy of the
    /// caller's context, and cancelling the awaitable drops it.
    pub future_into_py: unsafe extern "C" fn(Future) -> *mut PyObject,
    /// Begins to run an awaitable, which is borrowed, in the current context. The future yields its
    /// result as an object; dropping it cancels the awaitable.
    pub into_future: unsafe extern "C" fn(*mut PyObject) -> Future,

    /// A future that is ready after so many nanoseconds. No data: no loop of ringloop runs here.
    pub sleep: unsafe extern "C" fn(u64) -> Future,
    /// A future that is ready, with the directions as count, each time that a descriptor's readiness
    /// changes: it may be polled again. The descriptor stays open until it is dropped. No data: as `sleep`.
    pub readiness: unsafe extern "C" fn(i32, u32) -> Future,

    /// Connects to `host:port`, in UTF-8; yields a [`Tcp`]. No data: as `sleep`.
    pub tcp_connect: unsafe extern "C" fn(*const u8, usize) -> Future,
    /// A connection of a descriptor, which it takes over.
    pub tcp_from_fd: unsafe extern "C" fn(i32) -> *mut Tcp,
    /// Its descriptor, which it keeps.
    pub tcp_fd: unsafe extern "C" fn(*const Tcp) -> i32,
    /// Receives into memory; yields a count of bytes, 0 at the end of the stream. No data: as `sleep`,
    /// and the memory is released.
    pub tcp_read: unsafe extern "C" fn(*const Tcp, Memory) -> Future,
    /// Sends all of it. No data: as `tcp_read`.
    pub tcp_write_all: unsafe extern "C" fn(*const Tcp, Memory) -> Future,
    /// Closes the connection, once no operation's future holds it.
    pub tcp_drop: unsafe extern "C" fn(*mut Tcp),
}

// SAFETY: the one pointer of a table is to text that nothing changes.
unsafe impl Sync for Table {}
