//! What a typed operation is: the request it becomes, and the output its last completion becomes.
//!
//! Owns: [`Kind`] and [`Outcome`]. Called by: `executor::operation`, which makes futures of kinds.
//! Never does: submit anything.

use super::Request;
use std::io;

/// What an operation ended with. Only a driver makes one: a descriptor in it is owned by whoever has it.
///
/// ```compile_fail,E0451
/// ringloop::op::Outcome { result: Ok(7), request: None };
/// ```
#[derive(Debug)]
pub struct Outcome {
    /// A count or descriptor, or the error.
    pub(crate) result: io::Result<u32>,
    /// The request, with its buffers.
    pub(crate) request: Option<Request>,
}

impl Outcome {
    /// A count or descriptor, or the error; and the request, with its buffers, unless the runtime was torn down under
    /// the operation.
    #[inline]
    pub fn into_parts(self) -> (io::Result<u32>, Option<Request>) {
        (self.result, self.request)
    }

    /// Of an operation that was over before it was submitted.
    pub(crate) fn of(result: i32, request: Request) -> Self {
        let result = u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Self {
            result,
            request: Some(request),
        }
    }
}

/// An operation that can be awaited.
pub trait Kind: Sized + Unpin {
    /// What awaiting it yields.
    type Output;

    /// The request to submit.
    fn into_request(self) -> Request;

    /// The output of the last completion. A kind of one's own may pass it on to the one whose request it made; any
    /// other finds neither its buffers there nor a descriptor.
    fn output(outcome: Outcome) -> Self::Output;
}
