//! The crate's system calls: memory for stacks, the fault when one overflows, the process's threads.
//!
//! Owns: the files of this folder. Called by: `stack`, `overflow`, `deadlock`, and `net`, for the
//! sockets that only some systems have. It knows no coroutines.

pub(crate) mod fault;
mod memory;
#[cfg(unix)]
mod platform;
mod threads;
pub(crate) mod unix_net;

pub(crate) use memory::{Mapping, Stack, guard_len, is_overflow, page_len};
pub(crate) use threads::thread_count;

#[cfg(test)]
pub(crate) use memory::tests::count_at as memory_of_tests;
