//! What a typed operation is: the request it becomes, and the output its last completion becomes.
//!
//! Owns: [`Kind`] and [`Outcome`]. Called by: `executor::operation`, which makes futures of kinds.
//! Never does: submit anything.

use super::Request;
use std::io;

/// What an operation ended with.
#[derive(Debug)]
pub struct Outcome {
    /// A count or descriptor, or the error.
    pub result: io::Result<u32>,
    /// The request, with its buffers.
    pub request: Option<Request>,
}

impl Outcome {
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

    /// The output of the last completion.
    fn output(outcome: Outcome) -> Self::Output;
}
