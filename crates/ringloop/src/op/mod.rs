//! Layer 2: the operations, one file each, with both of its forms in one window.
//!
//! Owns: what each operation asks of the kernel: its SQE for the ring, and its interest and its
//! non-blocking system call for the readiness driver. As futures they are `executor::Op`.
//! Called by: the drivers (`prepare`, `need`, `attempt`).
//! Never does: decide when an operation runs, or keep state of its own outside the request.
//!
//! # Invariants
//! 1. A request is prepared in its slot of the in-flight table and stays there until its last
//!    completion; pointers into it, and into the buffers it owns, are good for that long.
//! 2. An operation that can yield a descriptor closes it when its result belongs to nobody.

mod accept;
mod allocate;
mod cancel;
mod close;
mod connect;
mod descriptors;
mod fsync;
mod hard_link;
mod kind;
mod metadata;
mod mkdir;
mod nop;
mod open;
mod peek;
mod poll;
mod poll_listener;
mod poll_multi;
mod read;
mod read_fixed;
mod readv;
mod recv;
mod recv_pooled;
mod recvmsg;
mod recvmsg_multi;
mod registered;
mod rename;
mod send;
mod send_datagram;
mod send_zc;
mod sendmsg;
mod splice;
mod symlink;
mod tee;
mod timeout;
mod truncate;
mod unlink;
mod vector;
mod wait_child;
mod write;
mod write_fixed;
mod writev;

use crate::driver::{Key, PoolKind};
use crate::limits;
use crate::sys::interest::Interest;
use crate::sys::uring::Feature;
use crate::sys::uring::abi::Sqe;
use std::io;
use std::os::fd::RawFd;

pub use accept::Accept;
pub use allocate::Allocate;
pub use cancel::Cancel;
pub use close::Close;
pub use connect::Connect;
pub use descriptors::{Descriptors, RecvDescriptors, SendDescriptors};
pub use fsync::Fsync;
pub use hard_link::HardLink;
pub use kind::{Kind, Outcome};
pub use metadata::Statx;
pub use mkdir::MakeDir;
pub use nop::Nop;
pub use open::Open;
pub use peek::{Peek, Peeking};
pub use poll::Poll;
pub use poll_listener::PollListener;
pub use poll_multi::PollMulti;
pub use read::Read;
pub use read_fixed::ReadFixed;
pub use readv::ReadV;
pub use recv::{Recv, RecvMulti};
pub use recv_pooled::RecvPooled;
pub use recvmsg::RecvMsg;
pub use recvmsg_multi::RecvMsgMulti;
pub use registered::{RegisteredBuf, RegisteredFd};
pub use rename::Rename;
pub use send::Send;
pub use send_datagram::SendDatagram;
pub(crate) use send_zc::sent_parts;
pub use send_zc::{SendMsgZc, SendZc, Transfer};
pub use sendmsg::SendMsg;
pub use splice::Splice;
pub use symlink::Symlink;
pub use tee::Tee;
pub use timeout::Timeout;
pub use truncate::Truncate;
pub use unlink::Unlink;
pub use wait_child::WaitChild;
pub use write::Write;
pub use write_fixed::WriteFixed;
pub use writev::WriteV;

/// In place of a descriptor: none.
pub(crate) const NO_FD: RawFd = -1;

/// What the readiness driver has to wait for before it tries an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: the call never blocks.
    Nothing,
    /// The descriptor to be ready.
    Ready(RawFd, Interest),
    /// The monotonic clock to pass this many nanoseconds.
    Clock(u64),
    /// Another operation to be cancelled.
    Cancel(Key),
    /// A thread that may block, for a call on these descriptors ([`NO_FD`]: none). First it is tried
    /// without.
    Pool([RawFd; 2]),
}

/// How an operation goes on after a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One completion, and it is over.
    Once,
    /// As `Once`, but the ring driver asks the request after each completion whether it goes on.
    Retried,
    /// As `Once`, and the completion carries a buffer of this pool.
    OnceBuffer(PoolKind),
    /// Completes until it fails: the ring keeps it armed, and the driver re-arms it.
    Multi,
    /// As `Multi`, and each completion carries a buffer of this pool.
    MultiBuffer(PoolKind),
    /// Level-triggered: armed again after each completion was handled.
    Level,
    /// Edge-triggered: completes at changes; completions that nobody took yet are one.
    Edge,
}

impl Shape {
    /// The pool whose buffers its completions carry.
    pub const fn pool(self) -> Option<PoolKind> {
        match self {
            Self::OnceBuffer(kind) | Self::MultiBuffer(kind) => Some(kind),
            Self::Once | Self::Retried | Self::Multi | Self::Level | Self::Edge => None,
        }
    }

    /// Whether it is over with one result on the readiness driver.
    pub const fn is_single(self) -> bool {
        matches!(self, Self::Once | Self::Retried)
    }

    /// Completions that may wait for a future before the operation is paused until they are taken.
    pub const fn untaken_max(self) -> usize {
        match self {
            Self::Once | Self::Retried | Self::OnceBuffer(_) | Self::Level => usize::MAX,
            Self::Multi => limits::UNTAKEN_CONNECTIONS_MAX,
            Self::MultiBuffer(PoolKind::Streams | PoolKind::Singles) => {
                limits::UNTAKEN_RECEIVES_MAX
            }
            Self::MultiBuffer(PoolKind::Bundles) => limits::UNTAKEN_BUNDLED_MAX,
            Self::MultiBuffer(PoolKind::Pieces) => limits::UNTAKEN_PIECES_MAX,
            Self::MultiBuffer(PoolKind::Datagrams) => limits::UNTAKEN_DATAGRAMS_MAX,
            Self::Edge => 1,
        }
    }
}

/// One operation in both forms.
pub(crate) trait Operation {
    /// Ring form: fill the submission entry. Called with the request in its slot (invariant 1).
    fn prepare(&mut self, sqe: &mut Sqe);

    /// Readiness form: what to wait for. It may change by an attempt that would have blocked.
    fn need(&self) -> Need;

    /// Readiness form: the system call, without blocking. `WouldBlock` means "wait and try again".
    fn attempt(&mut self) -> io::Result<u32> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Ring form: what a try that would have blocked has learnt is of no use.
    fn forget_attempt(&mut self) {}

    /// Readiness form of what needs a pool thread: the system call, on that thread.
    fn work(&mut self) -> io::Result<u32> {
        self.attempt()
    }

    /// Ring form: what the ring must have beyond the required; asked of what needs a pool thread on
    /// the other driver. Without it the driver calls `work` itself.
    fn wants(&self) -> Option<Feature> {
        None
    }

    /// How it goes on after a completion.
    fn shape(&self) -> Shape {
        Shape::Once
    }

    /// Ring form of what is [`Shape::Retried`]: take note of a completion, and tell whether the operation is to be armed
    /// again for what it needs next.
    fn goes_on(&mut self, _result: i32) -> bool {
        false
    }

    /// Whether the driver may arm it again by its descriptor's number, where its shape goes on.
    fn rearms(&self) -> bool {
        true
    }

    /// Whether a link ends with this result. The kernel's rule: after an error, and after a file transfer
    /// that moved less than it was asked to.
    fn breaks_link(&mut self, result: i32) -> bool {
        result < 0
    }

    /// Take note of the result before the request is handed back; returns it in the words that both
    /// drivers share.
    fn finish(&mut self, result: i32) -> i32 {
        result
    }

    /// Whether the kernel may touch memory of the request, or of the pool, while it is in flight. What
    /// it copies when the entry is submitted (an address, a time) does not count.
    fn lends_memory(&self) -> bool {
        false
    }

    /// Give back a result that nobody will take (invariant 2).
    fn discard(&mut self, _result: i32) {}
}

/// Every operation a driver can run. It moves into the in-flight table and comes back with the
/// last completion.
#[derive(Debug)]
#[non_exhaustive]
pub enum Request {
    /// Do nothing, once.
    Nop(Nop),
    /// Wait until a descriptor is ready.
    Poll(Poll),
    /// Hear of each change of a descriptor's readiness.
    PollMulti(PollMulti),
    /// Wait for connections at a listener that may be shared.
    PollListener(PollListener),
    /// Take a connection off a listener.
    Accept(Accept),
    /// Connect a socket.
    Connect(Connect),
    /// Receive into the request's own buffer.
    Recv(Recv),
    /// Receive once into a buffer of the pool.
    RecvPooled(RecvPooled),
    /// Look at what a socket holds.
    Peek(Peeking),
    /// Receive again and again into buffers of the pool.
    RecvMulti(RecvMulti),
    /// Send one buffer.
    Send(Send),
    /// Send several buffers in one call.
    SendMsg(SendMsg),
    /// Send one datagram.
    SendDatagram(SendDatagram),
    /// Send one buffer without copying.
    SendZc(SendZc),
    /// Send several buffers without copying.
    SendMsgZc(SendMsgZc),
    /// Receive a message with its source address.
    RecvMsg(RecvMsg),
    /// Receive messages again and again into buffers of the pool for datagrams.
    RecvMsgMulti(RecvMsgMulti),
    /// Close a descriptor.
    Close(Close),
    /// Read from a file or pipe.
    Read(Read),
    /// Read from a file into several buffers.
    ReadV(ReadV),
    /// Read from a registered file into a registered buffer.
    ReadFixed(ReadFixed),
    /// Write to a registered file from a registered buffer.
    WriteFixed(WriteFixed),
    /// Write to a file or pipe.
    Write(Write),
    /// Write several buffers to a file.
    WriteV(WriteV),
    /// Move bytes between a pipe and a descriptor.
    Splice(Splice),
    /// Show the bytes of one pipe to another.
    Tee(Tee),
    /// Bring a file to the disk.
    Fsync(Fsync),
    /// Reserve space for a file.
    Allocate(Allocate),
    /// Set a file's length.
    Truncate(Truncate),
    /// Open a file.
    Open(Open),
    /// Read a file's metadata.
    Statx(Statx),
    /// Rename a file.
    Rename(Rename),
    /// Remove a name.
    Unlink(Unlink),
    /// Create a directory.
    MakeDir(MakeDir),
    /// Create a symbolic link.
    Symlink(Symlink),
    /// Create a hard link.
    HardLink(HardLink),
    /// Send bytes and descriptors.
    SendDescriptors(SendDescriptors),
    /// Receive bytes and descriptors.
    RecvDescriptors(RecvDescriptors),
    /// Wait for the end of a child process.
    WaitChild(WaitChild),
    /// Wait for the clock.
    Timeout(Timeout),
    /// Cancel another operation.
    Cancel(Cancel),
}

/// Run one expression on whichever operation the request holds.
macro_rules! each {
    ($request:expr, $op:ident => $body:expr) => {
        match $request {
            Request::Nop($op) => $body,
            Request::Poll($op) => $body,
            Request::PollMulti($op) => $body,
            Request::PollListener($op) => $body,
            Request::Accept($op) => $body,
            Request::Connect($op) => $body,
            Request::Recv($op) => $body,
            Request::RecvPooled($op) => $body,
            Request::Peek($op) => $body,
            Request::RecvMulti($op) => $body,
            Request::Send($op) => $body,
            Request::SendMsg($op) => $body,
            Request::SendDatagram($op) => $body,
            Request::SendZc($op) => $body,
            Request::SendMsgZc($op) => $body,
            Request::RecvMsg($op) => $body,
            Request::RecvMsgMulti($op) => $body,
            Request::Close($op) => $body,
            Request::Read($op) => $body,
            Request::ReadV($op) => $body,
            Request::ReadFixed($op) => $body,
            Request::WriteFixed($op) => $body,
            Request::Write($op) => $body,
            Request::WriteV($op) => $body,
            Request::Splice($op) => $body,
            Request::Tee($op) => $body,
            Request::Fsync($op) => $body,
            Request::Allocate($op) => $body,
            Request::Truncate($op) => $body,
            Request::Open($op) => $body,
            Request::Statx($op) => $body,
            Request::Rename($op) => $body,
            Request::Unlink($op) => $body,
            Request::MakeDir($op) => $body,
            Request::Symlink($op) => $body,
            Request::HardLink($op) => $body,
            Request::SendDescriptors($op) => $body,
            Request::RecvDescriptors($op) => $body,
            Request::WaitChild($op) => $body,
            Request::Timeout($op) => $body,
            Request::Cancel($op) => $body,
        }
    };
}

/// As the functions of [`Operation`], for what is neither a send nor a receive: those are what a message costs, and are
/// asked for first.
impl Request {
    fn prepare_other(&mut self, sqe: &mut Sqe) {
        each!(self, op => op.prepare(sqe));
    }

    fn need_of_other(&self) -> Need {
        each!(self, op => op.need())
    }

    fn finish_other(&mut self, result: i32) -> i32 {
        each!(self, op => op.finish(result))
    }
}

impl Operation for Request {
    #[inline]
    fn prepare(&mut self, sqe: &mut Sqe) {
        match self {
            Self::Send(send) => send.prepare(sqe),
            Self::Recv(recv) => recv.prepare(sqe),
            other => other.prepare_other(sqe),
        }
    }

    #[inline]
    fn need(&self) -> Need {
        match self {
            Self::Send(send) => send.need(),
            Self::Recv(recv) => recv.need(),
            other => other.need_of_other(),
        }
    }

    fn attempt(&mut self) -> io::Result<u32> {
        each!(self, op => op.attempt())
    }

    fn forget_attempt(&mut self) {
        each!(self, op => op.forget_attempt());
    }

    fn work(&mut self) -> io::Result<u32> {
        each!(self, op => op.work())
    }

    fn wants(&self) -> Option<Feature> {
        each!(self, op => op.wants())
    }

    fn shape(&self) -> Shape {
        each!(self, op => op.shape())
    }

    fn goes_on(&mut self, result: i32) -> bool {
        each!(self, op => op.goes_on(result))
    }

    fn rearms(&self) -> bool {
        each!(self, op => op.rearms())
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        each!(self, op => op.breaks_link(result))
    }

    #[inline]
    fn finish(&mut self, result: i32) -> i32 {
        match self {
            Self::Send(send) => send.finish(result),
            Self::Recv(recv) => recv.finish(result),
            other => other.finish_other(result),
        }
    }

    fn lends_memory(&self) -> bool {
        each!(self, op => op.lends_memory())
    }

    fn discard(&mut self, result: i32) {
        each!(self, op => op.discard(result));
    }
}
