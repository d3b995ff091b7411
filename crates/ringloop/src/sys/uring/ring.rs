//! The two queues of a ring.
//!
//! Owns: the ring's descriptor and both mappings. Called by: the ring driver, from the one thread
//! that enabled the ring.
//! Never does: looking into a completion, keeping what an entry points to, or telling an expired
//! wait from a woken one.
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
//! Each index has one writer, who stores with Release; the other side loads with Acquire. So what
//! an index promises is true before the index says so. On x86 both are plain moves; on ARM they are
//! the instructions `ldar` and `stlr`.
//!
//! Both indices run freely over all of `u32`; the slot is `index & mask`, the fill is `tail - head`
//! (wrapping). Where the kernel has no `NO_SQARRAY`, an array of indices lies between it and the
//! entries; it is filled once with 0, 1, 2, …
//!
//! A ring is made disabled, by any thread, and becomes usable by [`Ring::enable`] on the thread
//! that will run it. From then on no other thread may enter (`EEXIST`) and nothing completes unless
//! that thread asks for events.
//!
//! # Invariants
//! - **R1** The words, entries and completions pointed to lie inside the mappings, aligned, as long
//!   as the `Ring` lives.
//! - **R2** Entries in `head .. tail` of the submission queue are the kernel's; all others are ours
//!   to write.
//! - **R3** Completions in `head .. tail` of the completion queue are ours to read; all others are
//!   the kernel's.
//! - **R4** What an entry names (memory, a buffer group) is good until its last completion: the
//!   promise of [`Ring::push`]'s caller.
//! - **R5** An argument of `io_uring_enter` is a live local of the size given.
//! - **R6** Only who holds `&mut Ring` moves our indices; the value may change threads, the kernel
//!   itself refuses a second submitter.
//! - **R7** The slot of the registered descriptor is used, and given back, only by the thread that
//!   registered it: slots belong to threads.
//! - **R8** Without a polling thread the kernel reads entries only inside of `io_uring_enter`: between two
//!   calls those that wait may be read and written again.

use super::abi::{self, Cqe, GetEventsArg, Sqe, Timespec};
use super::features::{Feature, Features};
use super::kernel;
use super::setup::Created;
use crate::sys::file::Descriptor;
use crate::sys::memory::Mapping;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Longest timeout handed to the kernel, which adds it to its clock without looking for an
/// overflow. A longer wait ends early with nothing; the caller asks again.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a thread gives way to the polling thread before it leaves entries on the queue, as after an
/// `EAGAIN`.
const TAKE_YIELDS_MAX: u32 = 100_000;

/// Queue requests to the kernel and take their results.
///
/// Dropping a ring unmaps and closes it. It does not stop requests in flight: the kernel tears a
/// ring down in its own time and disks go on writing into buffers meanwhile. Cancel and reap first
/// ([`Ring::sync_cancel_all`], then [`Ring::pop`] until nothing is in flight), free buffers after.
///
/// After a fork the child has the descriptor but not the queues: it may drop the value, and nothing
/// else.
#[derive(Debug)]
pub struct Ring {
    sq: Submission,
    cq: Completion,
    features: Features,
    enter_fd: RawFd,
    /// Bits for every enter: [`abi::ENTER_REGISTERED_RING`] once registered.
    enter_flags: u32,
    /// Bits for an enter that asks for events.
    wait_flags: u32,
    /// A thread of the kernel takes the entries.
    polling: bool,
    registered: Option<Registered>,
    /// A kernel without memory for more requests takes fewer entries than there are.
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
    pub(super) fn map(
        Created {
            fd,
            params,
            features,
        }: Created,
    ) -> io::Result<Self> {
        let queues = Mapping::of_fd(fd.as_raw_fd(), queues_len(&params), abi::OFF_SQ_RING)?;
        let entries_len = params.sq_entries as usize * size_of::<Sqe>();
        let entries = Mapping::of_fd(fd.as_raw_fd(), entries_len, abi::OFF_SQES)?;
        let (Some(sq), Some(cq)) = (
            Submission::locate(&queues, &entries, &params),
            Completion::locate(&queues, &params),
        ) else {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        };
        let no_iowait = if features.has(Feature::NoIowait) {
            abi::ENTER_NO_IOWAIT
        } else {
            0
        };
        Ok(Self {
            sq,
            cq,
            features,
            enter_fd: fd.as_raw_fd(),
            enter_flags: 0,
            wait_flags: abi::ENTER_GETEVENTS | abi::ENTER_EXT_ARG | no_iowait,
            polling: params.flags & abi::SETUP_SQPOLL != 0,
            registered: None,
            #[cfg(test)]
            takes_at_most: u32::MAX,
            _queues: queues,
            _entries: entries,
            fd: fd.into(),
        })
    }

    /// Make the calling thread the one that runs this ring.
    ///
    /// Shape: to be called once, on that thread, before anything is submitted. The thread also gets
    /// a slot for the ring's descriptor, which saves 30 ns an enter; where it has no slot left, the
    /// ring works without.
    /// Errors: `EBADFD` enabled already.
    /// Source: `io_uring_register(2)`, `IORING_REGISTER_ENABLE_RINGS` and
    /// `IORING_REGISTER_RING_FDS`.
    pub fn enable(&mut self) -> io::Result<()> {
        // SAFETY: R5: this opcode takes no argument.
        unsafe { self.register(abi::REGISTER_ENABLE_RINGS, ptr::null_mut(), 0) }
            .map_err(closed_under_us)?;
        let mut update = abi::ResourceUpdate {
            offset: u32::MAX,
            data: self.fd.as_raw_fd() as u64,
            resv: 0,
        };
        let at = (&raw mut update).cast();
        // SAFETY: R5: one update, which the kernel reads and writes during the call.
        if let Ok(1) = unsafe { self.register(abi::REGISTER_RING_FDS, at, 1) } {
            self.registered = Some(Registered {
                slot: update.offset,
                thread: thread_id(),
            });
            self.enter_fd = update.offset as RawFd;
            self.enter_flags = abi::ENTER_REGISTERED_RING;
        }
        Ok(())
    }

    /// Queue an entry; the kernel sees it at the next [`Ring::submit`] or [`Ring::enter`].
    ///
    /// Errors: the entry itself when the queue is full; submit, then push again.
    /// Cost: about 5 ns.
    ///
    /// # Safety
    /// All that the entry names, by address or by buffer group, stays good until the last
    /// completion of the entry (the one without [`Cqe::more`], or a zero-copy send's
    /// [`Cqe::notification`]), also when it is cancelled, and also when the ring is dropped before.
    pub unsafe fn push(&mut self, sqe: Sqe) -> Result<(), Sqe> {
        if !self.has_room() {
            return Err(sqe);
        }
        self.sq.write(sqe);
        self.sq.tail.store(self.sq.next);
        Ok(())
    }

    /// Queue an entry as [`Ring::push`], written by `fill` in its place on the queue, where it is empty: a copy
    /// less. `false` where the queue is full; then `fill` was not called.
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

    /// Whether the queue takes another entry.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.pending() <= self.sq.mask
    }

    /// Queue entries that the kernel has to see at once, such as a link; `false` where they do not all fit.
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

    /// Count the entries that the kernel has not taken yet.
    pub fn pending(&self) -> u32 {
        self.sq.next.wrapping_sub(self.sq.head.load())
    }

    /// Hand over what is queued, without running completions.
    ///
    /// Shape: entries that the kernel could not take now (`EAGAIN` no memory, `EBUSY`, `EINTR`)
    /// stay queued: look at [`Ring::pending`].
    /// Errors: `EEXIST` called from another thread than the one that enabled; `EBADFD` not enabled.
    /// Nothing is lost then either.
    /// Cost: none with nothing queued; else one system call. Where the kernel polls, the time until its
    /// thread has taken them, and a system call only if that thread sleeps.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.pending() == 0 {
            return Ok(());
        }
        if self.polling {
            return self.wait_until_taken();
        }
        // SAFETY: R4, R5: no argument is passed.
        settle(unsafe {
            kernel::enter(
                self.enter_fd,
                self.to_submit(),
                0,
                self.enter_flags,
                ptr::null(),
                0,
            )
        })
    }

    /// How many entries the kernel is told of.
    fn to_submit(&self) -> u32 {
        #[cfg(test)]
        return self.pending().min(self.takes_at_most);
        #[cfg(not(test))]
        self.pending()
    }

    /// Let the polling thread take everything that is queued.
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

    /// Whether the polling thread sleeps over what is queued.
    fn needs_wakeup(&self) -> bool {
        // The tail's store must be visible before the flags are read: the thread sets its flag, then
        // looks at the tail once more, and goes to sleep.
        fence(Ordering::SeqCst);
        self.pending() > 0 && self.sq.flags.load() & abi::SQ_NEED_WAKEUP != 0
    }

    /// Hand over what is queued, run completions, and wait until `want` of them are there.
    ///
    /// Shape: `want` 0, or a zero timeout, does not wait; `None` waits without end.
    /// It also ends without anything when the time is up, a signal came, or the kernel lacked
    /// memory: `Ok` says nothing about completions, [`Ring::pop`] does. Entries that were not taken
    /// stay queued.
    /// Errors: as [`Ring::submit`].
    /// Cost: one system call, 200 ns with nothing to do. Where the kernel polls and there is nothing to wait
    /// for, none.
    /// Source: `io_uring_enter(2)`.
    pub fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        let mut argument = GetEventsArg::default();
        let mut want = want;
        let time;
        match timeout {
            Some(Duration::ZERO) => want = 0,
            Some(timeout) if want > 0 => {
                time = Timespec::from(timeout.min(TIMEOUT_MAX));
                argument.ts = &raw const time as u64;
            }
            _ => {}
        }
        // A wait goes by the descriptor's number, which tells where the program has closed it: by the slot it would go on,
        // and nothing would end it.
        let waits = want > 0 && self.ready() == 0;
        let (fd, enter_flags) = if waits {
            (self.fd.as_raw_fd(), 0)
        } else {
            (self.enter_fd, self.enter_flags)
        };
        let mut flags = enter_flags | self.wait_flags;
        if self.polling {
            if self.needs_wakeup() {
                flags |= abi::ENTER_SQ_WAKEUP;
            } else if want == 0 && !self.needs_enter() {
                return Ok(());
            }
        }
        let (at, len) = ((&raw const argument).cast(), size_of::<GetEventsArg>());
        // SAFETY: R4, R5.
        settle(unsafe { kernel::enter(fd, self.to_submit(), want, flags, at, len) })
    }

    /// Take the oldest completion.
    ///
    /// Cost: about 5 ns; no system call.
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

    /// Look for the last completion of a request, without taking it: one that none will follow.
    ///
    /// Cost: about 1 ns for each that waits; no system call.
    pub fn peek(&self, user_data: u64) -> Option<Cqe> {
        self.waiting()
            .find(|cqe| cqe.user_data == user_data && cqe.flags & abi::CQE_F_MORE == 0)
    }

    /// Look at the completions that wait to be taken, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = Cqe> {
        (0..self.ready()).map(|ahead| {
            let slot = (self.cq.next.wrapping_add(ahead) & self.cq.mask) as usize;
            // SAFETY: R1: the masked index is below the number of entries.
            let entry = unsafe { self.cq.entries.add(slot) };
            // SAFETY: R1, R3: it is one of those that are ready.
            unsafe { entry.read() }
        })
    }

    /// Count the completions that wait to be taken.
    pub fn ready(&self) -> u32 {
        self.cq.tail.load().wrapping_sub(self.cq.next)
    }

    /// Tell whether completions wait inside the kernel, which only [`Ring::enter`] brings out.
    pub fn needs_enter(&self) -> bool {
        self.sq.flags.load() & (abi::SQ_TASKRUN | abi::SQ_CQ_OVERFLOW) != 0
    }

    /// Ask every request in flight to end; their completions still come.
    ///
    /// Shape: does not wait for what is running already (a read from a disk): reap until nothing is
    /// in flight.
    /// Errors: `EEXIST`, `EBADFD` as [`Ring::submit`]. That nothing matched, or that something runs
    /// on, is not an error.
    pub fn sync_cancel_all(&self) -> io::Result<()> {
        let mut cancel = abi::SyncCancel {
            fd: -1,
            flags: abi::ASYNC_CANCEL_ANY | abi::ASYNC_CANCEL_ALL,
            ..Default::default()
        };
        let at = (&raw mut cancel).cast();
        // SAFETY: R5.
        match unsafe { self.register(abi::REGISTER_SYNC_CANCEL, at, 1) } {
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ETIME | libc::EALREADY | libc::EINTR) => Ok(()),
                _ => Err(error),
            },
            Ok(_) => Ok(()),
        }
    }

    /// Register something with the ring.
    ///
    /// Source: `io_uring_register(2)`.
    ///
    /// # Safety
    /// `argument` and `count` are what `opcode` asks for, and memory that gets registered outlives
    /// its registration.
    pub unsafe fn register(
        &self,
        opcode: u32,
        argument: *mut libc::c_void,
        count: u32,
    ) -> io::Result<i32> {
        // SAFETY: R5, by this function's contract.
        unsafe { kernel::register(self.fd.as_raw_fd(), opcode, argument, count) }
    }

    /// Tell what the kernel has beyond the required.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Go on as on a kernel that has nothing beyond the required.
    #[cfg(test)]
    pub fn pretend_plain(&mut self) {
        self.features = Features::default();
    }

    /// Tell whether a thread of the kernel takes the entries.
    pub fn polls(&self) -> bool {
        self.polling
    }

    /// Tell how many entries each queue holds: submissions, completions.
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
        // The slot holds a reference to the ring: kept, it would keep the whole ring alive as long
        // as the thread. On another thread the same number may be another ring's slot (R7).
        if let Some(Registered { slot, thread }) = self.registered
            && thread == thread_id()
        {
            let mut update = abi::ResourceUpdate {
                offset: slot,
                ..Default::default()
            };
            let at = (&raw mut update).cast();
            // SAFETY: R5, R7. A failure leaves the slot to the end of the thread.
            let _ = unsafe { self.register(abi::UNREGISTER_RING_FDS, at, 1) };
        }
    }
}

/// Keep the errors that mean misuse. All others are moments that pass: the queues themselves tell
/// what happened, and when entries went in by the same call the kernel hides its errno behind their
/// number anyway.
fn settle(entered: io::Result<u32>) -> io::Result<()> {
    match entered {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(closed_under_us(error)),
        },
    }
}

/// The program has closed the ring's descriptor, and another file has got its number: no ring any more.
fn closed_under_us(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => io::Error::from_raw_os_error(libc::EBADF),
        _ => error,
    }
}

fn thread_id() -> libc::pid_t {
    // SAFETY: R7: no pointer is passed, and the call cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

impl From<Duration> for Timespec {
    /// Saturates where the seconds do not fit, 292 billion years away.
    fn from(duration: Duration) -> Self {
        Self {
            tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(duration.subsec_nanos()),
        }
    }
}

mod queues;
mod split;

use queues::{Completion, Submission, queues_len};
pub use split::Split;

#[cfg(test)]
mod tests;
