//! The message for a coroutine that has overflowed its stack.
//!
//! Owns: the text. Called by: `scheduler`, which installs it, and the fault handler (`sys/fault`),
//! in which nothing may allocate or lock.
//!
//! The access beyond the stack hits its guard and faults. Rust's code touches every page on its way
//! down, so it cannot step over the guard; C code with frames of more than a page might.

use crate::switch::with_current;
use crate::sys::{self, fault};
use std::io::Write;

/// Has overflows reported. If the system refuses the handler, they end the process without a
/// message.
pub(crate) fn report_overflows() {
    drop(fault::install(explain));
}

/// Explains a fault that is an overflow of the running coroutine; `false` for any other.
fn explain(address: usize, write: fn(&[u8])) -> bool {
    with_current(|frame| {
        let Some(frame) = frame else {
            return false;
        };
        let (low, len) = frame.stack;
        if !sys::is_overflow(low, len, address) {
            return false;
        }
        let mut text = [0; 512];
        let mut room = &mut text[..];
        // A message that is too long is cut.
        let _ = writeln!(
            room,
            "\ncoroutine {} has overflowed its stack of {} KiB; Spawn::stack_size raises it for one coroutine, \
             Builder::stack_size for all",
            frame.header(),
            (len - sys::guard_len()) / 1024
        );
        let room_len = room.len();
        write(&text[..text.len() - room_len]);
        true
    })
}
