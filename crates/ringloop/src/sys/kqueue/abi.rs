//! The structure and the numbers of kqueue(2): the C library's, or libkqueue's for the tests on Linux.

#[cfg(not(libkqueue))]
pub use libc::{
    EV_ADD, EV_CLEAR, EV_DELETE, EV_EOF, EV_ERROR, EV_ONESHOT, EV_RECEIPT, EVFILT_PROC,
    EVFILT_READ, EVFILT_USER, EVFILT_WRITE, NOTE_EXIT, NOTE_TRIGGER, kevent, kqueue,
};

#[cfg(not(libkqueue))]
pub type RawEvent = libc::kevent;

#[cfg(libkqueue)]
pub use libkqueue::*;

use std::ptr;

/// An event with these fields.
pub fn event(ident: usize, filter: i16, flags: u16, of_filter: u32) -> RawEvent {
    let udata = ptr::null_mut();
    RawEvent {
        ident,
        filter,
        flags,
        fflags: of_filter,
        data: 0,
        udata,
        #[cfg(target_os = "freebsd")]
        ext: [0; 4],
    }
}

/// `include/sys/event.h` of libkqueue.
#[cfg(libkqueue)]
mod libkqueue {
    use std::ffi::{c_int, c_void};

    #[derive(Clone, Copy)]
    #[repr(C)]
    pub struct RawEvent {
        pub ident: usize,
        pub filter: i16,
        pub flags: u16,
        pub fflags: u32,
        pub data: isize,
        pub udata: *mut c_void,
    }

    pub const EVFILT_READ: i16 = -1;
    pub const EVFILT_WRITE: i16 = -2;
    pub const EVFILT_PROC: i16 = -5;
    pub const EVFILT_USER: i16 = -11;
    pub const EV_ADD: u16 = 0x1;
    pub const EV_DELETE: u16 = 0x2;
    pub const EV_ONESHOT: u16 = 0x10;
    pub const EV_CLEAR: u16 = 0x20;
    pub const EV_RECEIPT: u16 = 0x40;
    pub const EV_ERROR: u16 = 0x4000;
    pub const EV_EOF: u16 = 0x8000;
    pub const NOTE_TRIGGER: u32 = 0x0100_0000;
    pub const NOTE_EXIT: u32 = 0x8000_0000;

    #[link(name = "kqueue")]
    unsafe extern "C" {
        pub fn kqueue() -> c_int;
        pub fn kevent(
            queue: c_int,
            changes: *const RawEvent,
            change_count: c_int,
            reports: *mut RawEvent,
            report_count: c_int,
            timeout: *const libc::timespec,
        ) -> c_int;
    }
}
