//! The system calls of this crate: memory for stacks, and the fault where one overflows.
//!
//! Called by: `stack`, `overflow`. Never does: know of coroutines.

pub(crate) mod fault;
mod memory;

pub(crate) use memory::{Mapping, page_len};

#[cfg(test)]
pub(crate) use memory::tests::count_at as memory_of_tests;
