"""Tests that are left out under emulation, with the reason of each."""

from __future__ import annotations

# Parts of names, as `cargo test -- --skip` takes them.
BY_REASON: dict[str, tuple[str, ...]] = {
    "needs a ring": (
        "driver::provided::tests::longest_starved_receives",
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
    "qemu does not know the option for a program that chooses a socket (SO_ATTACH_REUSEPORT_CBPF)": (
        "sys::socket::tests::s1_a_program_chooses",
    ),
}
