//! The engine for embedders: code that runs it in another loop, or builds a runtime on it.
//!
//! The asyncio loop, the coroutines and QUIC use the engine through this module. Layers 1 to 3 are
//! private; applications use the other public modules.
//!
//! | to | use |
//! |---|---|
//! | turn an engine, and get completions as [`Event`]s | [`Engine`], [`Driver`], [`Sink`] |
//! | turn an engine with tasks and timers | [`Local`], [`Entered`], [`Inbox`] |
//! | await an operation, or a chain of linked ones | [`Op`], [`Link`], [`op`] |
//! | open a file by the flags of open(2) | [`open_file`] |
//! | make a system call that has no operation | [`sys`] |
//! | keep values by key, or deadlines in order | [`slab`], [`Deadlines`] |

pub use crate::deadlines::Deadlines;
pub use crate::driver::{Completion, Driver, Event, Key, Kind, Sink, Token};
pub use crate::executor::{
    Blocking, Chain, Engine, Entered, First, Inbox, Limited, Link, Linked, Local, Op,
    ReadThenWrite, Received, RecvInto, Returned, SendZeroCopy, Step, Then, Timers, Unpark,
    ZeroCopyBufs,
};
pub use crate::fs::options::open_file;
pub use crate::sys::pool::PoolBuffer;

/// Operations: what [`Op`] awaits and [`Driver::submit`] takes.
pub mod op {
    pub use crate::op::*;
}

/// The engine's limits, each with its unit and its reason.
pub mod limits {
    pub use crate::limits::*;
}

/// Values by key.
pub mod slab {
    pub use crate::slab::*;
}

/// System calls and values of the kernel boundary.
pub mod sys {
    // For tests, which run on systems that have them otherwise.
    pub use crate::sys::{
        address, clock, datagram, file, fork, interest, path, platform, private, process, refused,
        reserve, selector, socket, storage, thread, uring,
    };
    #[doc(hidden)]
    pub use crate::sys::{fd, libc};
}
