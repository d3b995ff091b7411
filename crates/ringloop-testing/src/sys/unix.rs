//! On Unix: the kernel's own files and calls.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// CPU time of this process.
pub fn processor_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to room for one.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    assert_eq!(done, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Whether a process has ended by `abort`.
pub fn has_aborted(status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGABRT)
}

/// Whether a process has ended by an invalid access.
pub fn has_faulted(status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGSEGV)
}

/// Number of open descriptors.
pub fn open_descriptors() -> usize {
    // The listing itself holds one.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// The open descriptors and their files, for the message of a failure.
pub fn described_descriptors() -> String {
    let names = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let file = std::fs::read_link(&path).ok()?;
        Some(format!("{} {}", path.file_name()?.to_str()?, file.display()))
    });
    names.collect::<Vec<_>>().join(", ")
}

/// A Unix socket whose peer's queue is full of datagrams of four bytes, their numbers from 0 on; and that peer.
pub fn full_unix_datagrams() -> (UnixDatagram, UnixDatagram) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("ringloop-full-{}-{number}", std::process::id());
    let address = UnixAddr::from_abstract_name(name).unwrap();
    let receiver = UnixDatagram::bind_addr(&address).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.connect_addr(&address).unwrap();
    sender.set_nonblocking(true).unwrap();
    let mut next = 0_u32;
    while sender.send(&next.to_le_bytes()).is_ok() {
        next += 1;
    }
    (sender, receiver)
}

/// Makes a system call of this thread fail with an error, like a container's filter.
pub fn deny(call: libc::c_long, errno: i32) {
    let statement =
        |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let answer = libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap();
    let mut filter = [
        // The number of the call is the first word of `seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::try_from(call).unwrap()),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, answer),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program =
        libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_mut_ptr() };
    // SAFETY: no pointer is passed.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(done, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: a pointer to a live program, which the kernel copies.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(done, 0);
}
