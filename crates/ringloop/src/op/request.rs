//! All operations as one type.
//!
//! Owns: [`Request`], and [`Kind`], the operations that can be awaited. Called by: the drivers,
//! which keep requests; `executor`, which makes futures of kinds.

use super::{
    Accept, Allocate, Cancel, Close, Completable, Connect, Ended, Fsync, HardLink, MakeDir, Need,
    Nop, Open, Operation, Peek, Poll, PollBorrowed, PollMulti, Read, ReadFixed, ReadV, Recv,
    RecvDescriptors, RecvMsg, RecvMsgMulti, RecvMulti, RecvPooled, Rename, Send, SendDatagram,
    SendDescriptors, SendMsg, SendMsgZc, SendZc, Shape, Splice, Statx, Symlink, Tee, Timeout,
    Transfer, Truncate, Unlink, WaitChild, Write, WriteFixed, WriteV,
};
use crate::buf::SendBuf;
use crate::sys::uring::Feature;
use crate::sys::uring::abi::Sqe;
use std::io;

/// The end of any operation.
pub type Outcome = Ended<Request>;

/// An operation that can be awaited.
pub trait Kind: Sized + Unpin {
    /// Output of the awaited operation.
    type Output;

    /// The request to submit.
    fn into_request(self) -> Request;

    /// The output of the last completion. A custom kind may pass it on to the kind whose request it
    /// made; any other finds neither its buffers nor a descriptor in it.
    fn output(outcome: Outcome) -> Self::Output;
}

/// The request's variants, each named after its operation: the single-shot ones, which can be
/// awaited, beginning with operations that return no value, and the multishot ones.
macro_rules! requests {
    ($($group:ident: { $($op:ident)+ })+) => {
        /// Every operation a driver can run. It moves into the in-flight table and comes back with
        /// the last completion.
        #[derive(Debug)]
        #[non_exhaustive]
        // Each variant is described at the operation of its name.
        #[allow(missing_docs)]
        pub enum Request {
            $($($op($op),)+)+
        }

        /// Evaluates an expression on the operation that the request holds.
        macro_rules! each {
            ($request:expr, $inner:ident => $body:expr) => {
                match $request {
                    $($(Request::$op($inner) => $body,)+)+
                }
            };
        }

        $($(awaited!($group $op);)+)+
    };
}

/// Makes a variant of [`Request`] awaitable.
macro_rules! awaited {
    (unit $op:ident) => {
        impl Completable for $op {
            type Output = io::Result<()>;

            fn complete(ended: Ended<Self>) -> Self::Output {
                ended.result.map(drop)
            }
        }

        awaited!(single $op);
    };
    (single $op:ident) => {
        impl Kind for $op {
            type Output = <Self as Completable>::Output;

            #[inline]
            fn into_request(self) -> Request {
                Request::$op(self.single())
            }

            #[inline]
            fn output(outcome: Outcome) -> Self::Output {
                let request = match outcome.request {
                    Some(Request::$op(request)) => Some(request),
                    _ => None,
                };
                let result = outcome.result;
                Self::complete(Ended { result, request })
            }
        }
    };
    (other $op:ident) => {};
}

requests! {
    unit: {
        Nop Connect Close Fsync Allocate Truncate Rename Unlink MakeDir Symlink HardLink WaitChild
        Timeout Cancel
    }
    single: {
        Poll Accept Recv Peek Send SendMsg SendDatagram RecvMsg Read ReadV ReadFixed WriteFixed
        Write WriteV Splice Tee Open Statx SendDescriptors RecvDescriptors
    }
    other: {
        PollMulti PollBorrowed RecvPooled RecvMulti SendZc SendMsgZc RecvMsgMulti
    }
}

/// Like the functions of [`Operation`], for all but sends and receives: those are the hot path, and
/// are matched first.
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

    fn is_borrowed(&self) -> bool {
        each!(self, op => op.is_borrowed())
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

    fn discard(&mut self, result: i32) {
        each!(self, op => op.discard(result));
    }
}

impl Request {
    /// See [`Operation::EXPOSES_MEMORY`].
    pub(crate) fn exposes_memory(&self) -> bool {
        fn of<O: Operation>(_: &O) -> bool {
            O::EXPOSES_MEMORY
        }
        each!(self, op => of(op))
    }

    /// Takes the buffers out of a completed send, zero-copy or plain.
    pub(crate) fn into_sent(self) -> (Vec<SendBuf>, Transfer) {
        match self {
            Self::SendZc(send) => send.into_parts(),
            Self::SendMsgZc(send) => send.into_parts(),
            Self::Send(send) => (vec![send.buf], Transfer::Copied),
            Self::SendMsg(send) => (send.into_bufs(), Transfer::Copied),
            _ => (Vec::new(), Transfer::Copied),
        }
    }
}
