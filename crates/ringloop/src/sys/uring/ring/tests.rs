//! The ring's invariants and promises, each on the running kernel.

use super::*;
use crate::sys::event::EventFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::testing::{LONG, in_child, interrupted, wait_until};
use crate::sys::uring::abi::*;
use crate::sys::uring::open::MEMORY_PAUSES;
use crate::sys::uring::testing::OldKernel;
use crate::sys::uring::{Cause, Config};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Instant;

const CONFIG: Config = Config { entries: 8, cq_entries: 16, polling: None };

fn disabled() -> Ring {
    Ring::new(&CONFIG).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn enabled() -> Ring {
    let mut ring = disabled();
    ring.enable().unwrap();
    ring
}

impl Ring {
    /// Cancels every request in flight; their completions still come.
    fn sync_cancel_all(&self) -> io::Result<()> {
        // SAFETY: a structure of integers.
        let mut cancel: io_uring_sync_cancel_reg = unsafe { std::mem::zeroed() };
        cancel.fd = -1;
        cancel.flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL;
        let opcode = io_uring_register_op::IORING_REGISTER_SYNC_CANCEL as u32;
        // SAFETY: R5.
        match unsafe { self.register(opcode, (&raw mut cancel).cast(), 1) } {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }
}

fn nop(user_data: u64) -> Sqe {
    Sqe { opcode: IORING_OP_NOP, user_data, ..Sqe::default() }
}

#[test]
fn memory_that_comes_back_in_time_is_no_refusal() {
    let kernel = OldKernel::default();
    let pauses = MEMORY_PAUSES.len() as u32;
    kernel.memory_failures.set(pauses);
    assert!(Ring::new_with(&CONFIG, &kernel).is_ok());
    kernel.memory_failures.set(pauses + 1);
    let refusal = Ring::new_with(&CONFIG, &kernel).unwrap_err();
    assert!(matches!(refusal.cause, Cause::NoMemory { .. }), "{refusal}");
}

/// Completes when `fd` is readable.
fn poll(fd: RawFd, user_data: u64) -> Sqe {
    let op_flags = Interest::READ.poll_mask();
    Sqe { opcode: IORING_OP_POLL_ADD, fd, op_flags, user_data, ..Sqe::default() }
}

/// Pushes an entry that names no memory, or memory that outlives its last completion.
fn push(ring: &mut Ring, sqe: Sqe) -> Result<(), Sqe> {
    // SAFETY: R4, see above.
    unsafe { ring.push(sqe) }
}

fn drain(ring: &mut Ring) -> Vec<Cqe> {
    std::iter::from_fn(|| ring.pop()).collect()
}

fn reap(ring: &mut Ring, count: usize) -> Vec<Cqe> {
    let mut cqes = drain(ring);
    while cqes.len() < count {
        ring.enter(1, Some(LONG)).unwrap();
        assert!(ring.ready() > 0, "nothing came in {LONG:?}");
        cqes.extend(drain(ring));
    }
    cqes
}

fn data_of(cqes: &[Cqe]) -> Vec<u64> {
    cqes.iter().map(|cqe| cqe.user_data).collect()
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn many_rounds(ring: &mut Ring) {
    assert_eq!(ring.capacity(), (8, 16));
    for round in 0..100_u64 {
        let expected: Vec<_> = (round * 8..round * 8 + 8).collect();
        for &data in &expected {
            push(ring, nop(data)).unwrap();
        }
        assert_eq!(data_of(&reap(ring, 8)), expected);
    }
}

#[test]
fn r1_every_slot_carries_its_entry_also_when_the_indices_wrap() {
    many_rounds(&mut enabled());
}

#[test]
fn r1_every_slot_carries_its_entry_also_through_an_index_array() {
    let kernel = OldKernel { refused_flags: IORING_SETUP_NO_SQARRAY, ..OldKernel::default() };
    let mut ring = Ring::new_with(&CONFIG, &kernel).unwrap();
    assert!(!ring.features().has(Feature::NoSqarray));
    ring.enable().unwrap();
    many_rounds(&mut ring);
}

#[test]
fn r1_the_indices_may_run_past_the_end_of_u32() {
    // The kernel starts at 0; four billion entries later the arithmetic must still hold.
    let mut ring = enabled();
    ring.sq.next = 3_u32.wrapping_sub(5);
    let behind = ring.sq.next;
    ring.sq.head.store(behind);
    for pushed in 0..8 {
        assert_eq!(ring.pending(), pushed);
        push(&mut ring, nop(0)).unwrap();
    }
    assert_eq!(ring.sq.next, 6);
    assert_eq!(push(&mut ring, nop(9)), Err(nop(9)));
    // Restore the index before the kernel sees it.
    ring.sq.next = 0;
    ring.sq.head.store(0);
    ring.sq.tail.store(0);
}

#[test]
fn r2_a_full_queue_gives_the_entry_back_and_keeps_the_others() {
    let mut ring = enabled();
    for data in 0..8 {
        push(&mut ring, nop(data)).unwrap();
    }
    assert_eq!(push(&mut ring, nop(8)), Err(nop(8)));
    assert_eq!(ring.pending(), 8);
    ring.submit().unwrap();
    assert_eq!(ring.pending(), 0);
    push(&mut ring, nop(8)).unwrap();
    assert_eq!(data_of(&reap(&mut ring, 9)), (0..9).collect::<Vec<_>>());
}

#[test]
fn r2_an_entry_written_in_place_is_zeroed_and_not_filled_when_the_queue_is_full() {
    let mut ring = enabled();
    // A second round over the queue finds the first one's entries.
    for data in 0..16 {
        let fill = |sqe: &mut Sqe| {
            assert_eq!(*sqe, Sqe::default());
            *sqe = nop(data);
        };
        // SAFETY: a no-op names nothing.
        assert!(unsafe { ring.push_with(fill) });
        if !ring.has_room() {
            // SAFETY: nothing is pushed.
            assert!(!unsafe { ring.push_with(|_| unreachable!("the queue is full")) });
            ring.submit().unwrap();
        }
    }
    assert_eq!(data_of(&reap(&mut ring, 16)), (0..16).collect::<Vec<_>>());
}

#[test]
fn r2_entries_that_could_not_be_handed_over_stay_queued() {
    let mut ring = disabled();
    push(&mut ring, nop(1)).unwrap();
    assert_eq!(errno(ring.submit()), Some(libc::EBADFD), "not enabled");
    assert_eq!(errno(ring.enter(1, None)), Some(libc::EBADFD), "not enabled");
    assert_eq!(ring.pending(), 1);
    ring.enable().unwrap();
    assert_eq!(errno(ring.enable()), Some(libc::EBADFD), "enabled already");
    assert_eq!(data_of(&reap(&mut ring, 1)), [1]);
    ring.submit().unwrap();
    assert_eq!(ring.pop(), None);
}

#[test]
fn r2_one_bad_entry_does_not_hold_up_the_others() {
    let mut ring = enabled();
    push(&mut ring, Sqe { opcode: 255, user_data: 1, ..Sqe::default() }).unwrap();
    push(&mut ring, nop(2)).unwrap();
    let cqes = reap(&mut ring, 2);
    assert_eq!(data_of(&cqes), [1, 2]);
    assert_eq!((cqes[0].res, cqes[1].res), (-libc::EINVAL, 0));
}

#[test]
fn r3_a_completion_that_is_looked_at_stays() {
    let mut ring = enabled();
    assert!(ring.peek(7).is_none());
    for user_data in [6, 7, 8] {
        push(&mut ring, nop(user_data)).unwrap();
    }
    ring.enter(3, Some(LONG)).unwrap();
    assert_eq!(ring.peek(7).map(|cqe| cqe.res), Some(0));
    assert!(ring.peek(9).is_none());
    let order: Vec<u64> = drain(&mut ring).iter().map(|cqe| cqe.user_data).collect();
    assert_eq!(order, [6, 7, 8]);
    assert!(ring.peek(7).is_none(), "what was taken is gone");
}

#[test]
fn r3_a_full_completion_queue_loses_nothing() {
    let mut ring = enabled();
    for data in 0..40 {
        push(&mut ring, nop(data)).unwrap();
        ring.enter(0, None).unwrap();
    }
    assert_eq!(ring.ready(), 16);
    assert!(ring.needs_enter(), "the rest waits inside the kernel");
    let mut cqes = drain(&mut ring);
    while ring.needs_enter() {
        ring.enter(0, None).unwrap();
        cqes.extend(drain(&mut ring));
    }
    assert_eq!(data_of(&cqes), (0..40).collect::<Vec<_>>());
}

#[test]
fn r4_a_cancelled_request_still_completes_and_then_leaves_its_memory_alone() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let mut buffer = [0xEE_u8; 16];
    let mut ring = enabled();
    let addr = buffer.as_mut_ptr() as u64;
    let fd = far.as_raw_fd();
    push(&mut ring, Sqe { opcode: IORING_OP_RECV, fd, addr, len: 16, ..Sqe::default() }).unwrap();
    ring.enter(0, None).unwrap();
    assert_eq!(ring.pop(), None);
    ring.sync_cancel_all().unwrap();
    assert_eq!(reap(&mut ring, 1)[0].res, -libc::ECANCELED);
    ring.sync_cancel_all().unwrap();
    near.write_all(b"late").unwrap();
    ring.enter(0, None).unwrap();
    assert_eq!((ring.pop(), buffer), (None, [0xEE; 16]));
}

#[test]
fn r5_a_wait_ends_by_its_time_and_not_before() {
    let event = EventFd::new().unwrap();
    let mut ring = enabled();
    // The first wait also submits, so that the kernel returns a count instead of ETIME.
    push(&mut ring, poll(event.as_raw_fd(), 1)).unwrap();
    for timeout in [1, 300_000, 2_000_001].map(Duration::from_nanos) {
        let start = Instant::now();
        ring.enter(1, Some(timeout)).unwrap();
        assert!(start.elapsed() >= timeout);
        assert_eq!((ring.pop(), ring.pending()), (None, 0));
    }
    event.notify();
    assert_eq!(data_of(&reap(&mut ring, 1)), [1]);
}

#[test]
fn r5_a_wait_without_want_or_without_time_does_not_block() {
    let mut ring = enabled();
    ring.enter(0, None).unwrap();
    ring.enter(0, Some(LONG)).unwrap();
    ring.enter(1, Some(Duration::ZERO)).unwrap();
    push(&mut ring, nop(1)).unwrap();
    ring.enter(1, Some(Duration::ZERO)).unwrap();
    assert_eq!(data_of(&drain(&mut ring)), [1]);
}

#[test]
fn r5_the_longest_timeouts_wait() {
    for timeout in [None, Some(Duration::MAX), Some(Duration::from_secs(u64::MAX / 2))] {
        let event = EventFd::new().unwrap();
        let mut ring = enabled();
        push(&mut ring, poll(event.as_raw_fd(), 1)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                event.notify();
            });
            ring.enter(1, timeout).unwrap();
        });
        assert_eq!(data_of(&drain(&mut ring)), [1], "{timeout:?}");
    }
}

#[test]
fn r5_a_signal_ends_a_wait_with_nothing() {
    let event = EventFd::new().unwrap();
    let mut ring = enabled();
    push(&mut ring, poll(event.as_raw_fd(), 1)).unwrap();
    for timeout in [None, Some(LONG)] {
        interrupted(|| ring.enter(1, timeout)).unwrap();
        assert_eq!(ring.pop(), None);
    }
    event.notify();
    assert_eq!(data_of(&reap(&mut ring, 1)), [1]);
}

#[test]
fn r6_the_thread_that_enables_runs_the_ring_and_no_other() {
    let mut ring = disabled();
    let mut ring = std::thread::spawn(move || {
        ring.enable().unwrap();
        push(&mut ring, nop(1)).unwrap();
        assert_eq!(data_of(&reap(&mut ring, 1)), [1]);
        // Without the slot, so that the other thread reaches the ring at all.
        ring.enter_flags = 0;
        ring.enter_fd = ring.fd.as_raw_fd();
        ring
    })
    .join()
    .unwrap();
    push(&mut ring, nop(2)).unwrap();
    assert_eq!(errno(ring.submit()), Some(libc::EEXIST));
    assert_eq!(errno(ring.enter(1, None)), Some(libc::EEXIST));
    assert_eq!(errno(ring.sync_cancel_all()), Some(libc::EEXIST));
    assert_eq!((ring.pending(), ring.pop()), (1, None));
}

#[test]
fn r7_a_dropped_ring_gives_its_slot_back() {
    // A thread has 16 slots.
    for _ in 0..40 {
        assert!(enabled().registered.is_some());
    }
    let rings: Vec<_> = (0..17).map(|_| enabled()).collect();
    let mut without = rings.into_iter().find(|ring| ring.registered.is_none()).unwrap();
    many_rounds(&mut without);
}

#[test]
fn r7_dropping_on_another_thread_leaves_that_threads_slots_alone() {
    let (send, receive) = mpsc::channel();
    let other = std::thread::spawn(move || send.send(enabled()).unwrap());
    let mut mine = enabled();
    let foreign = receive.recv().unwrap();
    let slot = |ring: &Ring| ring.registered.as_ref().unwrap().slot;
    assert_eq!(slot(&mine), slot(&foreign), "the test needs equal numbers");
    drop(foreign);
    many_rounds(&mut mine);
    other.join().unwrap();
}

#[test]
fn dropping_the_ring_ends_its_requests() {
    let (near, far) = UnixStream::pair().unwrap();
    let mut ring = enabled();
    push(&mut ring, poll(far.as_raw_fd(), 1)).unwrap();
    ring.submit().unwrap();
    drop(far);
    // The request holds the socket: no end of file yet.
    assert_eq!(
        crate::sys::file::poll_now(near.as_raw_fd(), Interest::READ).unwrap(),
        Interest::NONE
    );
    drop(ring);
    wait_until(near.as_raw_fd(), Interest::READ);
}

#[test]
fn a_forked_child_drops_the_ring_without_harm_to_the_parents() {
    let mut ring = enabled();
    push(&mut ring, nop(1)).unwrap();
    let dropped = in_child(|| {
        // SAFETY: a bitwise copy that is dropped once, in the child.
        drop(unsafe { ptr::read(&raw const ring) });
        true
    });
    assert!(dropped);
    assert_eq!(data_of(&reap(&mut ring, 1)), [1]);
    many_rounds(&mut ring);
}

#[test]
fn a_forked_child_has_no_queues() {
    let ring = enabled();
    let died = !in_child(|| {
        // SAFETY: the child's own disposition, so that the fault ends it quietly.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        ring.ready() < u32::MAX
    });
    assert!(died, "reading the queue must fault in the child");
}

#[test]
fn needs_enter_tells_of_completions_that_only_enter_brings_out() {
    let event = EventFd::new().unwrap();
    let mut ring = enabled();
    push(&mut ring, poll(event.as_raw_fd(), 1)).unwrap();
    ring.enter(0, None).unwrap();
    assert!(!ring.needs_enter());
    event.notify();
    assert!(ring.needs_enter() && ring.ready() == 0);
    ring.enter(0, None).unwrap();
    assert!(!ring.needs_enter() && ring.ready() == 1);
    // The descriptor is closed on exec, like every other.
    // SAFETY: no pointer is passed.
    let flags = unsafe { libc::fcntl(ring.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}

#[test]
fn sizes_are_rounded_up_clamped_and_never_refused() {
    for (entries, cq_entries, capacity) in
        [(0, 0, (1, 1)), (5, 9, (8, 16)), (64, 8, (64, 64)), (u32::MAX, u32::MAX, (32768, 65536))]
    {
        let ring = Ring::new(&Config { entries, cq_entries, polling: None }).unwrap();
        assert_eq!(ring.capacity(), capacity);
    }
}

#[test]
fn r2_a_polled_ring_is_served_without_a_call_and_woken_from_its_sleep() {
    let config = Config { polling: Some(Duration::from_millis(1)), ..CONFIG };
    let mut ring = Ring::new(&config).unwrap();
    assert!(ring.polls());
    ring.enable().unwrap();
    for round in 0..3_000_u64 {
        let nop = Sqe { user_data: round, ..Sqe::default() };
        // SAFETY: a no-op names nothing.
        unsafe { ring.push(nop) }.unwrap();
        if round % 500 == 499 {
            // Longer than the thread stays awake.
            std::thread::sleep(Duration::from_millis(20));
        }
        // The kernel thread takes it once it runs.
        let end = Instant::now() + LONG;
        while ring.pending() > 0 {
            assert!(Instant::now() < end, "not taken");
            ring.submit().unwrap();
        }
        ring.enter(1, Some(LONG)).unwrap();
        assert_eq!(ring.pop().unwrap().user_data, round);
        // Nothing to submit, nothing to wait for.
        ring.enter(0, Some(Duration::ZERO)).unwrap();
        assert_eq!(ring.ready(), 0);
    }
}

#[test]
fn r8_the_rest_of_a_link_is_taken_back_once_and_does_nothing() {
    let mut ring = enabled();
    let link = |user_data| Sqe { flags: abi::IOSQE_IO_LINK, ..nop(user_data) };
    for sqe in [link(1), link(2), link(3), nop(4), nop(5)] {
        push(&mut ring, sqe).unwrap();
    }
    ring.takes_at_most = 2;
    ring.submit().unwrap();
    assert_eq!(ring.pending(), 3);
    let split = ring.take_back_split(99).unwrap();
    assert_eq!((split.begun, split.lost, split.lost_timeout), (2, vec![3, 4], false));
    assert_eq!(ring.take_back_split(99), None, "taken back once");
    ring.takes_at_most = u32::MAX;
    let mut data = data_of(&reap(&mut ring, 3));
    data.sort_unstable();
    assert_eq!(data, [1, 2, 5], "entries that do nothing say nothing");
}

#[test]
fn r8_a_submission_that_ends_between_links_splits_none() {
    let mut ring = enabled();
    let link = |user_data| Sqe { flags: abi::IOSQE_IO_LINK, ..nop(user_data) };
    for sqe in [link(1), nop(2), link(3), nop(4)] {
        push(&mut ring, sqe).unwrap();
    }
    ring.takes_at_most = 2;
    ring.submit().unwrap();
    assert_eq!(ring.take_back_split(99), None);
    ring.takes_at_most = u32::MAX;
    let mut data = data_of(&reap(&mut ring, 4));
    data.sort_unstable();
    assert_eq!(data, [1, 2, 3, 4]);
}
