//! No operation: a round trip through the driver, for tests and measurements.

use super::operation::{Need, Operation};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// An operation that completes with 0.
#[derive(Debug)]
pub struct Nop;

impl Operation for Nop {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_NOP;
    }

    fn need(&self) -> Need {
        Need::Nothing
    }

    fn attempt(&mut self) -> io::Result<u32> {
        Ok(0)
    }
}
