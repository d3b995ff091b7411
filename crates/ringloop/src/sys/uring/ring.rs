//! The two queues of a ring.
//!
//! Owns: the ring's descriptor and both mappings. Called by: the ring driver, from the thread that
//! enabled the ring. Does not interpret completions, keep what an entry points to, or distinguish
//! an expired wait from a woken one.
//!
//! Byte path: from the kernel's completion to the driver's table, and from the table to the kernel.
//!
//! ```text
//!           submission queue                          completion queue
//!       ┌───┬───┬───┬───┬───┬───┐                 ┌───┬───┬───┬───┬───┬───┐
//!       │   │ a │ b │ c │   │   │                 │   │ x │ y │   │   │   │
//!       └───┴───┴───┴───┴───┴───┘                 └───┴───┴───┴───┴───┴───┘
//!             ▲           ▲                             ▲       ▲
//!            head        tail                          head    tail
//!         the kernel    we write                     we write  the kernel
//!         writes it     it                           it        writes it
//!
//!   push                                          pop
//!     1 load head, Acquire                          1 load tail, Acquire
//!       the kernel has read what lies before          the kernel has written what lies before
//!     2 write the entry                             2 copy the entry
//!     3 store tail, Release                         3 store head, Release
//!       the entry is whole before it is seen          the copy is made before it is overwritten
//! ```
//! Each index has one writer, which stores with Release; the other side loads with Acquire. So what
//! an index promises is true before it is seen. On x86 both are plain moves; on ARM they are the
//! instructions `ldar` and `stlr`.
//!
//! Both indices run over all of `u32`; the slot is `index & mask`, the fill is `tail - head`
//! (wrapping). On a kernel without `NO_SQARRAY`, an array of indices is between it and the entries;
//! it is filled once with 0, 1, 2, …
//!
//! A ring is created disabled, by any thread, and becomes usable by [`Ring::enable`] on the thread
//! that will run it. From then on no other thread may enter (`EEXIST`) and nothing completes unless
//! that thread asks for events.
//!
//! # Invariants
//! - **R1** The words, entries and completions pointed to are inside the mappings and aligned while
//!   the `Ring` lives.
//! - **R2** Entries in `head .. tail` of the submission queue are the kernel's; all others are ours
//!   to write.
//! - **R3** Completions in `head .. tail` of the completion queue are ours to read; all others are
//!   the kernel's.
//! - **R4** What an entry names (memory, a buffer group) is valid until its last completion: the
//!   contract of [`Ring::push`]'s caller.
//! - **R5** An argument of `io_uring_enter` is a live local of the size given.
//! - **R6** Only a holder of `&mut Ring` moves our indices; the value may change threads, the
//!   kernel itself refuses a second submitter.
//! - **R7** The slot of the registered descriptor is used, and freed, only by the thread that
//!   registered it: slots belong to threads.
//! - **R8** Without a polling thread the kernel reads entries only inside `io_uring_enter`: between
//!   two calls queued entries may be read and written again.

use super::abi::{self, Cqe, GetEventsArg, Sqe, Timespec};
use super::features::{Feature, Features};
use super::kernel;
use super::setup::Created;
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::file::Descriptor;
use crate::sys::libc;
use crate::sys::memory::Mapping;
use crate::sys::platform;
use std::io;
use std::ptr;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Longest timeout passed to the kernel, which adds it to its clock without checking for overflow.
/// A longer wait ends early with nothing; the caller retries.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Yields to the polling thread before entries are left on the queue, as after an `EAGAIN`.
const TAKE_YIELDS_MAX: u32 = 100_000;

/// A submission and a completion queue.
///
/// Dropping a ring unmaps and closes it, but does not stop requests in flight: the kernel tears the
/// ring down later, and disks go on writing into buffers meanwhile. Cancel and reap first
/// ([`Ring::pop`] until nothing is in flight), then free buffers.
///
/// After a fork the child has the descriptor but not the queues: it may only drop the value.
#[derive(Debug)]
pub struct Ring {
    sq: Submission,
    cq: Completion,
    features: Features,
    enter_fd: RawFd,
    /// Bits for every enter: [`abi::IORING_ENTER_REGISTERED_RING`] once registered.
    enter_flags: u32,
    /// Bits for an enter that asks for events.
    wait_flags: u32,
    /// A kernel thread takes the entries.
    polling: bool,
    registered: Option<Registered>,
    /// Simulates a kernel without memory, which takes fewer entries than there are.
    #[cfg(test)]
    pub takes_at_most: u32,
    // Fields are dropped in order: the mappings go before the descriptor.
    _queues: Mapping,
    _entries: Mapping,
    fd: Descriptor,
}

// SAFETY: R6.
unsafe impl Send for Ring {}

#[derive(Debug)]
struct Registered {
    slot: u32,
    thread: libc::pid_t,
}

impl Ring {
    pub(super) fn map(Created { fd, params, features }: Created) -> io::Result<Self> {
        let queues = Mapping::of_fd(fd.as_raw_fd(), queues_len(&params), abi::IORING_OFF_SQ_RING)?;
        let entries_len = params.sq_entries as usize * size_of::<Sqe>();
        let entries = Mapping::of_fd(fd.as_raw_fd(), entries_len, abi::IORING_OFF_SQES)?;
        let (Some(sq), Some(cq)) =
            (Submission::locate(&queues, &entries, &params), Completion::locate(&queues, &params))
        else {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        };
        let no_iowait =
            if features.has(Feature::NoIowait) { abi::IORING_ENTER_NO_IOWAIT } else { 0 };
        Ok(Self {
            sq,
            cq,
            features,
            enter_fd: fd.as_raw_fd(),
            enter_flags: 0,
            wait_flags: abi::IORING_ENTER_GETEVENTS | abi::IORING_ENTER_EXT_ARG | no_iowait,
            polling: params.flags & abi::IORING_SETUP_SQPOLL != 0,
            registered: None,
            #[cfg(test)]
            takes_at_most: u32::MAX,
            _queues: queues,
            _entries: entries,
            fd: fd.into(),
        })
    }

    /// Binds the ring to the calling thread; call it once, before anything is submitted.
    ///
    /// The thread also gets a slot for the ring's descriptor, which saves 30 ns per enter; without
    /// a free slot, the ring works too. See `io_uring_register(2)`, `IORING_REGISTER_ENABLE_RINGS`
    /// and `IORING_REGISTER_RING_FDS`.
    ///
    /// # Errors
    /// `EBADFD` if it is enabled already.
    pub fn enable(&mut self) -> io::Result<()> {
        // SAFETY: R5: this opcode takes no argument.
        unsafe { self.register(abi::IORING_REGISTER_ENABLE_RINGS, ptr::null_mut(), 0) }
            .map_err(closed_under_us)?;
        let mut update =
            abi::ResourceUpdate { offset: u32::MAX, data: self.fd.as_raw_fd() as u64, resv: 0 };
        let at = (&raw mut update).cast();
        // SAFETY: R5: one update, which the kernel reads and writes during the call.
        if let Ok(1) = unsafe { self.register(abi::IORING_REGISTER_RING_FDS, at, 1) } {
            self.registered = Some(Registered { slot: update.offset, thread: thread_id() });
            self.enter_fd = update.offset as RawFd;
            self.enter_flags = abi::IORING_ENTER_REGISTERED_RING;
        }
        Ok(())
    }

    /// Queues an entry; the kernel sees it at the next [`Ring::submit`] or [`Ring::enter`]. Costs
    /// about 5 ns.
    ///
    /// # Errors
    /// The entry itself if the queue is full; submit, then push again.
    ///
    /// # Safety
    /// All that the entry names, by address or by buffer group, stays valid until the last completion of
    /// the entry (the one without [`Cqe::more`], or a zero-copy send's [`Cqe::notification`]), even if it
    /// is cancelled, and even if the ring is dropped before.
    pub unsafe fn push(&mut self, sqe: Sqe) -> Result<(), Sqe> {
        if !self.has_room() {
            return Err(sqe);
        }
        self.sq.write(sqe);
        self.sq.tail.store(self.sq.next);
        Ok(())
    }

    /// Like [`Ring::push`], but `fill` writes the entry in place, which is zeroed: saves a copy.
    /// `false` if the queue is full; then `fill` was not called.
    ///
    /// # Safety
    /// As [`Ring::push`].
    #[inline(always)]
    pub unsafe fn push_with(&mut self, fill: impl FnOnce(&mut Sqe)) -> bool {
        if !self.has_room() {
            return false;
        }
        fill(self.sq.entry());
        self.sq.next = self.sq.next.wrapping_add(1);
        self.sq.tail.store(self.sq.next);
        true
    }

    /// True if the queue takes another entry.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.pending() <= self.sq.mask
    }

    /// Queues entries that must be submitted together, such as a link; `false` if they do not all
    /// fit.
    ///
    /// # Safety
    /// As [`Ring::push`], for each.
    pub unsafe fn push_all(&mut self, entries: &[Sqe]) -> bool {
        if self.pending() as usize + entries.len() > self.sq.mask as usize + 1 {
            return false;
        }
        for sqe in entries {
            self.sq.write(*sqe);
        }
        self.sq.tail.store(self.sq.next);
        true
    }

    /// Number of entries that the kernel has not taken yet.
    pub fn pending(&self) -> u32 {
        self.sq.next.wrapping_sub(self.sq.head.load())
    }

    /// Submits what is queued, without running completions.
    ///
    /// Entries that the kernel could not take now (`EAGAIN`, `ENOMEM` no memory, `EBUSY`, `EINTR`) stay queued: check [`Ring::pending`]. Costs a system call, none with nothing queued. With submission polling, the time until the kernel thread has taken them, and a system call only if that thread sleeps.
    ///
    /// # Errors
    /// `EEXIST` on another thread than the one that enabled it; `EBADFD` if it is not enabled. The
    /// entries stay queued then too.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.pending() == 0 {
            return Ok(());
        }
        if self.polling {
            return self.wait_until_taken();
        }
        // SAFETY: R4, R5: no argument is passed.
        settle(unsafe {
            kernel::enter(self.enter_fd, self.to_submit(), 0, self.enter_flags, ptr::null(), 0)
        })
    }

    /// Number of entries to submit.
    fn to_submit(&self) -> u32 {
        #[cfg(test)]
        return self.pending().min(self.takes_at_most);
        #[cfg(not(test))]
        self.pending()
    }

    /// Waits until the polling thread has taken everything that is queued.
    fn wait_until_taken(&mut self) -> io::Result<()> {
        self.enter(0, None)?;
        for _ in 0..TAKE_YIELDS_MAX {
            if self.pending() == 0 {
                break;
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// True if the polling thread sleeps with entries queued.
    fn needs_wakeup(&self) -> bool {
        // The tail's store must be visible before the flags are read: the thread sets its flag,
        // then checks the tail once more, and goes to sleep.
        fence(Ordering::SeqCst);
        self.pending() > 0 && self.sq.flags.load() & abi::IORING_SQ_NEED_WAKEUP != 0
    }

    /// Submits what is queued, runs completions, and waits for `want` of them.
    ///
    /// With `want` 0, or a zero timeout, does not wait; `None` waits without limit. It also returns
    /// when the time is up, a signal came, or the kernel lacked memory: `Ok` says nothing about
    /// completions, [`Ring::pop`] does. Entries that were not taken stay queued. Costs one system
    /// call, 200 ns with nothing to do; none with submission polling and nothing to wait for. See
    /// `io_uring_enter(2)`.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        let mut argument = GetEventsArg { sigmask: 0, sigmask_sz: 0, min_wait_usec: 0, ts: 0 };
        let mut want = want;
        let time;
        match timeout {
            Some(Duration::ZERO) => want = 0,
            Some(timeout) if want > 0 => {
                time = timespec(timeout.min(TIMEOUT_MAX));
                argument.ts = &raw const time as u64;
            }
            _ => {}
        }
        // Waits use the descriptor's number, which fails if the application has closed it: by the
        // slot the wait would go on, and nothing would end it.
        let waits = want > 0 && self.ready() == 0;
        let (fd, enter_flags) =
            if waits { (self.fd.as_raw_fd(), 0) } else { (self.enter_fd, self.enter_flags) };
        let mut flags = enter_flags | self.wait_flags;
        if self.polling {
            if self.needs_wakeup() {
                flags |= abi::IORING_ENTER_SQ_WAKEUP;
            } else if want == 0 && !self.needs_enter() {
                return Ok(());
            }
        }
        let (at, len) = ((&raw const argument).cast(), size_of::<GetEventsArg>());
        // SAFETY: R4, R5.
        settle(unsafe { kernel::enter(fd, self.to_submit(), want, flags, at, len) })
    }

    /// Takes the oldest completion. Costs about 5 ns; no system call.
    pub fn pop(&mut self) -> Option<Cqe> {
        if self.ready() == 0 {
            return None;
        }
        let slot = (self.cq.next & self.cq.mask) as usize;
        // SAFETY: R1: the masked index is below the number of entries.
        let entry = unsafe { self.cq.entries.add(slot) };
        // SAFETY: R1, R3: the queue is not empty.
        let cqe = unsafe { entry.read() };
        self.cq.next = self.cq.next.wrapping_add(1);
        self.cq.head.store(self.cq.next);
        Some(cqe)
    }

    /// The last completion of a request, without taking it. Costs about 1 ns for each queued
    /// completion; no system call.
    pub fn peek(&self, user_data: u64) -> Option<Cqe> {
        self.waiting()
            .find(|cqe| cqe.user_data == user_data && cqe.flags & abi::IORING_CQE_F_MORE == 0)
    }

    /// The queued completions, oldest first, without taking them.
    pub fn waiting(&self) -> impl Iterator<Item = Cqe> {
        (0..self.ready()).map(|ahead| {
            let slot = (self.cq.next.wrapping_add(ahead) & self.cq.mask) as usize;
            // SAFETY: R1: the masked index is below the number of entries.
            let entry = unsafe { self.cq.entries.add(slot) };
            // SAFETY: R1, R3: it is a queued completion.
            unsafe { entry.read() }
        })
    }

    /// Number of queued completions.
    pub fn ready(&self) -> u32 {
        self.cq.tail.load().wrapping_sub(self.cq.next)
    }

    /// True if completions are pending in the kernel, which only [`Ring::enter`] delivers.
    pub fn needs_enter(&self) -> bool {
        self.sq.flags.load() & (abi::IORING_SQ_TASKRUN | abi::IORING_SQ_CQ_OVERFLOW) != 0
    }

    /// Registers something with the ring. See `io_uring_register(2)`.
    ///
    /// # Safety
    /// `argument` and `count` are as `opcode` requires, and registered memory outlives its registration.
    pub unsafe fn register(
        &self,
        opcode: u32,
        argument: *mut libc::c_void,
        count: u32,
    ) -> io::Result<i32> {
        // SAFETY: R5, by this function's contract.
        unsafe { kernel::register(self.fd.as_raw_fd(), opcode, argument, count) }
    }

    /// The kernel's optional features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Ignores all optional features.
    #[cfg(test)]
    pub fn pretend_plain(&mut self) {
        self.features = Features::default();
    }

    /// True with submission polling.
    pub fn polls(&self) -> bool {
        self.polling
    }

    /// Sizes of the queues: submissions, completions.
    pub fn capacity(&self) -> (u32, u32) {
        (self.sq.mask + 1, self.cq.mask + 1)
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The slot holds a reference to the ring: if kept, the ring would live as long as the
        // thread. On another thread the same number may be another ring's slot (R7).
        if let Some(Registered { slot, thread }) = self.registered
            && thread == thread_id()
        {
            let mut update = abi::ResourceUpdate { offset: slot, resv: 0, data: 0 };
            let at = (&raw mut update).cast();
            // SAFETY: R5, R7. After a failure the slot lives until the end of the thread.
            let _ = unsafe { self.register(abi::IORING_UNREGISTER_RING_FDS, at, 1) };
        }
    }
}

/// Keeps the errors that mean misuse. All others are transient: the queues themselves tell what
/// happened, and if the same call took entries the kernel returns their number instead of its
/// errno.
fn settle(entered: io::Result<u32>) -> io::Result<()> {
    match entered {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(platform::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => {
                Ok(())
            }
            _ => Err(closed_under_us(error)),
        },
    }
}

/// The application has closed the ring's descriptor, and its number was reused for another file.
fn closed_under_us(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => io::Error::from_raw_os_error(libc::EBADF),
        _ => error,
    }
}

fn thread_id() -> libc::pid_t {
    platform::gettid()
}

/// Saturates if the seconds do not fit, 292 billion years away.
fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

mod queues;
mod split;

use queues::{Completion, Submission, queues_len};
pub use split::Split;

#[cfg(test)]
mod tests;
