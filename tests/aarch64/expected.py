"""Tests and whole test programs that are left out under emulation, with the reason of each."""

from __future__ import annotations

# Of the tests folders of the engine and the coroutines.
PROGRAMS_BY_REASON: dict[str, tuple[str, ...]] = {
    "starts programs, which have no emulator": (
        "deadlock",
        "examples",
        "faults",
        "overflow",
        "stalls",
    ),
    "filters the system calls of a thread, which qemu refuses (PR_SET_SECCOMP)": ("refused",),
    "hangs under qemu; why is not known": ("file_states",),
}

# Parts of names, as `cargo test -- --skip` takes them.
BY_REASON: dict[str, tuple[str, ...]] = {
    "needs a ring": (
        "driver::provided::tests::longest_starved_receives",
        "driver_is_the_one_asked_for",
        "dropped_runtime_completes_its_handles",
        "driver::uring::",
        "sys::uring::buffer_ring::",
        "sys::uring::features::tests::what_is_taken_away",
        "sys::uring::kernel::tests::k1_",
        "sys::uring::kernel::tests::k2_",
        "sys::uring::refusal::tests::a_missing_",
        "sys::uring::refusal::tests::a_step_after_setup",
        "sys::uring::refusal::tests::missing_",
        "sys::uring::ring::",
        "sys::uring::setup::",
        "sys::uring::slots::",
    ),
    "filters the system calls of a thread, which qemu refuses (PR_SET_SECCOMP)": (
        "sys::datagram::tests::without_the_calls_for_many_messages",
        "sys::platform::posix::tests::x1_descriptor_whose_flags_cannot_be_set",
        "sys::selector::epoll::tests::p2_a_filter_that_denies",
        "sys::socket::tests::without_accept4",
        "sys::uring::refusal::tests::a_container_that_denies",
        "sys::uring::refusal::tests::a_filter_that_claims",
    ),
    "qemu ignores the advice that a child is not to have some memory (MADV_DONTFORK)": (
        "sys::memory::tests::m2_the_child_of_a_fork",
    ),
    "qemu reports a program that is not there by its child's status": (
        "status_is_the_childs",
        "output_and_status_are_those_of_the_child",
    ),
    "starts the test program again, which has no emulator then": (
        "borrow_in_use_by_another_worker_aborts",
    ),
    "qemu makes no read that may not wait (RWF_NOWAIT)": (
        "bulk_read_of_what_is_in_memory_is_done",
    ),
    "the child of a process with several threads hung under qemu in one of two runs": (
        "forked_child_fails_at_its_first_wait_and_the_parent",
    ),
    "a child is waited for without a poll there": ("child_can_be_waited_for_again",),
    "expects that tasks have begun after a millisecond": ("datagrams_that_do_not_come_leave",),
    "qemu does not know the option for a program that chooses a socket (SO_ATTACH_REUSEPORT_CBPF)": (
        "sys::socket::tests::s1_a_program_chooses",
    ),
}
