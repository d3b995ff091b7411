//! What a typed operation is: the request it becomes, and the output its last completion becomes.
//!
//! Owns: [`Kind`] and [`Outcome`]. Called by: `executor::operation`, which makes futures of kinds.
//! Never does: submit anything.

use super::Request;
use crate::driver::Completion;
use std::io;

/// What an operation ended with.
#[derive(Debug)]
pub struct Outcome {
    /// A count or descriptor, or the error.
    pub result: io::Result<u32>,
    /// The request, with its buffers.
    pub request: Option<Request>,
}

impl From<Completion> for Outcome {
    fn from(completion: Completion) -> Self {
        Self {
            result: completion.result(),
            request: completion.request,
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
