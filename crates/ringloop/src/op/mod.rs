//! Layer 2: the operations, with both forms side by side; a file for each, or for some that are akin.
//!
//! Owns: what each operation submits: its SQE for the ring, and its interest and its non-blocking
//! system call for the readiness driver. `executor::Op` makes futures of them. Called by: the drivers
//! (`prepare`, `need`, `attempt`), which decide when an operation runs. All state is in the request.
//!
//! # Invariants
//! 1. A request is prepared in its slot of the in-flight table and stays there until its last
//!    completion; until then pointers into it, and into the buffers it owns, are valid.
//! 2. An operation that can yield a descriptor closes it if its result is discarded.

mod accept;
mod cancel;
mod close;
mod connect;
mod descriptors;
mod file_system;
mod key;
mod metadata;
mod nop;
mod open;
mod operation;
mod poll;
mod poll_borrowed;
mod read;
mod recv;
mod recvmsg;
mod recvmsg_multi;
mod registered;
mod request;
mod send;
mod send_datagram;
mod send_zc;
mod splice;
mod timeout;
mod vector;
mod wait_child;
mod write;

pub use accept::Accept;
pub use cancel::Cancel;
pub use close::Close;
pub use connect::Connect;
pub use descriptors::{Descriptors, RecvDescriptors, SendDescriptors};
pub use file_system::{
    Allocate, Fsync, HardLink, MakeDir, NameAt, Rename, Symlink, Truncate, Unlink,
};
pub(crate) use key::GENERATION_MASK;
pub use key::Key;
pub use metadata::Statx;
pub use nop::Nop;
pub use open::Open;
pub use operation::{Completable, Ended};
pub(crate) use operation::{NO_FD, Need, Operation, Shape, raw_of, result_of};
pub use poll::{Poll, PollMulti};
pub use poll_borrowed::{PollBorrowed, PollMode};
pub use read::{Read, ReadFixed};
pub use recv::{Peek, Recv, RecvMulti, RecvPooled};
pub use recvmsg::RecvMsg;
pub use recvmsg_multi::RecvMsgMulti;
pub use registered::{RegisteredBuf, RegisteredFd};
pub use request::{Kind, Outcome, Request};
pub use send::Send;
pub use send_datagram::SendDatagram;
pub use send_zc::{SendMsgZc, SendZc, Transfer, ZeroCopy};
pub use splice::{Splice, Tee};
pub use timeout::Timeout;
pub use vector::{ReadV, SendMsg, WriteV};
pub use wait_child::WaitChild;
pub use write::{Write, WriteFixed};
