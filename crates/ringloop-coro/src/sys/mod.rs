//! The crate's system calls: memory for stacks, and the fault when one overflows.
//!
//! Owns: the files of this folder. Called by: `stack`, `overflow`. It knows no coroutines.

pub(crate) mod fault;
mod memory;
mod platform;

pub(crate) use memory::{Mapping, page_len};

#[cfg(test)]
pub(crate) use memory::tests::count_at as memory_of_tests;
