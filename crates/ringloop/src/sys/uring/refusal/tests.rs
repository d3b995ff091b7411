//! Refusals: real ones that a test can provoke, and all others by a simulated kernel.

use super::*;
use crate::sys::libc;
use crate::sys::process::Resource;
use crate::sys::testing::{alone, with_calls_denied};
use crate::sys::uring::abi;
use crate::sys::uring::testing::OldKernel;
use crate::sys::uring::{Config, Ring};

/// A resource limit of the process, lowered until the value is dropped.
struct Lowered {
    resource: Resource,
    before: libc::rlimit,
}

impl Lowered {
    fn new(resource: Resource, limit: u64) -> Self {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes to a live local.
        let read = unsafe { libc::getrlimit(resource, &raw mut before) };
        let lowered = libc::rlimit { rlim_cur: limit, ..before };
        // SAFETY: reads a live local.
        let set = unsafe { libc::setrlimit(resource, &raw const lowered) };
        assert_eq!((read, set), (0, 0));
        Self { resource, before }
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        // SAFETY: reads a live value.
        unsafe { libc::setrlimit(self.resource, &raw const self.before) };
    }
}

const CONFIG: Config = Config { entries: 8, cq_entries: 16, polling: None };

fn facts() -> Facts {
    Facts { is_linux: true, disabled: None, privileged: false, memlock: 8 << 20, descriptors: 1024 }
}

fn refused(kernel: &OldKernel) -> Refusal {
    Ring::new_with(&CONFIG, kernel).expect_err("this kernel should refuse")
}

fn refused_setup(errno: i32, facts: Facts) -> Refusal {
    let kernel = OldKernel { setup_errno: Some(errno), facts: Some(facts), ..OldKernel::default() };
    refused(&kernel)
}

/// A refusal is one line that names the cause and the remedy.
fn assert_says(refusal: &Refusal, cause: &str, remedy: &str) {
    let text = refusal.to_string();
    assert!(text.starts_with("io_uring refused: "), "{text}");
    assert!(text.contains(cause) && text.contains(remedy), "{text}");
    assert!(!text.contains('\n') && !text.contains("  "), "{text}");
}

#[test]
fn a_container_that_denies_the_calls_is_named_for_real() {
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    for call in calls {
        for errno in [libc::EPERM, libc::EACCES] {
            let refusal = with_calls_denied(&[call], errno, || Ring::new(&CONFIG).unwrap_err());
            assert_eq!(refusal.cause, Cause::Forbidden, "call {call}, errno {errno}");
            assert_says(&refusal, "seccomp", "allow io_uring_setup");
        }
    }
    Ring::new(&CONFIG).expect("only the filtered threads were refused");
}

#[test]
fn a_filter_that_claims_there_is_no_such_call_is_seen_through_for_real() {
    let refusal = with_calls_denied(&[libc::SYS_io_uring_setup], libc::ENOSYS, || {
        Ring::new(&CONFIG).unwrap_err()
    });
    // The sysctl shows it, if it exists (6.6).
    let expected =
        if Facts::read().disabled.is_some() { Cause::Forbidden } else { Cause::NoKernelSupport };
    assert_eq!(refusal.cause, expected);
}

#[test]
fn missing_descriptors_are_reported_for_real() {
    alone(module_path!(), "missing_descriptors_are_reported_for_real", || {
        let lowered = Lowered::new(libc::RLIMIT_NOFILE, 3);
        let refusal = Ring::new(&CONFIG).unwrap_err();
        drop(lowered);
        assert_eq!(refusal.cause, Cause::NoDescriptors { limit: 3 });
        assert_says(&refusal, "no file descriptor is free", "raise RLIMIT_NOFILE");
    });
}

#[test]
fn missing_memory_for_the_queues_is_reported_for_real() {
    alone(module_path!(), "missing_memory_for_the_queues_is_reported_for_real", || {
        let large = Config { entries: 32768, cq_entries: 65536, polling: None };
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        let bytes = pages * 4096 + (1 << 20);
        let _lowered = Lowered::new(libc::RLIMIT_AS, bytes);
        let refusal = Ring::new(&large).unwrap_err();
        assert!(matches!(refusal.cause, Cause::NoMemory { .. }), "{refusal}");
        Ring::new(&CONFIG).expect("a small ring fits");
    });
}

#[test]
fn locked_memory_that_kernels_before_5_12_count_is_named() {
    let refusal = refused_setup(libc::ENOMEM, Facts { memlock: 64 << 10, ..facts() });
    assert_eq!(refusal.cause, Cause::NoMemory { memlock: 64 << 10 });
    assert_says(&refusal, "no memory", "raise RLIMIT_MEMLOCK (`ulimit -l`, now 64 KiB)");
    let unlimited = refused_setup(libc::ENOMEM, Facts { memlock: u64::MAX, ..facts() });
    assert_says(&unlimited, "no memory", "control group");
    assert!(!unlimited.to_string().contains("MEMLOCK"));
}

#[test]
fn the_administrators_switch_is_named_with_its_value() {
    let with = |disabled, privileged| Facts { disabled: Some(disabled), privileged, ..facts() };
    let everybody = refused_setup(libc::EPERM, with(2, true));
    assert_eq!(everybody.cause, Cause::Disabled { sysctl: 2 });
    assert_says(&everybody, "kernel.io_uring_disabled=2", "set kernel.io_uring_disabled=0");
    let unprivileged = refused_setup(libc::EPERM, with(1, false));
    assert_eq!(unprivileged.cause, Cause::Disabled { sysctl: 1 });
    assert_says(&unprivileged, "kernel.io_uring_disabled=1", "kernel.io_uring_group");
    // Value 1 exempts privileged processes, so something else denied them; 0 exempts all.
    assert_eq!(refused_setup(libc::EPERM, with(1, true)).cause, Cause::Forbidden);
    assert_eq!(refused_setup(libc::EPERM, with(0, false)).cause, Cause::Forbidden);
}

#[test]
fn a_kernel_without_io_uring_is_named() {
    let refusal = refused_setup(libc::ENOSYS, facts());
    assert_eq!(refusal.cause, Cause::NoKernelSupport);
    assert_says(&refusal, "no io_uring", "Linux 6.1 or later");
    let filtered = refused_setup(libc::ENOSYS, Facts { disabled: Some(0), ..facts() });
    assert_eq!(filtered.cause, Cause::Forbidden);
}

#[test]
fn another_system_is_not_told_to_allow_or_upgrade_anything() {
    // Under Wine the sysctl's file can be read.
    for disabled in [None, Some(0), Some(2)] {
        let refusal = refused_setup(libc::ENOSYS, Facts { is_linux: false, disabled, ..facts() });
        assert_eq!(refusal.cause, Cause::NotLinux);
        assert_eq!(refusal.to_string(), "only Linux has io_uring");
    }
}

#[test]
fn a_kernel_before_6_1_is_too_old_by_its_flags() {
    let refusal = refused(&OldKernel {
        refused_flags: abi::IORING_SETUP_NO_SQARRAY | abi::IORING_SETUP_DEFER_TASKRUN,
        ..OldKernel::default()
    });
    assert!(matches!(refusal.cause, Cause::TooOld { since: "6.1", .. }));
    assert_says(&refusal, "lacks IORING_SETUP_DEFER_TASKRUN", "run on Linux 6.1 or later");
}

#[test]
fn a_missing_feature_is_named() {
    for (bit, name) in [
        (abi::IORING_FEAT_EXT_ARG, "IORING_FEAT_EXT_ARG"),
        (abi::IORING_FEAT_NODROP, "IORING_FEAT_NODROP"),
        (abi::IORING_FEAT_SINGLE_MMAP, "IORING_FEAT_SINGLE_MMAP"),
        (abi::IORING_FEAT_CQE_SKIP, "IORING_FEAT_CQE_SKIP"),
    ] {
        let refusal = refused(&OldKernel { missing_features: bit, ..OldKernel::default() });
        assert_says(&refusal, name, "run on Linux 6.1 or later");
    }
}

#[test]
fn a_missing_operation_is_named() {
    for (operation, name) in [
        (abi::IORING_OP_RECV, "IORING_OP_RECV"),
        (abi::IORING_OP_ACCEPT, "IORING_OP_ACCEPT"),
        (abi::IORING_OP_ASYNC_CANCEL, "IORING_OP_ASYNC_CANCEL"),
    ] {
        let kernel = OldKernel { missing_operations: vec![operation], ..OldKernel::default() };
        assert_says(&refused(&kernel), name, "run on Linux 6.1 or later");
    }
}

#[test]
fn a_step_after_setup_is_explained_too() {
    let probe = OldKernel { probe_errno: Some(libc::EPERM), ..OldKernel::default() };
    assert_eq!(refused(&probe).cause, Cause::Forbidden);
    let enter = OldKernel { enter_errno: Some(libc::EACCES), ..OldKernel::default() };
    assert_eq!(refused(&enter).cause, Cause::Forbidden);
    let odd = OldKernel { enter_errno: Some(libc::EFAULT), ..OldKernel::default() };
    assert_eq!(refused(&odd).cause, Cause::Other(libc::EFAULT));
    assert_says(&refused(&odd), "Bad address", "RINGLOOP_DRIVER=epoll");
}

#[test]
fn every_errno_of_the_table_has_its_cause() {
    let cause = |step, errno| classify(step, errno, &facts()).cause;
    assert_eq!(cause(Step::Setup, libc::EMFILE), Cause::NoDescriptors { limit: 1024 });
    assert_eq!(cause(Step::Setup, libc::ENFILE), Cause::NoDescriptors { limit: u64::MAX });
    assert_says(&classify(Step::Setup, libc::ENFILE, &facts()), "no file", "fs.file-max");
    assert_eq!(cause(Step::Map, libc::ENOMEM), Cause::NoMemory { memlock: 8 << 20 });
    assert_eq!(cause(Step::Buffers, libc::EINVAL), Cause::Other(libc::EINVAL));
    assert_eq!(cause(Step::Setup, libc::EACCES), Cause::Forbidden);
    // The sysctl guards only setup: a later EPERM has another cause.
    let off = Facts { disabled: Some(2), ..facts() };
    assert_eq!(classify(Step::Enter, libc::EPERM, &off).cause, Cause::Forbidden);
}

#[test]
fn facts_are_read_from_this_kernel() {
    let facts = Facts::read();
    assert!(facts.descriptors > 0 && facts.memlock > 0);
    assert!(facts.disabled.is_none_or(|value| value <= 2));
    assert!(has_sys_admin("Name:\tx\nCapEff:\t000001ffffffffff\n"));
    assert!(has_sys_admin("CapEff:\t0000000000200000\n"));
    assert!(!has_sys_admin("CapEff:\t00000000a80425fb\n"), "Docker's default set");
    assert!(!has_sys_admin(""));
}

#[test]
fn a_version_below_6_1_is_not_advised() {
    assert_eq!(since_at_least_6_1("5.11"), "6.1");
    assert_eq!(since_at_least_6_1("6.1"), "6.1");
    assert_eq!(since_at_least_6_1("6.12"), "6.12");
    assert_eq!(since_at_least_6_1("7.0"), "7.0");
}
