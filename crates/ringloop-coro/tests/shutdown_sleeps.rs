//! Sleeps of no time in destructors at the end of a runtime; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::{Builder, sleep, spawn_local, yield_now};
use ringloop_testing::coro::LONG;
use ringloop_testing::drivers;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const COROUTINES: u32 = 200;

/// Sleeps for no time when it is dropped, and counts.
struct Naps(Rc<Cell<u32>>);

impl Drop for Naps {
    fn drop(&mut self) {
        sleep(Duration::ZERO);
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn zero_sleeps_in_many_destructors_end() {
    for driver in drivers() {
        let main = || {
            let ended = Rc::new(Cell::new(0));
            for _ in 0..COROUTINES {
                let naps = Naps(Rc::clone(&ended));
                drop(spawn_local(move || {
                    let _naps = naps;
                    sleep(LONG);
                }));
            }
            yield_now();
            ENDED.set(Some(ended));
        };
        Builder::new().driver(driver).start(main).unwrap();
        assert_eq!(ENDED.take().unwrap().get(), COROUTINES);
        // Refused if a coroutine had been abandoned while it unwound.
        Builder::new().driver(driver).start(|| ()).unwrap();
    }
}

thread_local! {
    static ENDED: Cell<Option<Rc<Cell<u32>>>> = const { Cell::new(None) };
}
