//! The driver beneath Winsock, AFD, and the completion port that its polls complete at. So may the operations
//! of others, on handles that they have associated with it, whose memory is theirs.
//!
//! Owns: a port ([`Port`]), AFD's device ([`Device`]) and the memory of a poll ([`Poll`]). Called by: the
//! selector and what wakes it. Knows nothing of registrations.
//!
//! A poll of AFD is an I/O control code that completes once one of its events holds, as `select` of Winsock
//! itself uses it. It is not documented, but so old and so much built on (wepoll, libuv, mio) that it stays.
//!
//! # Invariants
//! - **Q1** A pointer handed to the system is to live memory for the call; those of a poll until its
//!   completion was dequeued.
//! - **Q2** A handle that a call returned without an error is fresh, and nothing else owns it.
//! - **Q3** `GetQueuedCompletionStatusEx` fills exactly as many entries as it says.
//! - **Q4** The memory of a poll is at one address, and the system's alone, from its submission to its
//!   completion. A [`Poll`] holds it by a raw pointer, of which no reference is made: to move a `Box`, or to
//!   borrow it, would claim memory that the system writes.

use super::fd::{RawFd, of_handle, socket_of};
use super::interest::Interest;
use super::libc;
use std::ffi::c_void;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::{self, NonNull};
use std::time::Duration;
use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{FILE_OPEN, NtCancelIoFileEx, NtCreateFile};
use windows_sys::Wdk::System::IO::NtDeviceIoControlFile;
use windows_sys::Win32::Foundation::{
    HANDLE, INVALID_HANDLE_VALUE, NTSTATUS, RtlNtStatusToDosError, STATUS_CANCELLED,
    STATUS_NOT_FOUND, STATUS_PENDING, UNICODE_STRING, WAIT_TIMEOUT,
};
use windows_sys::Win32::Networking::WinSock::{SIO_BASE_HANDLE, WSAIoctl};
use windows_sys::Win32::Storage::FileSystem::{FILE_SHARE_READ, FILE_SHARE_WRITE, SYNCHRONIZE};
use windows_sys::Win32::System::IO::{
    CreateIoCompletionPort, GetQueuedCompletionStatusEx, IO_STATUS_BLOCK, OVERLAPPED_ENTRY,
    PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::Threading::INFINITE;

/// Completions of a single wait.
pub const REPORTS_PER_WAIT: usize = 256;

const IOCTL_AFD_POLL: u32 = 0x0001_2024;

const AFD_POLL_RECEIVE: u32 = 0x001;
const AFD_POLL_SEND: u32 = 0x004;
const AFD_POLL_DISCONNECT: u32 = 0x008;
const AFD_POLL_ABORT: u32 = 0x010;
const AFD_POLL_LOCAL_CLOSE: u32 = 0x020;
const AFD_POLL_ACCEPT: u32 = 0x080;
const AFD_POLL_CONNECT_FAIL: u32 = 0x100;

/// The key of a notification.
const WAKE_KEY: usize = 1;
/// The key of a poll's completion. Those of others have other keys, `_overlapped` of CPython 0.
const POLL_KEY: usize = 2;

/// A completion port.
#[derive(Debug)]
pub struct Port(OwnedHandle);

/// A dequeued completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// A notification.
    Wake,
    /// The poll at this address.
    Poll(usize),
    /// An operation of somebody else, whose `OVERLAPPED` has this address; it is not looked into.
    Other(usize),
}

impl Port {
    /// Creates a port.
    ///
    /// # Errors
    /// A lack of memory or handles.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let port = unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, 1) };
        if port.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: Q2.
        Ok(Self(unsafe { OwnedHandle::from_raw_handle(port) }))
    }

    fn raw(&self) -> HANDLE {
        self.0.as_raw_handle()
    }

    /// Its descriptor, which stays this port's.
    pub fn descriptor(&self) -> RawFd {
        of_handle(self.raw())
    }

    /// Ends a wait, this one or the next.
    pub fn wake(&self) {
        // SAFETY: no pointer is passed. It fails for lack of memory alone, and the next one is another try.
        unsafe { PostQueuedCompletionStatus(self.raw(), 0, WAKE_KEY, ptr::null()) };
    }

    /// Waits for completions, at most [`REPORTS_PER_WAIT`]; none if the time is over first. The system
    /// counts in milliseconds, and may end a wait early by a part of one.
    pub fn wait(&self, timeout: Option<Duration>, out: &mut Vec<Completed>) -> io::Result<()> {
        let milliseconds = timeout.map_or(INFINITE, |timeout| {
            let rounded = timeout.as_nanos().div_ceil(1_000_000);
            u32::try_from(rounded).unwrap_or(INFINITE - 1).min(INFINITE - 1)
        });
        let mut entries = [MaybeUninit::<OVERLAPPED_ENTRY>::uninit(); REPORTS_PER_WAIT];
        let (at, room, mut count) = (entries.as_mut_ptr().cast(), entries.len() as u32, 0);
        // SAFETY: Q1.
        let done = unsafe {
            GetQueuedCompletionStatusEx(self.raw(), at, room, &raw mut count, milliseconds, 0)
        };
        if done == 0 {
            let error = io::Error::last_os_error();
            let is_over = error.raw_os_error() == Some(WAIT_TIMEOUT.cast_signed());
            return if is_over { Ok(()) } else { Err(error) };
        }
        for entry in &entries[..count as usize] {
            // SAFETY: Q3.
            let entry = unsafe { entry.assume_init() };
            out.push(match entry.lpCompletionKey {
                WAKE_KEY => Completed::Wake,
                POLL_KEY => Completed::Poll(entry.lpOverlapped as usize),
                _ => Completed::Other(entry.lpOverlapped as usize),
            });
        }
        Ok(())
    }
}

/// AFD's device.
#[derive(Debug)]
pub struct Device(OwnedHandle);

impl Device {
    /// Opens it; its polls complete at `port`.
    ///
    /// # Errors
    /// A lack of memory or handles; that of a system without AFD.
    pub fn open(port: &Port) -> io::Result<Self> {
        let name: Vec<u16> = r"\Device\Afd\Ringloop".encode_utf16().collect();
        let bytes = size_of_val(&name[..]) as u16;
        let name = UNICODE_STRING {
            Length: bytes,
            MaximumLength: bytes,
            Buffer: name.as_ptr().cast_mut(),
        };
        let attributes = OBJECT_ATTRIBUTES {
            Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
            RootDirectory: ptr::null_mut(),
            ObjectName: &raw const name,
            Attributes: 0,
            SecurityDescriptor: ptr::null(),
            SecurityQualityOfService: ptr::null(),
        };
        let (mut handle, mut status): (HANDLE, _) = (ptr::null_mut(), IO_STATUS_BLOCK::default());
        // SAFETY: Q1.
        let done = unsafe {
            NtCreateFile(
                &raw mut handle,
                SYNCHRONIZE,
                &raw const attributes,
                &raw mut status,
                ptr::null(),
                0,
                FILE_SHARE_READ | FILE_SHARE_WRITE,
                FILE_OPEN,
                0,
                ptr::null(),
                0,
            )
        };
        if done != 0 {
            return Err(error_of(done));
        }
        // SAFETY: Q2.
        let device = Self(unsafe { OwnedHandle::from_raw_handle(handle) });
        // SAFETY: no pointer is passed.
        let joined = unsafe { CreateIoCompletionPort(device.raw(), port.raw(), POLL_KEY, 0) };
        if joined.is_null() { Err(io::Error::last_os_error()) } else { Ok(device) }
    }

    fn raw(&self) -> HANDLE {
        self.0.as_raw_handle()
    }
}

/// `AFD_POLL_INFO` with its one handle.
#[repr(C)]
#[derive(Debug)]
struct PollInfo {
    timeout: i64,
    handle_count: u32,
    is_exclusive: u32,
    socket: HANDLE,
    events: u32,
    status: NTSTATUS,
}

/// What the system writes. The address of the first field identifies it.
#[repr(C)]
struct Memory {
    status: IO_STATUS_BLOCK,
    info: PollInfo,
}

impl Memory {
    fn new(socket: HANDLE, events: u32) -> Self {
        let mut status = IO_STATUS_BLOCK::default();
        status.Anonymous.Status = STATUS_PENDING;
        let (timeout, handle_count, is_exclusive) = (i64::MAX, 1, 0);
        let info = PollInfo { timeout, handle_count, is_exclusive, socket, events, status: 0 };
        Self { status, info }
    }
}

/// The memory of a poll, freed on drop.
pub struct Poll {
    memory: NonNull<Memory>,
    socket: HANDLE,
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// These directions are ready; none, of a poll that ended by itself.
    Ready(Interest),
    /// It was cancelled.
    Cancelled,
    /// The socket was closed.
    Closed,
}

impl Poll {
    /// Memory for polls of a socket.
    pub fn new(base: HANDLE) -> Self {
        let memory = Box::new(Memory::new(base, 0));
        Self { memory: NonNull::from(Box::leak(memory)), socket: base }
    }

    /// The address that its completion tells.
    pub fn address(&self) -> usize {
        self.memory.as_ptr() as usize
    }

    /// Submits the poll. A completion follows unless it fails.
    ///
    /// # Errors
    /// `EBADF` of what is no socket any more; a lack of memory.
    ///
    /// # Safety
    /// It is not submitted; it stays at its address, and untouched, until its completion was dequeued.
    pub unsafe fn submit(&mut self, device: &Device, interest: Interest) -> io::Result<()> {
        // SAFETY: Q4: it is not submitted.
        unsafe { self.memory.write(Memory::new(self.socket, events_of(interest))) };
        let status = self.memory.as_ptr().cast::<IO_STATUS_BLOCK>();
        // SAFETY: it is within the memory.
        let info = unsafe { self.memory.byte_add(offset_of!(Memory, info)) }.as_ptr().cast();
        let len = size_of::<PollInfo>() as u32;
        // SAFETY: Q1, Q4.
        let done = unsafe {
            NtDeviceIoControlFile(
                device.raw(),
                ptr::null_mut(),
                None,
                status.cast(),
                status,
                IOCTL_AFD_POLL,
                info,
                len,
                info,
                len,
            )
        };
        // A poll that ends at once completes at the port, too.
        if done == 0 || done == STATUS_PENDING { Ok(()) } else { Err(error_of(done)) }
    }

    /// Cancels the poll, whose completion still comes.
    pub fn cancel(&self, device: &Device) {
        let (mut done, poll) = (IO_STATUS_BLOCK::default(), self.memory.as_ptr().cast());
        // SAFETY: Q1; the system reads the address of the poll alone.
        let status = unsafe { NtCancelIoFileEx(device.raw(), poll, &raw mut done) };
        debug_assert!(status == 0 || status == STATUS_NOT_FOUND, "{status:#x}");
    }

    /// The result, after the completion.
    pub fn result(&self) -> Polled {
        // SAFETY: Q4: the completion has written it.
        let Memory { status, info } = unsafe { self.memory.read() };
        // SAFETY: as before.
        let status = unsafe { status.Anonymous.Status };
        if status == STATUS_CANCELLED {
            return Polled::Cancelled;
        }
        if status < 0 {
            // As an error of the socket, which the next call on it fetches.
            return Polled::Ready(Interest::BOTH);
        }
        if info.handle_count == 0 {
            return Polled::Ready(Interest::NONE);
        }
        if info.events & AFD_POLL_LOCAL_CLOSE != 0 {
            return Polled::Closed;
        }
        Polled::Ready(interest_of(info.events))
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        // SAFETY: Q4: it is not in flight; the memory is that of a box.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

fn events_of(interest: Interest) -> u32 {
    let mut events = AFD_POLL_ABORT | AFD_POLL_CONNECT_FAIL | AFD_POLL_LOCAL_CLOSE;
    if interest.contains(Interest::READ) {
        events |= AFD_POLL_RECEIVE | AFD_POLL_ACCEPT | AFD_POLL_DISCONNECT;
    }
    if interest.contains(Interest::WRITE) {
        events |= AFD_POLL_SEND;
    }
    events
}

fn interest_of(events: u32) -> Interest {
    let mut interest = Interest::NONE;
    if events & (AFD_POLL_ABORT | AFD_POLL_CONNECT_FAIL) != 0 {
        return Interest::BOTH;
    }
    if events & (AFD_POLL_RECEIVE | AFD_POLL_ACCEPT | AFD_POLL_DISCONNECT) != 0 {
        interest |= Interest::READ;
    }
    if events & AFD_POLL_SEND != 0 {
        interest |= Interest::WRITE;
    }
    interest
}

/// The socket beneath filters that wrap it, which AFD knows.
///
/// # Errors
/// `EBADF` of what is no socket.
pub fn base_of(fd: RawFd) -> io::Result<HANDLE> {
    let (mut base, mut len): (HANDLE, _) = (ptr::null_mut(), 0);
    let (into, room) = ((&raw mut base).cast::<c_void>(), size_of::<HANDLE>() as u32);
    let (socket, none) = (socket_of(fd) as usize, ptr::null_mut());
    // SAFETY: Q1.
    let done = unsafe {
        let code = SIO_BASE_HANDLE;
        WSAIoctl(socket, code, ptr::null(), 0, into, room, &raw mut len, none, None)
    };
    if done == 0 { Ok(base) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
}

fn error_of(status: NTSTATUS) -> io::Error {
    // SAFETY: no pointer is passed.
    let code = unsafe { RtlNtStatusToDosError(status) };
    io::Error::from_raw_os_error(code.cast_signed())
}
