//! Layer 4: sockets as `async fn`s over operations.
//!
//! Called by: Rust programs. Never does: a system call that could block.

mod tcp;

pub use tcp::{TcpListener, TcpStream};
