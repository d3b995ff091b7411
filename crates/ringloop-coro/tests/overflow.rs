//! Stack overflows and other faults, each in a process of its own, which it ends.
#![allow(clippy::unwrap_used)]

use ringloop_coro::{Builder, Spawn, spawn, start};
use ringloop_testing::coro::{is_part, run_part};
use ringloop_testing::drivers;
use ringloop_testing::sys::{has_aborted, has_faulted};
use std::hint::black_box;

/// Recurses until the stack overflows.
#[allow(unconditional_recursion)]
fn descend(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    descend(depth + 1) + frame[(depth % 64) as usize]
}

#[test]
fn overflow_message_names_coroutine_and_remedy() {
    if is_part("overflow_message_names_coroutine_and_remedy") {
        start(1, || {
            let deep = Spawn::new().name("deep one").stack_size(64 * 1024);
            drop(deep.spawn(|| descend(0)).join());
        })
        .unwrap();
    }
    for driver in drivers() {
        let output = run_part("overflow_message_names_coroutine_and_remedy", driver);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("coroutine 'deep one' (spawned at"), "{said}");
        assert!(said.contains("overflowed its stack of 64 KiB; Spawn::stack_size"), "{said}");
        assert!(has_aborted(output.status), "{:?}", output.status);
    }
}

#[test]
fn overflow_on_another_worker_is_reported() {
    if is_part("overflow_on_another_worker_is_reported") {
        Builder::new()
            .workers(2)
            .stack_size(32 * 1024)
            .start(|| {
                drop(spawn(|| descend(0)));
                // Only the other worker can run them: this one is busy.
                drop(spawn(|| descend(0)));
                std::thread::sleep(std::time::Duration::from_secs(20));
            })
            .unwrap();
    }
    for driver in drivers() {
        let output = run_part("overflow_on_another_worker_is_reported", driver);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("overflowed its stack of 32 KiB"), "{said}");
        assert!(has_aborted(output.status), "{:?}", output.status);
    }
}

#[test]
fn other_fault_goes_to_the_previous_handler() {
    if is_part("other_fault_goes_to_the_previous_handler") {
        drop(start(1, || {
            let nowhere = black_box(std::ptr::without_provenance::<u8>(16));
            // SAFETY: none: the test is about the fault.
            unsafe { nowhere.read_volatile() }
        }));
    }
    for driver in drivers() {
        let output = run_part("other_fault_goes_to_the_previous_handler", driver);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("overflowed"), "{said}");
        if cfg!(feature = "sanitizer") {
            assert!(said.contains("AddressSanitizer: SEGV"), "{said}");
        } else {
            assert!(has_faulted(output.status), "{:?}", output.status);
        }
    }
}

#[test]
fn deep_recursion_fits_a_stack_that_is_large_enough() {
    fn sum(depth: u64) -> u64 {
        let frame = black_box([depth; 64]);
        if depth == 0 { 0 } else { sum(depth - 1) + frame[3] }
    }
    let total = start(1, || {
        let deep = Spawn::new().stack_size(16 << 20);
        deep.spawn(|| sum(10_000)).join().unwrap()
    });
    assert_eq!(total.unwrap(), 10_000 * 10_001 / 2);
}
