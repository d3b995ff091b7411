//! The kernel calls that the standard library does not offer: CPU pinning, epoll, `io_uring`.
//!
//! Owns: the epoll descriptor; the ring's descriptor, mappings, provided buffers and scratch buffer.
//! Called by: the drivers and `main`.
//! All `unsafe` of the load generator is in this file.
//!
//! # Invariants
//! 1. `Ring` maps its memory in `new` and never unmaps it: a run ends with the process. Every offset
//!    into the mappings comes from the kernel's own `Params` of the same ring.
//! 2. `Ring` is used by one thread (`*mut` fields make it `!Send`). It alone writes the submission
//!    tail, the completion head and the buffer tail (release); the kernel writes the rest (acquire).
//! 3. Memory named by a submission is `'static`: sent bytes by type, received bytes by (1).
//! 4. A provided buffer is ours from its completion to `recycle`, which borrows the ring mutably;
//!    the scratch buffer is ours while the caller has no scratch receive in flight.
//! 5. The structs passed to system calls are plain integers, valid when zeroed, and outlive the call.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;
use std::{mem, ptr, slice};

/// Convert a system call's `-1` into the error in `errno`.
fn checked(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Pin this thread to one CPU.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: (5).
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, so the bit lies inside `set`.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: (5).
    let result = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &raw const set) };
    checked(i64::from(result)).map(drop)
}

/// CPU time this process has used so far.
pub fn process_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: (5).
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Discard up to `len` received bytes inside the kernel, without a copy (tcp(7), `MSG_TRUNC`).
pub fn discard(fd: RawFd, len: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP receive writes nothing, so no memory is named.
    let result = unsafe { libc::recv(fd, ptr::null_mut(), len, libc::MSG_TRUNC) };
    checked(result as i64).map(|count| count as usize)
}

/// Have the kernel split what is sent on a UDP socket into datagrams of `len` bytes.
pub fn set_segment_len(fd: RawFd, len: usize) -> io::Result<()> {
    let len = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX);
    let size = mem::size_of_val(&len) as libc::socklen_t;
    let at = (&raw const len).cast();
    // SAFETY: (5).
    let result = unsafe { libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, at, size) };
    checked(i64::from(result)).map(drop)
}

/// Send `payload` on a connected socket `count` times in one system call; a partial send is not an
/// error.
pub fn send_many(fd: RawFd, payload: &'static [u8], count: usize) -> io::Result<()> {
    let mut iovec =
        libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
    // SAFETY: (5).
    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
    message.msg_hdr.msg_iov = &raw mut iovec;
    message.msg_hdr.msg_iovlen = 1;
    let mut messages = vec![message; count];
    // SAFETY: (5), and the kernel only reads the payload, which is 'static.
    let result = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count as libc::c_uint, 0) };
    checked(i64::from(result)).map(drop)
}

/// Connect to `server` from the address `source` and any port of it.
///
/// connect(2) chooses the port (`IP_BIND_ADDRESS_NO_PORT`): it may be in use
/// with another peer.
pub fn connect_from(source: Ipv4Addr, server: SocketAddr) -> io::Result<TcpStream> {
    let SocketAddr::V4(server) = server else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let fd = checked(i64::from(unsafe { libc::socket(libc::AF_INET, kind, 0) }))? as RawFd;
    // SAFETY: the kernel just opened `fd`; nothing else owns it.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let on: libc::c_int = 1;
    let (on_len, option) =
        (mem::size_of_val(&on) as libc::socklen_t, libc::IP_BIND_ADDRESS_NO_PORT);
    let at = (&raw const on).cast();
    // SAFETY: (5).
    let result = unsafe { libc::setsockopt(fd, libc::SOL_IP, option, at, on_len) };
    checked(i64::from(result))?;
    let (address, len) = raw_address(SocketAddrV4::new(source, 0));
    // SAFETY: (5).
    checked(i64::from(unsafe { libc::bind(fd, (&raw const address).cast(), len) }))?;
    let (address, len) = raw_address(server);
    // SAFETY: (5).
    checked(i64::from(unsafe { libc::connect(fd, (&raw const address).cast(), len) }))?;
    Ok(stream)
}

fn raw_address(address: SocketAddrV4) -> (libc::sockaddr_in, libc::socklen_t) {
    let raw = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    };
    (raw, mem::size_of_val(&raw) as libc::socklen_t)
}

/// Level-triggered readiness of many sockets.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    /// Open an epoll set that reports up to `capacity` sockets per wait.
    pub fn new(capacity: usize) -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = checked(i64::from(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }))?;
        // SAFETY: the kernel just opened `fd`; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; capacity.max(1)] })
    }

    /// Watch `fd` for input; `data` is returned with its events.
    pub fn add(&self, fd: RawFd, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, data, false)
    }

    /// Change whether `fd` is watched for output.
    pub fn watch_output(&self, fd: RawFd, data: u64, output: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, data, output)
    }

    /// Stop watching `fd`.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, false)
    }

    fn control(&self, operation: i32, fd: RawFd, data: u64, output: bool) -> io::Result<()> {
        let output = if output { libc::EPOLLOUT as u32 } else { 0 };
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32 | output, u64: data };
        let epoll = self.fd.as_raw_fd();
        // SAFETY: (5).
        checked(i64::from(unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut event) }))
            .map(drop)
    }

    /// Wait for at least one socket and collect the data of the ready ones in `ready`.
    pub fn wait(&mut self, ready: &mut Vec<u64>, timeout: Duration) -> io::Result<()> {
        ready.clear();
        let milliseconds = timeout.as_millis().min(1_000) as i32;
        let (events, len) = (self.events.as_mut_ptr(), self.events.len() as i32);
        // SAFETY: `events` has room for `len` entries and lives through the call.
        let result =
            unsafe { libc::epoll_wait(self.fd.as_raw_fd(), events, len, milliseconds.max(1)) };
        let count = match checked(i64::from(result)) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        ready.extend(self.events[..count].iter().map(|event| event.u64));
        Ok(())
    }
}

/// `struct io_sqring_offsets` / `struct io_cqring_offsets`: offsets of the ring's words. The two
/// structs have the same shape; the sixth and seventh words differ in meaning.
#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    /// Submission: flags. Completion: overflow count.
    fifth: u32,
    /// Submission: dropped count. Completion: the entries.
    sixth: u32,
    /// Submission: the index array. Completion: flags.
    seventh: u32,
    reserved: u32,
    user_addr: u64,
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Default)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    sq: Offsets,
    cq: Offsets,
}

/// `struct io_uring_sqe`, the fields that send and receive use.
#[repr(C)]
#[derive(Default)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    msg_flags: u32,
    user_data: u64,
    buf_group: u16,
    personality: u16,
    splice_fd_in: i32,
    rest: [u64; 2],
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawCompletion {
    user_data: u64,
    res: i32,
    flags: u32,
}

/// Bytes of a `struct io_uring_buf`: address (8), length (4), id (2), and two bytes that are the
/// ring's tail in the first entry and unused in the others.
const BUFFER_ENTRY_LEN: usize = 16;

/// `struct io_uring_buf_reg`.
#[repr(C)]
struct BufferRegistration {
    ring_addr: u64,
    ring_entries: u32,
    group: u16,
    flags: u16,
    reserved: [u64; 3],
}

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct WaitArgument {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timespec: u64,
}

const OP_SEND: u8 = 26;
const OP_RECV: u8 = 27;
const SQE_BUFFER_SELECT: u8 = 1 << 5;
const SQE_CQE_SKIP_SUCCESS: u8 = 1 << 6;
const RECV_POLL_FIRST: u16 = 1 << 0;
const RECV_MULTISHOT: u16 = 1 << 1;
/// `CQSIZE | SUBMIT_ALL | SINGLE_ISSUER | DEFER_TASKRUN`: completions are posted only in our waits.
const SETUP_FLAGS: u32 = 1 << 3 | 1 << 7 | 1 << 12 | 1 << 13;
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const REGISTER_PBUF_RING: u32 = 22;
const CQE_F_BUFFER: u32 = 1 << 0;
const CQE_F_MORE: u32 = 1 << 1;
const SUBMISSIONS_OFFSET: i64 = 0x1000_0000;

/// A completion.
pub struct Completion {
    /// The data of the submission.
    pub data: u64,
    /// Byte count, or a negative `errno`.
    pub result: i32,
    /// The multishot operation is still armed.
    pub more: bool,
    /// The provided buffer that holds the bytes.
    pub buffer: Option<u16>,
}

/// An `io_uring` with one group of provided buffers and one scratch buffer.
pub struct Ring {
    fd: OwnedFd,
    sq_tail: *mut u32,
    sq_mask: u32,
    sq_entries: u32,
    sq_head: *mut u32,
    submissions: *mut Submission,
    cq_head: *mut u32,
    cq_tail: *mut u32,
    cq_mask: u32,
    completions: *mut RawCompletion,
    buffers: *mut c_void,
    buffer_bytes: *mut u8,
    buffer_len: usize,
    buffer_mask: u16,
    buffer_tail: u16,
    scratch: *mut u8,
    scratch_len: usize,
    pending: u32,
}

impl Ring {
    /// Set up a ring for `connections` sockets, with two receive buffers of `buffer_len` bytes for
    /// each and a scratch buffer of `scratch_len` bytes.
    pub fn new(connections: usize, buffer_len: usize, scratch_len: usize) -> io::Result<Self> {
        let entries = (2 * connections).next_power_of_two().clamp(64, 4096) as u32;
        let mut params =
            Params { flags: SETUP_FLAGS, cq_entries: 4 * entries, ..Params::default() };
        // SAFETY: (5).
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut params) };
        let fd = checked(fd)? as RawFd;
        // SAFETY: the kernel just opened `fd`; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let sq_len = params.sq.seventh as usize + params.sq_entries as usize * 4;
        let cq_len =
            params.cq.sixth as usize + params.cq_entries as usize * mem::size_of::<RawCompletion>();
        let rings = map(sq_len.max(cq_len), Some((&fd, 0)))?;
        let submissions_len = params.sq_entries as usize * mem::size_of::<Submission>();
        let submissions = map(submissions_len, Some((&fd, SUBMISSIONS_OFFSET)))?;

        let buffer_count = (2 * connections).next_power_of_two().clamp(16, 1 << 15);
        let buffers = map(buffer_count * BUFFER_ENTRY_LEN, None)?;
        let word = |offset: u32| rings.wrapping_byte_add(offset as usize).cast::<u32>();
        let mut ring = Self {
            sq_head: word(params.sq.head),
            sq_tail: word(params.sq.tail),
            sq_mask: params.sq_entries - 1,
            sq_entries: params.sq_entries,
            submissions: submissions.cast(),
            cq_head: word(params.cq.head),
            cq_tail: word(params.cq.tail),
            cq_mask: params.cq_entries - 1,
            completions: word(params.cq.sixth).cast(),
            buffers,
            buffer_bytes: map(buffer_count * buffer_len, None)?.cast(),
            buffer_len,
            buffer_mask: buffer_count as u16 - 1,
            buffer_tail: 0,
            scratch: map(scratch_len.max(1), None)?.cast(),
            scratch_len,
            pending: 0,
            fd,
        };
        let indices = word(params.sq.seventh);
        for index in 0..params.sq_entries {
            // SAFETY: (1): the array has `sq_entries` words.
            unsafe { indices.wrapping_add(index as usize).write(index) };
        }
        ring.register_buffers(buffer_count as u32)?;
        (0..=ring.buffer_mask).for_each(|id| ring.recycle(id));
        Ok(ring)
    }

    fn register_buffers(&self, count: u32) -> io::Result<()> {
        let registration = BufferRegistration {
            ring_addr: self.buffers as u64,
            ring_entries: count,
            group: 0,
            flags: 0,
            reserved: [0; 3],
        };
        let fd = self.fd.as_raw_fd();
        let argument = &raw const registration;
        // SAFETY: (5); the ring memory it names stays mapped (1).
        checked(unsafe {
            libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_PBUF_RING, argument, 1)
        })
        .map(drop)
    }

    /// Send all of `bytes`; a completion is posted only on failure.
    pub fn send(&mut self, fd: RawFd, bytes: &'static [u8], data: u64) -> io::Result<()> {
        self.push(Submission {
            opcode: OP_SEND,
            flags: SQE_CQE_SKIP_SUCCESS,
            fd,
            addr: bytes.as_ptr() as u64,
            len: bytes.len() as u32,
            msg_flags: (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32,
            user_data: data,
            ..Submission::default()
        })
    }

    /// Receive into provided buffers until a completion without `more`.
    pub fn receive_multishot(&mut self, fd: RawFd, data: u64) -> io::Result<()> {
        self.push(Submission {
            opcode: OP_RECV,
            flags: SQE_BUFFER_SELECT,
            ioprio: RECV_MULTISHOT,
            fd,
            user_data: data,
            ..Submission::default()
        })
    }

    /// Receive exactly `len` bytes into the scratch buffer.
    pub fn receive_kept(&mut self, fd: RawFd, len: usize, data: u64) -> io::Result<()> {
        self.receive(fd, len, libc::MSG_WAITALL, data)
    }

    /// Receive up to `len` bytes and discard them in the kernel.
    ///
    /// Not `MSG_WAITALL`: discarded bytes do not count towards the requested length (Linux 6.18),
    /// so such a receive never completes.
    pub fn receive_dropped(&mut self, fd: RawFd, len: usize, data: u64) -> io::Result<()> {
        self.receive(fd, len, libc::MSG_TRUNC, data)
    }

    fn receive(&mut self, fd: RawFd, len: usize, flags: i32, data: u64) -> io::Result<()> {
        assert!(len <= self.scratch_len, "a message is longer than the scratch buffer");
        self.push(Submission {
            opcode: OP_RECV,
            ioprio: RECV_POLL_FIRST,
            fd,
            addr: self.scratch as u64,
            len: len as u32,
            msg_flags: flags as u32,
            user_data: data,
            ..Submission::default()
        })
    }

    /// The first `len` bytes of the last `receive_kept`.
    pub fn scratch(&self, len: usize) -> &[u8] {
        // SAFETY: (1), (4).
        unsafe { slice::from_raw_parts(self.scratch, len.min(self.scratch_len)) }
    }

    /// The bytes of a provided buffer.
    pub fn buffer(&self, id: u16, len: usize) -> &[u8] {
        let start = self.buffer_bytes.wrapping_add(usize::from(id) * self.buffer_len);
        // SAFETY: (1), (4); `id` comes from a completion, so it is a buffer of this group.
        unsafe { slice::from_raw_parts(start, len.min(self.buffer_len)) }
    }

    /// Return a provided buffer to the kernel.
    pub fn recycle(&mut self, id: u16) {
        let slot = usize::from(self.buffer_tail & self.buffer_mask);
        let entry = self.buffers.wrapping_byte_add(slot * BUFFER_ENTRY_LEN);
        let addr = self.buffer_bytes.wrapping_add(usize::from(id) * self.buffer_len) as u64;
        // SAFETY: (1), (2): the slot is inside the ring and the kernel reads it after the tail moves.
        unsafe { entry.cast::<u64>().write(addr) };
        let len = entry.cast::<u32>().wrapping_add(2);
        // SAFETY: as above.
        unsafe { len.write(self.buffer_len as u32) };
        let buffer_id = entry.cast::<u16>().wrapping_add(6);
        // SAFETY: as above.
        unsafe { buffer_id.write(id) };
        self.buffer_tail = self.buffer_tail.wrapping_add(1);
        let tail = self.buffers.cast::<u16>().wrapping_add(7);
        // SAFETY: (1), (2): the tail is in entry 0 and aligned.
        let tail = unsafe { AtomicU16::from_ptr(tail) };
        tail.store(self.buffer_tail, Ordering::Release);
    }

    fn push(&mut self, submission: Submission) -> io::Result<()> {
        if self.pending == self.sq_entries {
            self.enter(0, Duration::ZERO)?;
        }
        // SAFETY: (1), (2).
        let tail = unsafe { AtomicU32::from_ptr(self.sq_tail) };
        let position = tail.load(Ordering::Relaxed);
        let slot = self.submissions.wrapping_add((position & self.sq_mask) as usize);
        // SAFETY: (1), (2): the slot is free, `pending` never passes the ring's length.
        unsafe { slot.write(submission) };
        tail.store(position.wrapping_add(1), Ordering::Release);
        self.pending += 1;
        Ok(())
    }

    /// Submit what is queued and wait for one completion or the timeout.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.enter(1, timeout)
    }

    fn enter(&mut self, want: u32, timeout: Duration) -> io::Result<()> {
        let time = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
        };
        let argument = WaitArgument {
            sigmask: 0,
            sigmask_size: 0,
            min_wait_us: 0,
            timespec: (&raw const time) as u64,
        };
        let fd = self.fd.as_raw_fd();
        let flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
        // SAFETY: (5), (3).
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                self.pending,
                want,
                flags,
                &raw const argument,
                mem::size_of::<WaitArgument>(),
            )
        };
        // The SQ head tells how many entries were consumed: an error of the wait hides the count.
        // SAFETY: (1), (2).
        let head = unsafe { AtomicU32::from_ptr(self.sq_head) };
        // SAFETY: (1), (2).
        let tail = unsafe { AtomicU32::from_ptr(self.sq_tail) };
        self.pending = tail.load(Ordering::Relaxed).wrapping_sub(head.load(Ordering::Acquire));
        match checked(result) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Take the next completion.
    pub fn pop(&mut self) -> Option<Completion> {
        // SAFETY: (1), (2).
        let head_word = unsafe { AtomicU32::from_ptr(self.cq_head) };
        let head = head_word.load(Ordering::Relaxed);
        // SAFETY: (1), (2).
        let tail_word = unsafe { AtomicU32::from_ptr(self.cq_tail) };
        if head == tail_word.load(Ordering::Acquire) {
            return None;
        }
        let slot = self.completions.wrapping_add((head & self.cq_mask) as usize);
        // SAFETY: (1), (2): the kernel published this slot by moving the tail past it.
        let raw = unsafe { slot.read() };
        head_word.store(head.wrapping_add(1), Ordering::Release);
        let buffer = (raw.flags & CQE_F_BUFFER != 0).then_some((raw.flags >> 16) as u16);
        let more = raw.flags & CQE_F_MORE != 0;
        Some(Completion { data: raw.user_data, result: raw.res, more, buffer })
    }
}

/// Map `len` bytes: of a ring at an offset, or anonymous memory.
fn map(len: usize, of: Option<(&OwnedFd, i64)>) -> io::Result<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (flags, fd, offset) = match of {
        Some((fd, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
    };
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
    let address = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(address)
}

/// CPU time that all threads of process `pid` have used so far.
///
/// Source: `/proc/PID/task/*/schedstat`, whose first number is nanoseconds on a CPU.
pub fn cpu_time_of(pid: u32) -> io::Result<Duration> {
    let mut total_ns = 0u64;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = io::read_to_string(File::open(task?.path().join("schedstat"))?)?;
        total_ns += text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(total_ns))
}
