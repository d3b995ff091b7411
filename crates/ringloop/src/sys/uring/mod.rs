//! The ring: `io_uring`, from its ABI up to a pair of queues.
//!
//! Owns: the ring's descriptor, its mapped queues, its buffer rings, and the check whether this
//! kernel's ring is usable. Called by: the ring driver, which knows the operations, keeps the
//! memory that entries point to, and chooses epoll after a [`Refusal`].
//!
//! Reading order: [`abi`] what the kernel reads and writes ▸ [`ring`] the two queues ▸
//! [`buffer_ring`] provided buffers ▸ [`slots`] registered files and buffers ▸ `setup` how a ring is created ▸ [`features`] optional features ▸
//! [`refusal`] reasons for a refusal ▸ `kernel` the three system calls, and a trait by which tests
//! simulate other kernels.
//!
//! Supported are Linux 6.1 and later (deferred task work). Older kernels use epoll; there is no
//! third path.

pub mod abi;
pub mod buffer_ring;
pub mod features;
mod kernel;
mod open;
pub mod refusal;
pub mod ring;
mod setup;
pub mod slots;
#[cfg(test)]
mod testing;

pub use buffer_ring::BufferRing;
pub use features::{Feature, Features};
pub use refusal::{Cause, Refusal};
pub use ring::{Ring, Split};
pub use setup::Config;
pub use slots::{Slot, Slots, Table as SlotTable};
