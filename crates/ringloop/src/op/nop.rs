//! Do nothing: a round trip through the driver, for tests and for measuring it.

use super::{Need, Operation, Request};
use crate::op::{Kind, Outcome};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// An operation that completes with 0.
#[derive(Debug)]
pub struct Nop;

impl Operation for Nop {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::OP_NOP;
    }

    fn need(&self) -> Need {
        Need::Nothing
    }

    fn attempt(&mut self) -> io::Result<u32> {
        Ok(0)
    }
}

impl Kind for Nop {
    type Output = io::Result<()>;

    fn into_request(self) -> Request {
        Request::Nop(self)
    }

    fn output(outcome: Outcome) -> Self::Output {
        outcome.result.map(drop)
    }
}
