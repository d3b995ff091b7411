//! What is said when a coroutine has used up its stack.
//!
//! Called by: `host` (once a thread), and the fault's handler. Never does: allocate or lock in the handler.
//!
//! The access that goes past the stack hits its guard and faults. Rust's code touches every page on its way down, so
//! it cannot step over the guard; C code with frames of more than a page might.

use crate::switch::with_current;
use crate::sys::{self, fault};
use std::fmt::{self, Write};

pub(crate) use crate::sys::fault::FaultGuard;

/// Explain the overflows of the calling thread's coroutines. Where the system refuses it they end the process
/// without a word.
pub(crate) fn watch() -> Option<FaultGuard> {
    fault::watch(explain).ok()
}

/// Text of bounded length, on the stack.
struct MessageBuf {
    bytes: [u8; 512],
    len: usize,
}

impl Write for MessageBuf {
    /// What does not fit is left out.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

/// Whether the fault at `address` is an overflow of the coroutine that runs; said if so.
fn explain(address: usize, say: fn(&[u8])) -> bool {
    with_current(|frame| {
        let Some(frame) = frame else {
            return false;
        };
        let (low, len) = frame.stack;
        if !(low..low + sys::page_len()).contains(&address) {
            return false;
        }
        let mut words = MessageBuf {
            bytes: [0; 512],
            len: 0,
        };
        // It never fails.
        let _ = writeln!(
            words,
            "\ncoroutine {} has overflowed its stack of {} KiB; Spawn::stack_size raises it for one coroutine, \
             Builder::stack_size for all",
            frame.head(),
            (len - sys::page_len()) / 1024
        );
        say(&words.bytes[..words.len]);
        true
    })
}
