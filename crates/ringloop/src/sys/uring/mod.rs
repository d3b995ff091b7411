//! The ring: `io_uring`, from its ABI up to a pair of queues.
//!
//! Owns: the ring's descriptor, its mapped queues, its buffer rings, and the judgement whether this
//! kernel offers a ring that is worth having. Called by: the ring driver. Never does: knowing which
//! operation an entry belongs to, keeping the memory that an entry points to, or choosing epoll: it
//! returns a [`Refusal`], and the driver chooses.
//!
//! Reading order: [`abi`] what the kernel reads and writes ▸ [`ring`] the two queues ▸
//! [`buffer_ring`] memory lent to the kernel ▸ [`chunk_ring`] the same, used in pieces ▸ [`slots`] files and
//! buffers it has at hand ▸ `setup` how a ring is asked for ▸ [`features`] what the kernel has beyond that ▸
//! [`refusal`] why it may say no ▸ `kernel` the three system calls,
//! and the seam at which tests put another kernel.
//!
//! One kernel line is supported: Linux 6.1 and later (deferred task work). Older ones get epoll;
//! there is no third path.

pub mod abi;
pub mod buffer_ring;
pub mod chunk_ring;
pub mod features;
mod kernel;
mod open;
pub mod refusal;
pub mod ring;
mod setup;
pub mod slots;

pub use buffer_ring::{BufferRing, Detached};
pub use chunk_ring::ChunkRing;
pub use features::{Feature, Features};
pub use refusal::{Cause, Refusal};
pub use ring::{Ring, Split};
pub use setup::Config;
pub use slots::{Slot, Slots, Table as SlotTable};
