//! sendmsg(2) and recvmsg(2), by the calls of Winsock that each kind of message needs.

use super::constants::{EMSGSIZE, MSG_TRUNC};
use super::fail;
use super::sockets::{raw, told};
use super::types::{c_int, c_void, iovec, msghdr, ssize_t};
use std::ptr;
use std::sync::OnceLock;
use windows_sys::Win32::Foundation::GetLastError;
use windows_sys::Win32::Networking::WinSock::{self, SOCKET, WSABUF};

/// Buffers of a message in Winsock's form; few are on the stack.
struct Buffers {
    few: [WSABUF; 8],
    many: Vec<WSABUF>,
    count: usize,
}

impl Buffers {
    /// The buffers of a message.
    ///
    /// # Safety
    /// Its vector is that long.
    unsafe fn of(message: &msghdr) -> Self {
        let vector: &[iovec] = if message.msg_iovlen == 0 {
            &[]
        } else {
            // SAFETY: by this function's contract.
            unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) }
        };
        let mut buffers = Self { few: [empty(); 8], many: Vec::new(), count: vector.len() };
        let theirs = |entry: &iovec| WSABUF {
            len: u32::try_from(entry.iov_len).unwrap_or(u32::MAX),
            buf: entry.iov_base.cast(),
        };
        if vector.len() > buffers.few.len() {
            buffers.many = vector.iter().map(theirs).collect();
        } else {
            for (to, entry) in buffers.few.iter_mut().zip(vector) {
                *to = theirs(entry);
            }
        }
        buffers
    }

    fn as_mut_ptr(&mut self) -> *mut WSABUF {
        if self.many.is_empty() { self.few.as_mut_ptr() } else { self.many.as_mut_ptr() }
    }

    fn len(&mut self) -> usize {
        let buffers = if self.many.is_empty() { &self.few[..] } else { &self.many };
        buffers.iter().take(self.count).map(|buffer| buffer.len as usize).sum()
    }
}

fn empty() -> WSABUF {
    WSABUF { len: 0, buf: ptr::null_mut() }
}

fn control_of(message: &msghdr) -> WSABUF {
    WSABUF { len: message.msg_controllen as u32, buf: message.msg_control.cast() }
}

/// sendmsg(2).
///
/// # Safety
/// As of sendmsg(2).
pub unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: by this function's contract.
    let message = unsafe { &*message };
    // SAFETY: by this function's contract.
    let mut buffers = unsafe { Buffers::of(message) };
    let (at, count) = (buffers.as_mut_ptr(), buffers.count as u32);
    let (flags, mut sent) = (flags.cast_unsigned(), 0_u32);
    let (name, name_len) = (message.msg_name.cast(), message.msg_namelen as c_int);
    let done = if !message.msg_control.is_null() && message.msg_controllen > 0 {
        let theirs = WinSock::WSAMSG {
            name,
            namelen: if name.is_null() { 0 } else { name_len },
            lpBuffers: at,
            dwBufferCount: count,
            Control: control_of(message),
            dwFlags: 0,
        };
        // SAFETY: X2.
        unsafe {
            WinSock::WSASendMsg(
                raw(fd),
                &raw const theirs,
                flags,
                &raw mut sent,
                ptr::null_mut(),
                None,
            )
        }
    } else if name.is_null() {
        // SAFETY: X2.
        unsafe { WinSock::WSASend(raw(fd), at, count, &raw mut sent, flags, ptr::null_mut(), None) }
    } else {
        // SAFETY: X2.
        unsafe {
            WinSock::WSASendTo(
                raw(fd),
                at,
                count,
                &raw mut sent,
                flags,
                name,
                name_len,
                ptr::null_mut(),
                None,
            )
        }
    };
    if told(done) < 0 { -1 } else { sent as ssize_t }
}

/// recvmsg(2).
///
/// # Safety
/// As of recvmsg(2).
pub unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: by this function's contract.
    let message = unsafe { &mut *message };
    // SAFETY: by this function's contract.
    let mut buffers = unsafe { Buffers::of(message) };
    let (at, count) = (buffers.as_mut_ptr(), buffers.count as u32);
    let (mut flags, mut received) = (flags.cast_unsigned(), 0_u32);
    let name = message.msg_name;
    let done = if !message.msg_control.is_null() && message.msg_controllen > 0 {
        let Some(call) = receive_call(raw(fd)) else {
            return -1;
        };
        let mut theirs = WinSock::WSAMSG {
            name: name.cast(),
            namelen: message.msg_namelen as c_int,
            lpBuffers: at,
            dwBufferCount: count,
            Control: control_of(message),
            dwFlags: flags,
        };
        // SAFETY: X2.
        let done =
            unsafe { call(raw(fd), &raw mut theirs, &raw mut received, ptr::null_mut(), None) };
        message.msg_namelen = theirs.namelen.cast_unsigned();
        message.msg_controllen = theirs.Control.len as usize;
        flags = theirs.dwFlags;
        done
    } else if name.is_null() {
        // SAFETY: X2.
        unsafe {
            WinSock::WSARecv(
                raw(fd),
                at,
                count,
                &raw mut received,
                &raw mut flags,
                ptr::null_mut(),
                None,
            )
        }
    } else {
        let len = (&raw mut message.msg_namelen).cast();
        // SAFETY: X2.
        unsafe {
            WinSock::WSARecvFrom(
                raw(fd),
                at,
                count,
                &raw mut received,
                &raw mut flags,
                name.cast(),
                len,
                ptr::null_mut(),
                None,
            )
        }
    };
    message.msg_flags = flags.cast_signed();
    // SAFETY: no pointer is passed.
    if done < 0 && unsafe { GetLastError() }.cast_signed() == EMSGSIZE {
        message.msg_flags |= MSG_TRUNC;
        return buffers.len() as ssize_t;
    }
    if told(done) < 0 { -1 } else { received as ssize_t }
}

type Receive = unsafe extern "system" fn(
    SOCKET,
    *mut WinSock::WSAMSG,
    *mut u32,
    *mut windows_sys::Win32::System::IO::OVERLAPPED,
    WinSock::LPWSAOVERLAPPED_COMPLETION_ROUTINE,
) -> i32;

/// `WSARecvMsg`, which Winsock tells the address of.
fn receive_call(socket: SOCKET) -> Option<Receive> {
    static FOUND: OnceLock<Receive> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Some(*found);
    }
    let (id, mut found, mut len) = (WinSock::WSAID_WSARECVMSG, None::<Receive>, 0);
    let (at, id_len) = ((&raw const id).cast::<c_void>(), size_of_val(&id) as u32);
    let (into, room) = ((&raw mut found).cast::<c_void>(), size_of::<Option<Receive>>() as u32);
    let code = WinSock::SIO_GET_EXTENSION_FUNCTION_POINTER;
    // SAFETY: X2: both are live for the call, which writes the address of a function or nothing.
    let done = unsafe {
        WinSock::WSAIoctl(socket, code, at, id_len, into, room, &raw mut len, ptr::null_mut(), None)
    };
    if told(done) < 0 {
        return None;
    }
    if found.is_none() {
        fail(super::constants::ENOSYS);
    }
    found.map(|found| *FOUND.get_or_init(|| found))
}
