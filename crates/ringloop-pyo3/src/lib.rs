#![doc = include_str!("../README.md")]
#![allow(clippy::doc_markdown, reason = "the readme is text, too")]
#![deny(unsafe_code)]

mod future;
pub mod net;
#[allow(unsafe_code, reason = "the table is C; each file has its invariants")]
mod raw;
pub mod time;

pub use future::{future_into_py, initialise, into_future};
