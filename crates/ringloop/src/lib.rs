//! One async I/O engine: `io_uring` first, readiness where the kernel refuses it.
//!
//! Read the layers in this order: [`sys`] (the kernel boundary) ▸ `driver` and `op` ▸ `executor` ▸ `net` and `time`.

pub mod sys;
